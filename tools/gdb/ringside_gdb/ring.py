"""The command `ring`: what every rank holds, or does, where the program stands.

All ranks on one thread (ringside step, verify()): a table of the chunks, and the step.

    (gdb) ring
    step 1 (of 0 to 5), in run_step: what arrives is added
               chunk 0  chunk 1  chunk 2  chunk 3
      rank 0   0        0        0+3      0         ─2─▶ rank 1
      ...

Ranks as threads, or one rank as a process: a line for each rank, with its call and its step.
"""
import gdb

from ringside_gdb import values


def frames():
    """The frames of the selected thread, from the newest."""
    frame = gdb.newest_frame()
    while frame is not None and frame.is_valid():
        yield frame
        frame = frame.older()


def variable(frame, name):
    """A variable of a frame, or None if the frame has none of that name or it cannot be read."""
    try:
        return frame.read_var(name)
    except (ValueError, RuntimeError, gdb.error):
        return None


def is_vector_of(value, element):
    return value is not None and f"vector<ringside::collectives::{element}" in str(
        value.type.strip_typedefs().unqualified())


def lockstep():
    """The frame with the states of all ranks: (frame, schedules, states), or None."""
    for frame in frames():
        states = variable(frame, "states")
        schedules = variable(frame, "schedules")
        if is_vector_of(states, "RankState") and is_vector_of(schedules, "Schedule"):
            return frame, values.vector(schedules), values.vector(states)
    return None


def cells(state):
    texts = values.contributions(state)
    if texts is not None:
        return texts
    return [" ".join(f"{float(x):g}" for x in values.vector(chunk))
            for chunk in values.vector(state["chunks"])]


def arrow(step):
    """A step's send as `ringside step` draws it: "─3─▶ rank 1"."""
    send = values.optional(step["send"])
    if send is None:
        return ""
    text = values.taken_text(send)
    return f"─{text or '─'}─▶ rank {int(send['to'])}"


def what_arrives(steps):
    """What the receivers of a step do, if all do the same."""
    received = [values.optional(step["receive"]) for step in steps]
    actions = {values.name(receive["action"]) for receive in received if receive is not None}
    return {"add": ": what arrives is added",
            "overwrite": ": what arrives replaces what was there"}.get("".join(actions), "")


def draw_lockstep(frame, schedules, states):
    rows = [cells(state) for state in states]
    step, taken = variable(frame, "step"), []
    all_steps = [values.vector(schedule["steps"]) for schedule in schedules]
    if step is not None and all(0 <= int(step) < len(steps) for steps in all_steps):
        taken = [steps[int(step)] for steps in all_steps]
        function = frame.name().split("::")[-1]
        print(f"step {int(step)} (of 0 to {len(all_steps[0]) - 1}), in {function}"
              f"{what_arrives(taken)}")
    heads = [f"chunk {i}" for i in range(len(rows[0]))]
    widths = [max(map(len, column)) + 2 for column in zip(heads, *rows)]

    def line(start, texts, end=""):
        cells_of_line = "".join(text.ljust(width) for text, width in zip(texts, widths))
        print((start.ljust(11) + cells_of_line + " " + end).rstrip())

    line("", heads)
    for rank, row in enumerate(rows):
        line(f"  rank {rank}", row, arrow(taken[rank]) if taken else "")


def rank_of(frame):
    """The rank of an executor's frame, or None."""
    this = variable(frame, "this")
    try:
        return int(this["transport_"]["rank_"])
    except (gdb.error, TypeError):
        return None


def position():
    """What the selected thread does in a collective: (rank, words), or None."""
    task, rank, step, waits = None, None, None, ""
    for frame in frames():
        this = variable(frame, "this")
        if this is not None and step is None and str(frame.name()).endswith("Watchdog::wait"):
            monitor = this["monitor_"]
            step = int(monitor["record_"]["step"])
            receives = int(this["receive_"]["peer"]) >= 0
            what = "a message from" if receives else "its message to be taken by"
            waits = f", waits for {what} rank {int(monitor['awaited_'])}"
        if step is None and (found := variable(frame, "step")) is not None:
            step = int(found) if found.type.strip_typedefs().code == gdb.TYPE_CODE_INT else None
        found = variable(frame, "task")
        if found is not None and str(found.type.strip_typedefs()).find("collectives::Task") >= 0:
            task = found
            rank = rank_of(frame) if rank is None else rank
    if task is None:
        return None
    text = f"call #{int(task['sequence'])}, {values.call_text(task['call'])}"
    steps = values.vector(task["schedule"]["steps"])
    if step is not None and step < len(steps):
        text += f", step {step} (of 0 to {len(steps) - 1}){waits}: {values.step_text(steps[step])}"
    return rank, text


def draw_threads():
    selected, selected_frame = gdb.selected_thread(), gdb.selected_frame()
    found = []
    try:
        for thread in gdb.selected_inferior().threads():
            thread.switch()
            here = position()
            if here is not None:
                found.append((here[0] if here[0] is not None else -1, thread.num, here[1]))
    finally:
        selected.switch()
        selected_frame.select()
    for rank, thread, text in sorted(found):
        print(f"  rank {rank if rank >= 0 else '?'} (thread {thread}): {text}")
    return bool(found)


def has_debug_information():
    return "No line number" not in gdb.execute("info line main", to_string=True)


def has_lines_here():
    """Whether the selected thread is in code with debug information: in a course, the student's."""
    return any(frame.find_sal().symtab is not None for frame in frames())


class Ring(gdb.Command):
    """Draw what every rank holds, or does, where the program stands.

Stop in run_step (ringside step) to see all chunks of all ranks. In a program whose ranks are
threads, or in one rank of a job, it shows each rank's call and step."""

    def __init__(self):
        super().__init__("ring", gdb.COMMAND_STATUS)

    def invoke(self, argument, from_tty):
        if gdb.selected_thread() is None:
            raise gdb.GdbError("ring: the program does not run: type `run`, or attach to a rank")
        found = lockstep()
        if found is not None:
            draw_lockstep(*found)
        elif not draw_threads():
            if not has_debug_information() and has_lines_here():
                raise gdb.GdbError("ring: only your code has debug information here, so ring cannot see what Ringside's "
                                   "functions hold: `info threads` lists the ranks, `thread 2` goes to one, and "
                                   "`backtrace` shows where it is")
            if not has_debug_information():
                raise gdb.GdbError("ring: this program has no debug information: debug one of the preset debug "
                                   "(cmake --preset debug && cmake --build --preset debug)")
            raise gdb.GdbError(
                "ring: no rank is in a collective here: `backtrace` shows what it does. To see the "
                "ranks, stop in run_step (ringside step) or in SimpleExecutor::exchange_messages")


Ring()
