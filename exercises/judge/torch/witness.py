"""The witness of one world: the process that makes the calls of the student's ranks.

    witness.py SECONDS SIZE RANK_SOCKET... [SINGLE_SOCKET]    prints the outcomes when all have come to an end

A rank, in a process of its own, has torch and the student's code, and no network: its backend (remote.py) sends each call
through a socket to here, where a thread for each rank makes it in a group of libringside. So what was called, when, over how
many bytes, is seen in memory that the student's code cannot reach. The rank gets from here what it computes with, numbers of
its own rank alone, and marks how far it is; what is observed at a mark stays here, and takes its place in the rank's data
under a name that the rank cannot fill itself (FACTS).

The single process, if there is one, has no code of the student's and no network. It computes in torch what the judge compares
with, and may ask for the numbers of any rank.

A message is a line of JSON, and as many bytes as it says:

    {"start": "all_reduce", "numbers": [count, type, op], "bytes": n}    a call; the answer has the number of its work. "send" and "recv"
                                                                         (messages.py) have [count, type, rank, tag]
    {"wait": work, "seconds": 0.1}    {"done": work}                     the answer has a status, and once the result
    {"ask": "net", ...}    {"mark": "layer", ...}    {"data": ...}       what nets.py gives; Rank.mark_...; the last one

Needs no torch, and reads nothing of the student's but JSON.
"""
import ctypes
import json
import os
import shutil
import socket
import sys
import threading
import time
from pathlib import Path

import nets

sys.path.insert(0, os.environ.get("RINGSIDE_PYTHON") or str(Path(__file__).resolve().parents[3] / "python"))
from messages import SIZES, TYPES, Message, Post  # noqa: E402
from ringside import library as lib  # noqa: E402

MOST = 100_000_000  # bytes of a message, and of all calls of a rank
FEW = 8  # looks at a message in a row, which torch_backend takes before each call: more of them are a wait
POLLS = 2000  # of a call that is held back: whoever asks more often waits for it
# What only the witness knows. Data of a rank have these names for a mark, {"observed": number}, or a list of them.
FACTS = {"messages", "calls", "sent", "all calls", "ended", "waited in backward", "in backward", "of another thread", "stayed",
         "overlaps", "gathered", "received", "others"}


class Call:
    """A call of the student's: what it is, and how far it has come."""

    def __init__(self, name, numbers, data, told, size):
        self.name, self.numbers, self.counts, self.received = name, numbers, told.get("counts"), told.get("received")
        self.main = told.get("main", True)  # made on the thread of backward
        self.status = self.error = None  # until it has ended
        width = SIZES[numbers[1]] if name != "barrier" else 0
        self.bytes = numbers[0] * width if numbers else 0  # of one buffer, or of one block where there are several
        self.root = numbers[2] if name in ("broadcast", "reduce", "gather", "scatter") else -1
        letter = "fd"[numbers[1]] if numbers and numbers[1] < 2 else None  # fp32 or fp64
        self.begins = list(memoryview(data[:2 * width]).cast(letter)) if letter and len(data) >= 2 * width else []
        blocks = sum(self.counts) if self.counts else size * numbers[0] if numbers else 0
        arrives = (sum(self.received) if self.received else blocks) * width
        length = {"all_gather": arrives, "reduce_scatter": self.bytes, "gather": arrives, "scatter": self.bytes, "all_to_all": arrives}.get(name)
        self.total = self.bytes if length is None else blocks * width  # of all blocks together
        if len(data) > MOST or (length or 0) > MOST or min([*numbers, *(self.counts or []), *(self.received or [])], default=0) < 0:
            raise ValueError(f"{name}: expected a call of at most {MOST} bytes")
        self.input = ctypes.create_string_buffer(data, max(1, len(data)))
        self.output = self.input if length is None else ctypes.create_string_buffer(max(1, length))
        self.length = len(data) if length is None else length

    def run(self, group):
        """Makes the call in the group, on this thread."""
        first = (self.input, self.output) if self.output is not self.input else (self.input,)
        arguments = [*first, *self.numbers] if self.name != "barrier" else []
        if self.name in ("all_gather", "reduce_scatter"):
            arguments.insert(3, lib.counts(self.counts) if self.counts else None)
        if self.name == "all_to_all":  # blocks that are equal on this rank may differ on others
            arguments[3:3] = [each and lib.list_of(each) for each in (self.counts, self.received)]
        try:
            lib.check(group.function(self.name)(group.handle, *arguments, None))
            self.status = lib.OK
        except lib.RingsideError as error:
            self.status, self.error = lib.RANK_FAILED if isinstance(error, lib.RankFailure) else lib.ERROR, str(error)


def in_words(call):
    return f"{call.name} of {call.numbers[0]} {TYPES[call.numbers[1]]}"


class Rank(threading.Thread):
    """Serves one rank until it has told its data, or its process has ended."""

    def __init__(self, rank, world, connection):
        super().__init__(daemon=True)
        self.rank, self.world, self.size = rank, world, world.size
        self.connection, self.file = connection, connection.makefile("rb")
        self.numbers = nets.Numbers(world.seed, rank, world.size)
        self.outcome, self.doing, self.group = None, "the case", None
        self.works, self.calls, self.queue, self.observed = [], [], [], []
        self.messages, self.awaited = [], None  # since mark_clear; what it waits for, until it goes on
        self.asked, self.times = None, 0  # what it has looked at last, and how often in a row
        self.changed = threading.Condition()
        self.held, self.impatient, self.slow, self.overlaps = False, None, 0.0, True
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
        told = self.outcome or {"error": "its process ended"}
        failure = "" if "data" in told else next(iter(told.values()))
        self.world.post.leave(self.rank, failure)
        if self.group is not None and failure:
            self.group.abort(failure)

    def on_start(self, message, data):
        is_message = message["start"] in ("send", "recv")
        call = Message(message["start"], self, message["numbers"], data, message["main"]) if is_message else Call(message["start"], message["numbers"], data, message, self.size)
        self.kept += len(data) + (call.bytes if is_message else call.length)
        if self.kept > MOST:
            raise ValueError(f"expected calls of at most {MOST} bytes in all")
        with self.changed:
            self.works.append(call)
            number, self.awaited, self.asked = len(self.works) - 1, None, None
            if is_message:
                self.messages.append(call)
            else:
                self.queue.append(call)
            if call.name not in ("barrier", "recv"):
                self.calls.append(call)
            self.changed.notify_all()
        if is_message:
            self.world.post.add(call)
        return {"work": number}, b""

    def is_under_way(self, call):
        return call.status is None or call in self.queue

    def on_wait(self, message, _):
        call = self.works[message["wait"]]
        with self.changed:
            if message.get("main"):
                self.be_impatient(call)
            self.take(call)
            self.awaited = call
            self.waiting += 1
            self.changed.notify_all()
            self.changed.wait_for(lambda: not self.is_under_way(call), min(1.0, message["seconds"]))
            self.waiting -= 1
        if isinstance(call, Message):
            self.world.post.patience(call)
        return self.on_done(message, _)

    def on_done(self, message, _):
        call = self.works[message.get("done", message.get("wait"))]
        if "done" in message:
            with self.changed:
                self.polled, self.polls = time.monotonic(), self.polls + self.held
                self.asked, self.times = call, self.times + 1 if call is self.asked else 1
                if self.times > FEW:
                    self.take(call)
                if self.polls > POLLS:
                    self.be_impatient(call)
                self.changed.notify_all()
        if self.is_under_way(call):
            return {"status": lib.TIMED_OUT}, b""
        if isinstance(call, Message):
            return {"status": call.status, "error": call.error, "source": call.peer if call.name == "recv" else self.rank}, call.result
        return {"status": call.status, "error": call.error}, call.output.raw[:call.length] if call.status == lib.OK else b""

    def take(self, call):
        """A receive takes its place among the calls where the rank first waits for it: who has asked for a message early does not need it yet."""
        if call.name == "recv" and not call.is_taken:
            call.is_taken = True
            self.calls.append(call)

    def be_impatient(self, call):
        """Whoever waits for a call that is held back would keep backward from its end: all calls go on."""
        if self.held and call.status is None:
            self.held, self.impatient, self.overlaps = False, "", len(self.calls) > 1

    def on_ask(self, message, _):
        return {"answer": getattr(self.numbers, "give_" + message["ask"])(*message.get("arguments", []))}, b""

    def on_doing(self, message, _):
        self.doing = str(message["doing"])[:200]
        return {}, b""

    def on_mark(self, message, _):
        with self.changed:
            self.awaited = None
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
        self.calls, self.messages, self.sent_before = [], [], self.group.bytes_sent

    def mark_calls(self):
        return [{"call": each.name, "bytes": each.bytes} for each in self.calls]

    def mark_calls_in_words(self):
        return [f"{each.name} of {each.bytes} bytes" + f" from rank {each.root}" * (each.root >= 0) for each in self.calls]

    def mark_calls_of(self, label):
        return [f"{each.name} of {label}" for each in self.calls]

    def mark_names(self):
        return [each.name for each in self.calls]

    def mark_whole_calls(self):
        """With the bytes of all blocks together, as C++ counts; torch has no labels."""
        return [{"call": each.name, "label": "", "bytes": each.total} for each in self.calls]

    def mark_gathered(self):
        return sum(each.total for each in self.calls if each.name == "all_gather")

    def mark_count(self):
        return len(self.calls)

    def mark_messages(self):
        """Of a ring, which each call takes 2 (size - 1) of."""
        return sum({"send": 1, "recv": 0}.get(each.name, 2 * (self.size - 1)) for each in self.calls)

    def mark_sent(self):
        return self.group.bytes_sent - self.sent_before + sum(each.bytes for each in self.messages if each.name == "send")

    def mark_received(self):
        """In messages that have come, whether the rank has looked or not."""
        return sum(each.bytes for each in self.messages if each.name == "recv" and each.status == lib.OK)

    def mark_exchanges(self):
        """Messages, by sender and receiver; other calls in words."""
        return [{"from": self.rank, "to": each.peer, "count": each.count} if each.name == "send" else
                {"from": each.peer, "to": self.rank, "count": each.count} if each.name == "recv" else {"other": in_words(each)} for each in self.calls]

    def mark_others(self):
        """Calls that are no messages."""
        return [in_words(each) for each in self.calls if not isinstance(each, Message)]

    def mark_ended(self):
        return sum(each.status is not None for each in self.calls)

    def mark_begins(self):
        return [self.numbers.name_of(each.begins) for each in self.calls]

    def mark_another_thread(self):
        return not all(each.main for each in self.calls)

    def mark_impatient(self):
        return [self.impatient]  # None is an observation, too

    def mark_overlaps(self):
        """Whether nobody waited for the first call before the second had started."""
        return self.overlaps

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
            if fact and isinstance(value, dict) and set(value) != {"observed"}:
                return {key: walk(each, True) for key, each in value.items()}
            if fact:
                return [observation(each) for each in value] if isinstance(value, list) else observation(value)
            if isinstance(value, dict):
                return {key: walk(each, key in FACTS and each != []) for key, each in value.items()}
            return [walk(each) for each in value] if isinstance(value, list) else value

        return walk(data)


class Single(threading.Thread):
    """Serves the single process."""

    def __init__(self, world, connection):
        super().__init__(daemon=True)
        self.connection, self.file = connection, connection.makefile("rb")
        self.numbers = [nets.Numbers(world.seed, rank, world.size) for rank in range(world.size)]
        self.outcome, self.doing = None, "the case"

    def run(self):
        while self.outcome is None and (line := self.file.readline(MOST)):
            message, answer = json.loads(line), {}
            if "ask" in message:
                answer = {"answer": getattr(self.numbers[message["of"] or 0], "give_" + message["ask"])(*message["arguments"])}
            elif "doing" not in message:
                self.outcome = {"data": message["data"]} if "data" in message else {"error": message.get("error", "no word")}
            self.connection.sendall(json.dumps({**answer, "bytes": 0}).encode() + b"\n")


class World:
    def __init__(self, size, sockets, seconds):
        self.size, self.seed = size, int(os.environ["RINGSIDE_JUDGE_SEED"])
        self.timeout = max(1.0, seconds / 2)
        self.contacts, self.met = [b""] * self.size, threading.Barrier(self.size, timeout=seconds)
        connections = [socket.socket(fileno=each) for each in sockets]
        ranks = [Rank(rank, self, each) for rank, each in enumerate(connections[:size])]
        self.post = Post(ranks, self.timeout)
        self.all = [*ranks, *(Single(self, each) for each in connections[size:])]

    def exchange(self, rank):
        def with_all(contact):
            self.contacts[rank] = contact
            self.met.wait()
            return list(self.contacts)

        return with_all

    def outcomes(self, seconds):
        end = time.monotonic() + seconds
        for each in self.all:
            each.start()
        for each in self.all:
            each.join(max(0.0, end - time.monotonic()))
        if self.post.has_waited_in_vain:  # flight records know nothing of messages
            shutil.rmtree(os.environ["RINGSIDE_FLIGHT_DIR"], ignore_errors=True)
        return [{**(each.outcome or ({"hangs": True} if each.is_alive() else {})), "doing": each.doing} for each in self.all]


if __name__ == "__main__":
    seconds, size, *sockets = map(int, sys.argv[1:])
    print(json.dumps(World(size, sockets, seconds).outcomes(seconds)), flush=True)
    os._exit(0)  # threads of ranks that hang are in the library
