"""Pretty-printers: a value of Ringside in words, and its parts below it.

    (gdb) print schedules[1]            4 chunks, 6 steps = {[0] = sends chunk 0 to rank 2, ...}
    (gdb) print task.call               all_reduce of 100 fp32 (sum, ring) = {..., algorithm = ring}
    (gdb) print/r task.call             the fields as they are

A printer has to_string(), the words, and may have children(), pairs of a name and a value.
"""
import struct

import gdb
import gdb.printing

from ringside_gdb import values

SHOWN = 8  # elements of a tensor


class Printer:
    def __init__(self, value):
        self.value = value


def words(read):
    """A printer without parts, from a function of the value."""
    return type("Words", (Printer,), {"to_string": lambda self: read(self.value)})


def chunks_text(value):
    count, blocks, parts, unit = (int(value[field]) for field in ("count_", "blocks_", "parts_", "unit_"))
    floor, more = int(value["floor_"]), int(value["remainder_"])
    begins = value["begins_"]
    if int(begins):
        in_blocks = [int(begins[i + 1]) - int(begins[i]) for i in range(blocks)]
    else:
        in_blocks = [unit * (floor + (1 if i < more else 0)) for i in range(blocks)]
        if blocks:
            in_blocks[-1] += count - sum(in_blocks)
    sizes = [block // parts + (1 if part < block % parts else 0) for block in in_blocks for part in range(parts)]
    return f"{count} elements in {values.counted(len(sizes), 'chunk')}: {', '.join(map(str, sizes))}"


class SchedulePrinter(Printer):
    def to_string(self):
        steps = len(values.vector(self.value["steps"]))
        return f"{values.counted(int(self.value['chunks']), 'chunk')}, " \
               f"{values.counted(steps, 'step')}"

    def children(self):
        for i, step in enumerate(values.vector(self.value["steps"])):
            yield f"[{i}]", step


class RankStatePrinter(Printer):
    def to_string(self):
        texts = values.contributions(self.value)
        if texts is None:
            return values.counted(len(values.vector(self.value["chunks"])), "chunk") + " of numbers"
        return "holds " + ", ".join(f"{text} in chunk {i}" for i, text in enumerate(texts))

    def children(self):
        texts = values.contributions(self.value)
        for i, chunk in enumerate(values.vector(self.value["chunks"])):
            yield f"chunk {i}", chunk if texts is None else texts[i]
        yield "heard_from", values.ranks_text(map(int, values.vector(self.value["heard_from"])))


class CallPrinter(Printer):
    def to_string(self):
        return values.call_text(self.value)

    def children(self):
        for field in ("collective", "algorithm", "type", "reduce", "root", "count", "peer"):
            value = self.value[field]
            if field == "algorithm":
                yield field, values.algorithm_name(int(value))
            else:
                is_enum = value.type.strip_typedefs().code == gdb.TYPE_CODE_ENUM
                yield field, values.name(value) if is_enum else value
        yield "label", values.label(self.value["label"])


class WorkPrinter(Printer):
    def to_string(self):
        state = values.pointee(self.value["state_"])
        if state is None:
            return "no call"
        fields = {field.name for field in state.type.strip_typedefs().fields()}
        if "done" not in fields:  # call_queue.cpp was compiled without debug information
            return "a call"
        failed = int(state["error"]["_M_exception_object"]) != 0
        how = "failed" if failed else "done" if state["done"] else "under way"
        return f"{how}: {values.call_text(state['what']['call'])}"


class ScopedWorkPrinter(Printer):
    def to_string(self):
        payload = self.value["work_"]["_M_payload"]
        if not payload["_M_engaged"]:
            return "no call"
        return WorkPrinter(payload["_M_payload"]["_M_value"]).to_string()


def decoded(data, dtype):
    if dtype == "bf16":
        return [struct.unpack("<f", b"\0\0" + data[i:i + 2])[0] for i in range(0, len(data), 2)]
    letter = {"fp32": "f", "fp64": "d", "int32": "i"}[dtype]
    return list(struct.unpack(f"<{len(data) // struct.calcsize(letter)}{letter}", data))


def first_offsets(shape, strides):
    """The offsets of the first elements in row-major order, in elements."""
    count = 1
    for size in shape:
        count *= size
    for i in range(min(count, SHOWN)):
        offset, rest = 0, i
        for size, stride in zip(reversed(shape), reversed(strides)):
            offset, rest = offset + rest % size * stride, rest // size
        yield offset


class TensorPrinter(Printer):
    def to_string(self):
        impl = values.pointee(self.value["impl_"])
        if impl is None:
            return "undefined"
        if "requires_grad" not in {field.name for field in impl.type.strip_typedefs().fields()}:
            return "a tensor (tensor.cpp was compiled without debug information)"
        shape = [int(size) for size in values.vector(impl["shape"])]
        strides = [int(stride) for stride in values.vector(impl["strides"])]
        dtype, storage = values.name(impl["dtype"]), values.pointee(impl["storage"])
        device = values.name(storage["device_"])
        text = f"{shape} {dtype} {device}, strides {strides}"
        if impl["requires_grad"]:
            text += ", result of an op" if values.pointee(impl["grad_fn"]) is not None \
                else ", requires gradient"
        return f"{text}: {self.first_values(impl, storage, dtype, device, shape, strides)}"

    @staticmethod
    def first_values(impl, storage, dtype, device, shape, strides):
        if int(storage["data_"]) == 0:
            return "its memory is dropped"
        if device == "cuda":
            return "its memory is on the GPU"
        size = {"bf16": 2, "fp64": 8}.get(dtype, 4)
        begin = int(storage["data_"]) + int(impl["offset"]) * size
        numbers = []
        for offset in first_offsets(shape, strides):
            data = bytes(gdb.selected_inferior().read_memory(begin + offset * size, size))
            numbers += decoded(data, dtype)
        more = ", ..." if int(impl["elements"]) > SHOWN else ""
        return "{" + ", ".join(f"{number:.6g}" for number in numbers) + more + "}"


class BucketPrinter(Printer):
    def to_string(self):
        entries = values.vector(self.value["entries"])
        return f"{values.counted(len(entries), 'gradient')}, " \
               f"{int(self.value['elements'])} elements, {values.name(self.value['dtype'])}, {values.name(self.value['device'])}"

    def children(self):
        for entry in values.vector(self.value["entries"]):
            begin = int(entry["begin"])
            yield f"[{begin}...]", values.string(entry["parameter"]["name"])


def entry_text(entry):
    return f"{values.string(entry['parameter']['name'])} from element {int(entry['begin'])}"


class ShardLayoutPrinter(Printer):
    def to_string(self):
        buckets = len(values.vector(self.value["buckets_"]))
        return f"{values.counted(buckets, 'bucket')} over {int(self.value['ranks_'])} ranks, " \
               f"of rank {int(self.value['rank_'])}"

    def children(self):
        ranks = int(self.value["ranks_"])
        for b, bucket in enumerate(values.vector(self.value["buckets_"])):
            elements, line = int(bucket["elements"]), 64 // {"bf16": 2, "fp64": 8}.get(
                values.name(bucket["dtype"]), 4)
            shard = -(-(-(-elements // ranks)) // line) * line  # as ShardLayout::shard_elements()
            names = ", ".join(values.string(entry["parameter"]["name"])
                              for entry in values.vector(bucket["entries"]))
            yield f"bucket {b}", f"{elements} elements, shards of {shard}, " \
                                 f"{shard * ranks - elements} of padding: {names}"


def shard_range_text(value):
    begin, count = int(value["begin"]), int(value["count"])
    return f"elements [{begin}, {begin + count})" if count else "no elements"


PRINTERS = {
    "collectives::ChunkRange": words(values.chunks_text),
    "collectives::Chunks": words(chunks_text),
    "collectives::Send": words(values.send_text),
    "collectives::Receive": words(values.receive_text),
    "collectives::Step": words(values.step_text),
    "collectives::Schedule": SchedulePrinter,
    "collectives::RankState": RankStatePrinter,
    "collectives::Label": words(values.label),
    "collectives::Call": CallPrinter,
    "collectives::Work": WorkPrinter,
    "ddp::ScopedWork": ScopedWorkPrinter,
    "autograd::Tensor": TensorPrinter,
    "ddp::Bucket": BucketPrinter,
    "ddp::BucketEntry": words(entry_text),
    "zero::ShardLayout": ShardLayoutPrinter,
    "zero::ShardRange": words(shard_range_text),
}


def register(objfile=None):
    collection = gdb.printing.RegexpCollectionPrettyPrinter("ringside")
    for type_name, printer in PRINTERS.items():
        collection.add_printer(type_name, f"^ringside::{type_name}$", printer)
    gdb.printing.register_pretty_printer(objfile, collection, replace=True)
