"""Messages between two ranks of a world, in the witness.

A receive takes the first message with its tag from its rank; two messages from one rank with one tag come in the order in which they
were sent. A send ends when its message is received: torch lets a backend keep it until then, but not every backend does. So ranks that
only get on because messages are kept wait for each other here, and the sentence says how.
"""
import threading
import time

from ringside import library as lib

TYPES = "fp32 fp64 int32 int64 fp16 bf16 uint8 int8 int16 bool".split()  # by the type of library.py
SIZES = [4, 8, 4, 8, 2, 2, 1, 1, 2, 1]  # bytes of a number of each
ANY_RANK = -1


class Message:
    """One side of a message: "send" or "recv"."""

    root, begins = -1, ()  # a collective's

    def __init__(self, name, rank, numbers, data, main):
        self.name, self.rank, self.data, self.main = name, rank.rank, data, main
        self.count, self.type, self.peer, self.tag = numbers
        self.owner = rank  # what serves it in witness.py
        self.bytes = self.total = self.count * SIZES[self.type]
        self.status = self.error = None  # until both sides have met
        self.result = b""
        self.waited_since = None  # when the rank first waited for it
        self.is_taken = False  # whether it stands among the calls of its rank

    def fits(self, other):
        send, recv = (self, other) if self.name == "send" else (other, self)
        return send.name != recv.name and send.peer == recv.rank and recv.peer in (send.rank, ANY_RANK) and send.tag == recv.tag

    def end(self, status, error=None, result=b""):
        self.status, self.error, self.result = status, error, result


class Post:
    """Brings the two sides of each message together."""

    def __init__(self, ranks, timeout):
        self.ranks, self.timeout = ranks, timeout
        self.lock = threading.Lock()
        self.waiting = []  # those without another side, in the order in which they were made
        self.left = {}  # rank -> why; "" where it came to its end
        self.has_waited_in_vain = False

    def add(self, message):
        me, last = message.rank, len(self.ranks) - 1
        if message.peer == me or not (0 if message.name == "send" else ANY_RANK) <= message.peer <= last:
            message.end(lib.ERROR, f"rank {me} can send to and receive from the other ranks of 0 to {last}, not rank {message.peer}")
            return
        with self.lock:
            other = next((each for each in self.waiting if each.fits(message)), None)
            if other:
                self.waiting.remove(other)
                self.meet(*((message, other) if message.name == "send" else (other, message)))
            elif message.peer in self.left:
                message.end(lib.RANK_FAILED, self.reason(message))
            else:
                self.waiting.append(message)
        if other:
            self.tell(other)

    @staticmethod
    def meet(send, recv):
        if (send.type, send.count) == (recv.type, recv.count):
            send.end(lib.OK)
            recv.end(lib.OK, result=send.data)
            recv.peer = send.rank
            return
        for each in (send, recv):
            each.end(lib.ERROR, f"rank {send.rank} sends {send.count} {TYPES[send.type]} to rank {recv.rank}, which expects {recv.count} {TYPES[recv.type]}")

    @staticmethod
    def tell(message):
        with message.owner.changed:
            message.owner.changed.notify_all()

    def reason(self, message):
        return self.left[message.peer] or f"rank {message.peer} has left the group, and rank {message.rank} still waits for it"

    def leave(self, rank, cause=""):
        """The rank makes no call any more. Where it has failed, nobody's message arrives."""
        if cause and "(as rank" not in cause:
            cause += f" (as rank {rank} tells)"
        with self.lock:
            if not cause:
                self.left.setdefault(rank, "")
            elif not any(self.left.values()):
                self.left = dict.fromkeys(range(ANY_RANK, len(self.ranks)), cause)
            lost = [each for each in self.waiting if cause or each.peer == rank]
            self.waiting = [each for each in self.waiting if each not in lost]
            for each in lost:
                each.end(lib.RANK_FAILED, self.reason(each))
        for each in lost:
            self.tell(each)

    # ---- Waiting in vain

    def patience(self, message):
        """Ends a message for which its rank has waited too long."""
        message.waited_since = message.waited_since or time.monotonic()
        if time.monotonic() - message.waited_since < self.timeout:
            return
        with self.lock:
            if message in self.waiting:
                self.waiting.remove(message)
                message.end(lib.RANK_FAILED, self.in_vain(message))

    def in_vain(self, message):
        """What is known of a message that did not come, or was not received."""
        self.has_waited_in_vain = True
        awaited = {each.rank: each.awaited for each in self.ranks if each.awaited is not None and each.awaited.status != lib.OK} | {message.rank: message}
        me, peer = message.rank, "any rank" if message.peer == ANY_RANK else f"rank {message.peer}"
        text = f"nothing came to rank {me} from {peer} for {self.timeout:.1f} s" + f": {peer} does not receive what rank {me} sends" * (message.name == "send")
        for rank, other in awaited.items():
            if rank != me:
                text += f"; rank {rank} waits in {other.name}" + (f" for rank {other.peer}" if isinstance(other, Message) else "")
        circle = self.circle_in_words(me, awaited)
        return f"{circle} So {text}" if circle else text

    def circle_in_words(self, rank, awaited):
        """Of ranks that wait for each other's messages, or "". The words are those of collectives/diagnostics."""
        path = [rank]
        while isinstance(awaited.get(path[-1]), Message) and awaited[path[-1]].peer not in path:
            path.append(awaited[path[-1]].peer)
        if not isinstance(last := awaited.get(path[-1]), Message):
            return ""
        circle = path[path.index(last.peer):]
        least = circle.index(min(circle))
        circle = circle[least:] + circle[:least]
        text = "Ranks wait for each other in a circle: " + ", ".join(f"rank {each} for rank {awaited[each].peer}" for each in circle)
        open_of = {each: [other for other in self.waiting if other.rank == each and other is not awaited[each]] for each in circle}
        if any(open_of.values()):
            says = lambda each: {"send": f"sends to rank {each.peer}", "recv": f"receives from rank {each.peer}"}[each.name]
            return text + ", and no send meets a receive: " + "; ".join(f"rank {each} " + " and ".join(map(says, [awaited[each], *open_of[each]])) for each in circle) + "."
        first, then = ("receive", "sends") if any(awaited[each].name == "send" for each in circle) else ("send", "receives")
        return f"{text}. One of them must {first} before it {then}."
