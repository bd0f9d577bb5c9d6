"""The witness of one world: the process that makes the calls of the student's ranks.

    witness.py SECONDS RANK_SOCKET...    prints {rank: outcome} when all ranks have come to an end

A rank, in a process of its own, has torch and the student's code, and no network: its backend (remote.py) sends each call
through a socket to here, where a thread for each rank makes it in a group of libringside. So what was called, when, over how
many bytes, is seen in memory that the student's code cannot reach. The rank gets from here what it computes with, numbers of
its own rank alone, and marks how far it is; what is observed at a mark stays here, and takes its place in the rank's data
under a name that the rank cannot fill itself (FACTS).

A message is a line of JSON, and as many bytes as it says:

    {"start": "all_reduce", "numbers": [count, type, op], "bytes": n}    a call; the answer has the number of its work
    {"wait": work, "seconds": 0.1}    {"done": work}                     the answer has a status, and once the result
    {"ask": "net", ...}    {"mark": "layer", ...}    {"data": ...}       what nets.py gives; Rank.mark_...; the last one

Needs no torch, and reads nothing of the student's but JSON.
"""
import ctypes
import json
import os
import socket
import sys
import threading
import time
from pathlib import Path

import nets

sys.path.insert(0, os.environ.get("RINGSIDE_PYTHON") or str(Path(__file__).resolve().parents[3] / "python"))
from ringside import library as lib  # noqa: E402

SIZES = [4, 8, 4, 8, 2, 2, 1, 1, 2, 1]  # bytes of a number, by the type of library.py
MOST = 100_000_000  # bytes of a message, and of all calls of a rank
POLLS = 2000  # of a call that is held back: whoever asks more often waits for it
# What only the witness knows. Data of a rank have these names for a mark, {"observed": number}, or a list of them.
FACTS = {"messages", "calls", "sent", "all calls", "ended", "waited in backward", "in backward", "of another thread", "stayed"}


class Call:
    """A call of the student's: what it is, and how far it has come."""

    def __init__(self, name, numbers, counts, data, told, size):
        self.name, self.numbers, self.counts = name, numbers, counts
        self.main = told.get("main", True)  # made on the thread of backward
        self.status = self.error = None  # until it has ended
        width = SIZES[numbers[1]] if name != "barrier" else 0
        self.bytes = numbers[0] * width if numbers else 0  # of one buffer, or of one block where there are several
        self.begins = list(memoryview(data[:16]).cast("d")) if width == 8 and len(data) >= 16 else []
        blocks = sum(counts) if counts else size * numbers[0] if numbers else 0
        length = {"all_gather": blocks * width, "reduce_scatter": self.bytes, "gather": blocks * width, "scatter": self.bytes}.get(name)
        if len(data) > MOST or (length or 0) > MOST or min(numbers or [0]) < 0:
            raise ValueError(f"{name}: expected a call of at most {MOST} bytes")
        self.input = ctypes.create_string_buffer(data, max(1, len(data)))
        self.output = self.input if length is None else ctypes.create_string_buffer(max(1, length))
        self.length = len(data) if length is None else length

    def run(self, group):
        """Makes the call in the group, on this thread."""
        counts = lib.counts(self.counts) if self.counts else None
        first = (self.input, self.output) if self.output is not self.input else (self.input,)
        arguments = [*first, *self.numbers] if self.name != "barrier" else []
        if self.name in ("all_gather", "reduce_scatter"):
            arguments.insert(3, counts)
        try:
            lib.check(group.function(self.name)(group.handle, *arguments, None))
            self.status = lib.OK
        except lib.RingsideError as error:
            self.status, self.error = lib.RANK_FAILED if isinstance(error, lib.RankFailure) else lib.ERROR, str(error)


class Rank(threading.Thread):
    """Serves one rank until it has told its data, or its process has ended."""

    def __init__(self, rank, world, connection):
        super().__init__(daemon=True)
        self.rank, self.world, self.size = rank, world, world.size
        self.connection, self.file = connection, connection.makefile("rb")
        self.numbers = nets.Numbers(world.seed, rank, world.size)
        self.outcome, self.doing, self.group = None, "the case", None
        self.works, self.calls, self.queue, self.observed = [], [], [], []
        self.changed = threading.Condition()
        self.held, self.impatient, self.slow = False, None, 0.0
        self.waiting, self.polled, self.polls = 0, 0.0, 0
        self.sent_before = self.kept = 0

    # ---- The network: one call after the other

    def make_calls(self):
        while True:
            with self.changed:
                self.changed.wait_for(lambda: self.queue and not self.held)
                call = self.queue[0]
                if self.slow and call.name != "barrier":  # until the rank waits for a call, or the delay is over
                    self.changed.wait_for(lambda: self.waits() or not self.slow)
            time.sleep(self.slow)
            call.run(self.group)
            with self.changed:
                self.queue.pop(0)
                self.changed.notify_all()

    def waits(self):
        return self.waiting > 0 or time.monotonic() - self.polled < 0.05

    # ---- What a rank asks for

    def run(self):
        try:
            self.group = lib.Group(self.rank, self.size, "127.0.0.1", self.world.exchange(self.rank), "key", "", self.world.timeout)
            threading.Thread(target=self.make_calls, daemon=True).start()
            while self.outcome is None and (line := self.file.readline(MOST)):
                message = json.loads(line)
                data = self.file.read(min(MOST, message.get("bytes", 0)))
                name = next(iter(message))
                answer, result = getattr(self, "on_" + name)(message, data)
                self.connection.sendall(json.dumps({**answer, "bytes": len(result)}).encode() + b"\n" + result)
        except (OSError, ValueError, KeyError, TypeError, AttributeError, IndexError, RuntimeError) as error:
            self.outcome = self.outcome or {"error": f"{type(error).__name__}: {error}"}
        if self.group is not None and (self.outcome is None or "data" not in self.outcome):
            told = self.outcome or {"error": "its process ended"}
            self.group.abort(next(iter(told.values())))

    def on_start(self, message, data):
        call = Call(message["start"], message["numbers"], message.get("counts"), data, message, self.size)
        self.kept += len(data) + call.length
        if self.kept > MOST:
            raise ValueError(f"expected calls of at most {MOST} bytes in all")
        with self.changed:
            self.works.append(call)
            self.queue.append(call)
            if call.name != "barrier":
                self.calls.append(call)
            self.changed.notify_all()
        return {"work": len(self.works) - 1}, b""

    def on_wait(self, message, _):
        call = self.works[message["wait"]]
        with self.changed:
            if message.get("main"):
                self.be_impatient(call)
            self.waiting += 1
            self.changed.notify_all()
            self.changed.wait_for(lambda: call.status is not None and call not in self.queue, min(1.0, message["seconds"]))
            self.waiting -= 1
        return self.on_done(message, _)

    def on_done(self, message, _):
        call = self.works[message.get("done", message.get("wait"))]
        if "done" in message:
            with self.changed:
                self.polled, self.polls = time.monotonic(), self.polls + self.held
                if self.polls > POLLS:
                    self.be_impatient(call)
                self.changed.notify_all()
        if call.status is None or call in self.queue:
            return {"status": lib.TIMED_OUT}, b""
        return {"status": call.status, "error": call.error}, call.output.raw[:call.length] if call.status == lib.OK else b""

    def be_impatient(self, call):
        """Whoever waits for a call that is held back would keep backward from its end: all calls go on."""
        if self.held and call.status is None:
            self.held, self.impatient = False, ""

    def on_ask(self, message, _):
        return {"answer": getattr(self.numbers, "give_" + message["ask"])(*message.get("arguments", []))}, b""

    def on_doing(self, message, _):
        self.doing = str(message["doing"])[:200]
        return {}, b""

    def on_mark(self, message, _):
        with self.changed:
            told = getattr(self, "mark_" + message["mark"])(*message.get("arguments", []))
            self.changed.notify_all()
        if told is None:
            return {}, b""
        self.observed.append(told)
        return {"observed": len(self.observed) - 1}, b""

    def on_data(self, message, _):
        self.outcome = {"data": self.with_facts(message["data"])}
        return {}, b""

    def on_error(self, message, _):
        self.outcome = {message.get("kind", "error"): str(message["error"])}
        return {}, b""

    # ---- Marks

    def mark_clear(self):
        """From here on calls are counted."""
        self.calls, self.sent_before = [], self.group.bytes_sent

    def mark_calls(self):
        return [{"call": each.name, "bytes": each.bytes} for each in self.calls]

    def mark_count(self):
        return len(self.calls)

    def mark_messages(self):
        """Of a ring, which each call takes 2 (size - 1) of."""
        return 2 * (self.size - 1) * len(self.calls)

    def mark_sent(self):
        return self.group.bytes_sent - self.sent_before

    def mark_ended(self):
        return sum(each.status is not None for each in self.calls)

    def mark_begins(self):
        return [self.numbers.name_of(each.begins) for each in self.calls]

    def mark_another_thread(self):
        return not all(each.main for each in self.calls)

    def mark_impatient(self):
        return [self.impatient]  # None is an observation, too

    def mark_hold(self):
        self.held, self.polls = self.impatient is None, 0

    def mark_release(self, slow):
        self.held, self.slow = False, min(1.0, slow)

    def mark_hurry(self):
        self.slow = 0.0

    # ---- What a rank tells at its end

    def with_facts(self, data):
        """The data, with what was observed. Throws ValueError where a fact is the rank's own word."""
        free = list(self.observed)

        def observation(each):
            if not isinstance(each, dict) or set(each) != {"observed"} or free[each["observed"]] is None:
                raise ValueError("its data have facts that only the judge can know")
            found, free[each["observed"]] = free[each["observed"]], None  # each once
            return found[0] if found == [None] or found == [""] else found

        def walk(value, fact=False):
            if fact:
                return [observation(each) for each in value] if isinstance(value, list) else observation(value)
            if isinstance(value, dict):
                return {key: walk(each, key in FACTS and each != []) for key, each in value.items()}
            return [walk(each) for each in value] if isinstance(value, list) else value

        return walk(data)


class World:
    def __init__(self, sockets, seconds):
        self.size, self.seed = len(sockets), int(os.environ["RINGSIDE_JUDGE_SEED"])
        self.timeout = max(1.0, seconds / 2)
        self.contacts, self.met = [b""] * self.size, threading.Barrier(self.size, timeout=seconds)
        self.ranks = [Rank(rank, self, socket.socket(fileno=each)) for rank, each in enumerate(sockets)]

    def exchange(self, rank):
        def with_all(contact):
            self.contacts[rank] = contact
            self.met.wait()
            return list(self.contacts)

        return with_all

    def outcomes(self, seconds):
        end = time.monotonic() + seconds
        for rank in self.ranks:
            rank.start()
        for rank in self.ranks:
            rank.join(max(0.0, end - time.monotonic()))
        return [{**(each.outcome or ({"hangs": True} if each.is_alive() else {})), "doing": each.doing} for each in self.ranks]


if __name__ == "__main__":
    seconds, *sockets = map(int, sys.argv[1:])
    print(json.dumps(World(sockets, seconds).outcomes(seconds)), flush=True)
    os._exit(0)  # threads of ranks that hang are in the library
