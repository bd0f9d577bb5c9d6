"""Reads C++ values in gdb: what the printers and the command `ring` share.

Fields are read directly, by libstdc++'s names. So this also works in a core file, and where
libstdc++'s own printers are missing. Nothing here calls a function of the program.
"""
import gdb


MOST = 1_000_000  # elements of a vector that is worth reading


def vector(value):
    """The elements of a std::vector. One that is not constructed yet may claim any length."""
    parts = value["_M_impl"]
    begin, end = parts["_M_start"], parts["_M_finish"]
    if begin.type.strip_typedefs().code == gdb.TYPE_CODE_STRUCT:  # std::vector<bool>
        words, bits = begin["_M_p"], begin["_M_p"].dereference().type.sizeof * 8
        count = (int(end["_M_p"]) - int(words)) * 8 + int(end["_M_offset"])
        return [bool(int(words[i // bits]) >> (i % bits) & 1) for i in range(count)]
    if not 0 <= int(end - begin) <= MOST:
        raise gdb.MemoryError("it is not constructed yet")
    return [begin[i] for i in range(int(end - begin))]


def optional(value):
    """The content of a std::optional, or None."""
    payload = value["_M_payload"]
    return payload["_M_payload"]["_M_value"] if payload["_M_engaged"] else None


def string(value):
    """A std::string or std::string_view as text."""
    fields = {field.name for field in value.type.strip_typedefs().fields()}
    if "_M_str" in fields:
        data, length = value["_M_str"], int(value["_M_len"])
    else:
        data, length = value["_M_dataplus"]["_M_p"], int(value["_M_string_length"])
    return data.string(length=length, errors="replace")


def pointee(value):
    """What a std::shared_ptr points at, or None."""
    pointer = value["_M_ptr"]
    return pointer.dereference() if int(pointer) else None


def name(enumerator):
    """ringside::collectives::DataType::fp32 as "fp32"."""
    return str(enumerator).split("::")[-1]


def counted(n, thing):
    return f"{n} {thing}{'' if n == 1 else 's'}"


def chunk_range(value):
    """A ChunkRange as (first, count)."""
    return int(value["first"]), int(value["count"])


def range_text(value, first=None):
    """A ChunkRange, or another that begins with chunk `first`: "4-7", or "6,7,0" if it is circular."""
    (begin, count), modulus = chunk_range(value), int(value["modulus"])
    begin = begin if first is None else int(first)
    if modulus > 0:
        stride, run = int(value["stride"]), int(value["run"])
        return ",".join(str((begin + i // run * stride + i % run) % modulus) for i in range(count))
    if count == 0:
        return ""
    return str(begin) if count == 1 else f"{begin}-{begin + count - 1}"


def chunks_text(value):
    """A ChunkRange in words."""
    count = chunk_range(value)[1]
    if count == 0:
        return "a message without payload"
    return f"chunk{'' if count == 1 else 's'} {range_text(value)}"


def contributions(state):
    """The texts of a RankState's chunks: "0+3", or "2.1" where chunks have names. None if the
    chunks hold numbers instead of contributions."""
    ranks = len(vector(state["heard_from"]))
    inputs = [[float(x) for x in vector(chunk)] for chunk in vector(state["input"])]
    for chunk in inputs:
        is_long_enough = len(chunk) in (ranks, ranks + len(inputs))
        if not is_long_enough or sorted(chunk[:ranks]) != [0.0] * (ranks - 1) + [1.0]:
            return None
    texts = []
    for chunk in vector(state["chunks"]):
        held = [int(x) for x in vector(chunk)]
        text = ranks_text(held[:ranks])
        texts.append(text + "." + ranks_text(held[ranks:]) if len(held) > ranks else text)
    return texts


def ranks_text(counts):
    """[1, 0, 0, 2] as "0+3+3"."""
    return "+".join(str(rank) for rank, n in enumerate(counts) for _ in range(n))


def algorithms():
    """The names of all_algorithms(), in order. Empty if the program has not called it yet."""
    variable = "ringside::collectives::all_algorithms()::algorithms"
    try:
        address = gdb.parse_and_eval(f"&'{variable}'")
        algorithm = gdb.lookup_type("ringside::collectives::Algorithm").pointer()
        begin, end = address.cast(algorithm.pointer())[0], address.cast(algorithm.pointer())[1]
        return [string(begin[i]["name"]) for i in range(int(end - begin))]
    except gdb.error:
        return []


def algorithm_name(index):
    known = algorithms()
    return known[index] if index < len(known) else f"algorithm {index}"


def label(value):
    """A Label as text."""
    return value["text"].string(errors="replace").rstrip("\0")


REDUCING = ("all_reduce", "reduce_scatter", "reduce")


def call_text(call):
    """As describe() in collectives/call.cpp: all_reduce of 100 fp32 (sum, ring) for w."""
    collective = name(call["collective"])
    text = collective
    if collective == "point_to_point":
        text = f"send/recv of {int(call['count'])} {name(call['type'])} from rank " \
               f"{int(call['root'])} to rank {int(call['peer'])}"
    elif collective != "barrier":
        text += f" of {int(call['count'])} {name(call['type'])}"
        if collective in ("broadcast", "reduce", "gather", "scatter"):
            towards = "to" if collective in ("reduce", "gather") else "from"
            text += f" {towards} rank {int(call['root'])}"
        algorithm = algorithm_name(int(call["algorithm"]))
        text += f" ({name(call['reduce'])}, {algorithm})" if collective in REDUCING \
            else f" ({algorithm})"
    return text + (f" for {label(call['label'])}" if label(call["label"]) else "")


def taken_text(send):
    """The chunks of a Send as the sender names them."""
    held = optional(send["held"])
    return range_text(send["chunks"], held if held is not None else optional(send["input"]))


def send_text(send):
    text = chunks_text(send["chunks"])
    own_input = optional(send["input"]) is not None
    count = chunk_range(send["chunks"])[1]
    if count > 0 and (own_input or optional(send["held"]) is not None):
        text = f"chunk{'' if count == 1 else 's'} {taken_text(send)}" \
               f"{' of its input' if own_input else ''} as {text}"
    return f"{text} to rank {int(send['to'])}"


def receive_text(receive):
    return f"{chunks_text(receive['chunks'])} from rank {int(receive['from'])} " \
           f"({name(receive['action'])})"


def step_text(step):
    send, receive = optional(step["send"]), optional(step["receive"])
    halves = []
    if send is not None:
        halves.append("sends " + send_text(send))
    if receive is not None:
        halves.append("receives " + receive_text(receive))
    return ", ".join(halves) or "idle"
