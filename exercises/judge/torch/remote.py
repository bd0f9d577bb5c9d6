"""The network of a rank with the student's code: a library in the place of libringside, whose calls the witness makes.

Ringside's backend of torch.distributed (python/ringside/torch_backend.py) runs on it unchanged.
"""
import ctypes
import json
import threading

from messages import SIZES
from ringside import library as lib
from ringside import torch_backend

SLICE = 0.1  # seconds of a wait in the witness


def is_main():
    """Whether this is the thread of backward."""
    return threading.current_thread() is threading.main_thread()


class Witness:
    """The socket to the witness. Threads take turns."""

    def __init__(self, connection):
        self.connection, self.file, self.lock = connection, connection.makefile("rb"), threading.Lock()

    def tell(self, message, data=b""):
        """(answer, bytes). Throws EOFError where the witness has ended."""
        with self.lock:
            self.connection.sendall(json.dumps({**message, "bytes": len(data)}).encode() + b"\n" + data)
            line = self.file.readline()
            if not line:
                raise EOFError("the judge has ended this case")
            answer = json.loads(line)
            return answer, self.file.read(answer["bytes"])

    def ask(self, what, *arguments, of=None):
        """What nets.py gives this rank; the single process may name any rank."""
        return self.tell({"ask": what, "arguments": arguments, "of": of})[0]["answer"]

    def mark(self, what, *arguments):
        """What stands in the data for an observation that stays in the witness."""
        return {key: value for key, value in self.tell({"mark": what, "arguments": arguments})[0].items() if key == "observed"}

    def doing(self, what):
        """Notes what this rank is about to do, for the sentence about a rank that does not come back."""
        self.tell({"doing": what})

    def barrier(self):
        """Waits for all ranks, outside of torch: so also for calls that the student does not wait for."""
        work = self.tell({"start": "barrier", "numbers": []})[0]["work"]
        while (answer := self.tell({"wait": work, "seconds": SLICE})[0])["status"] == lib.TIMED_OUT:
            pass
        if answer["status"] != lib.OK:
            raise RuntimeError(answer["error"])


class Started:
    """A call under way: where its result goes."""

    def __init__(self, work, address):
        self.work, self.address, self.status, self.source = work, address, None, -1


class Library:
    """What torch_backend asks of libringside."""

    def __init__(self, witness):
        self.witness, self.started, self.failed = witness, {}, threading.local()

    def ringside_last_error(self):
        return self.failed.text.encode()

    def ringside_work_source(self, handle):
        return self.started[handle.value].source  # of a message

    def ringside_work_free(self, handle):
        self.started.pop(handle.value, None)

    def ringside_work_done(self, handle):
        return int(self.status_of(self.started[handle.value], {"done": self.started[handle.value].work}) != lib.TIMED_OUT)

    def ringside_work_wait(self, handle, seconds):
        call = self.started[handle.value]
        return self.status_of(call, {"wait": call.work, "seconds": max(0.0, min(SLICE, seconds)), "main": is_main()})

    def status_of(self, call, question):
        if call.status is None:
            answer, result = self.witness.tell(question)
            if answer["status"] == lib.TIMED_OUT:
                return lib.TIMED_OUT
            call.status, call.error, call.source = answer["status"], answer.get("error"), answer.get("source", -1)
            ctypes.memmove(call.address, result, len(result))
        self.failed.text = call.error or ""
        return call.status

    def call(self, name, arguments, work):
        """A collective or a message, as its function in ringside.h."""
        counts = received = None
        apart = name in ("all_gather", "reduce_scatter", "gather", "scatter", "all_to_all")
        addresses, numbers = arguments[:1 + apart], list(arguments[1 + apart:])
        if name in ("all_gather", "reduce_scatter", "all_to_all"):
            counts = numbers.pop(1)
        if name == "all_to_all":
            received = numbers.pop(1)
        size, me = self.size, self.rank
        width = SIZES[numbers[1]] if numbers else 0
        block = counts[me] if counts else numbers[0] if numbers else 0
        all_blocks = sum(counts) if counts else size * block
        read = {"reduce_scatter": all_blocks, "all_to_all": all_blocks, "scatter": all_blocks if numbers and numbers[-1] == me else 0, "recv": 0}.get(name, block) * width
        data = ctypes.string_at(addresses[0], read) if read else b""
        told = {"start": name, "numbers": numbers, "counts": counts and list(counts), "received": received and list(received), "main": is_main()}
        answer, _ = self.witness.tell(told, data)
        call = Started(answer["work"], addresses[-1] if addresses else 0)
        if work is not None:
            work._obj.value = answer["work"] + 1
            self.started[answer["work"] + 1] = call
            return lib.OK
        while (status := self.status_of(call, {"wait": call.work, "seconds": SLICE, "main": is_main()})) == lib.TIMED_OUT:
            pass
        return status

    def refused(self, text):
        self.failed.text = text
        return lib.ERROR


class Ranks:
    """In the place of library.Group: the one group of a case, which the witness has connected."""

    transport, process, handle = "tcp", 0, True

    def __init__(self, library, rank, size, process):
        self.library, self.rank, self.size, self.process = library, rank, size, process

    def function(self, name):
        return lambda _, *arguments: self.library.call(name, arguments[:-1], arguments[-1])

    def abort(self, cause):
        pass

    def close(self):
        pass


def connect(witness, rank, size, process):
    """A function that makes torch's groups, over the witness."""
    library = Library(witness)
    library.rank, library.size = rank, size
    lib._library = library

    def create(options, _=None):
        if options.group_size != size:
            raise NotImplementedError("these exercises have one group, of all ranks")
        return torch_backend.ProcessGroup(Ranks(library, rank, size, process), options.store, options.timeout)

    return create
