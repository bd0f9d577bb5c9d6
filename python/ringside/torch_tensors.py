"""Tensors as the library takes them: what may be passed, the memory that it reads and writes, and how
results come back. For torch_backend.py.
"""

import functools

import torch
import torch.distributed as dist

from ringside import library as lib

TYPES = {
    torch.float32: lib.FP32,
    torch.float64: lib.FP64,
    torch.int32: lib.INT32,
    torch.int64: lib.INT64,
    torch.float16: lib.FP16,
    torch.bfloat16: lib.BF16,
    torch.uint8: lib.UINT8,
    torch.int8: lib.INT8,
    torch.int16: lib.INT16,
    torch.bool: lib.BOOL,
}
RedOp = dist.ReduceOp.RedOpType
OPS = {
    RedOp.SUM: lib.SUM,
    RedOp.PRODUCT: lib.PRODUCT,
    RedOp.MIN: lib.MIN,
    RedOp.MAX: lib.MAX,
    RedOp.AVG: lib.AVG,
    RedOp.BAND: lib.BIT_AND,
    RedOp.BOR: lib.BIT_OR,
    RedOp.BXOR: lib.BIT_XOR,
    RedOp.PREMUL_SUM: lib.SUM,
}


def contiguous(tensor):
    """The tensor where the library can use its memory, or a copy."""
    if tensor.is_contiguous() and not tensor.is_conj() and not tensor.is_neg():
        return tensor
    return tensor.resolve_conj().resolve_neg().contiguous()


def flat(tensors):
    """The elements of all tensors, one after the other."""
    return torch.cat([tensor.reshape(-1) for tensor in tensors])


def memory_for(tensors):
    """Memory for the elements of all tensors, one after the other."""
    return torch.empty(sum(tensor.numel() for tensor in tensors), dtype=tensors[0].dtype)


def copy_of_results(memory, outputs):
    """A function that copies what a call wrote, to the last of `memory`, to the tensors that its
    caller has. None where that is the same memory."""
    if not memory or (len(outputs) == 1 and memory[-1] is outputs[0]):
        return None
    return functools.partial(split_into, outputs, memory[-1])


def split_into(tensors, used):
    begin = 0
    for tensor in tensors:
        end = begin + tensor.numel()
        tensor.detach().copy_(used.view(-1)[begin:end].view(tensor.shape))
        begin = end


def moved(tensor):
    """(address, elements, type) of a contiguous tensor that is moved, not reduced."""
    type = TYPES.get(tensor.dtype)
    if type is None:
        return tensor.data_ptr(), tensor.numel() * tensor.element_size(), lib.UINT8
    return tensor.data_ptr(), tensor.numel(), type


def elements(tensor):
    """The numbers that are reduced: a complex number is two."""
    return tensor.numel() * (2 if tensor.is_complex() else 1)


def numbers(tensor):
    """(address, elements, type) of a contiguous tensor that is reduced."""
    type = tensor.real.dtype if tensor.is_complex() else tensor.dtype
    return tensor.data_ptr(), elements(tensor), TYPES[type]


def reduced(tensor, reduce_op, only_read=False):
    """A contiguous tensor to reduce in place of `tensor`, which may be the same, and the library's
    operation."""
    require_cpu(tensor)
    op = OPS.get(reduce_op.op if hasattr(reduce_op, "op") else reduce_op)
    if op is None:
        raise NotImplementedError(f"ringside has no {reduce_op}: use another operation")
    scaled = getattr(reduce_op, "op", None) == RedOp.PREMUL_SUM
    if tensor.is_complex():
        if op not in (lib.SUM, lib.AVG):
            raise NotImplementedError("ringside adds and averages complex numbers only")
    elif tensor.dtype not in TYPES:
        raise NotImplementedError(f"ringside does not reduce {tensor.dtype}: convert it first")
    used = contiguous(tensor)
    if scaled:
        used = used.clone() if only_read and used is tensor else used
        used.detach().mul_(reduce_op.__getstate__()[1])  # the factor, by a way that torch 2.11 has
    return used, op


def require_cpu(tensor):
    if tensor.layout != torch.strided:
        raise NotImplementedError(
            f"ringside reduces and moves dense tensors, not {tensor.layout}: call to_dense() first"
        )
    if tensor.device.type != "cpu":
        raise RuntimeError(
            f"ringside moves tensors on the CPU, not on {tensor.device}: give the "
            'GPU a group of its own, new_group(backend="nccl")'
        )


def require_alike(outputs, inputs):
    """Tensors of one type on the CPU."""
    first, *others = *outputs, *inputs
    require_cpu(first)
    for tensor in others:
        require_cpu(tensor)
        if tensor.dtype != first.dtype:
            raise TypeError(f"expected tensors of one type, got {tensor.dtype} and {first.dtype}")


def require_length(name, tensor, elements):
    if tensor.numel() != elements:
        raise ValueError(
            f"{name}: expected a tensor of {elements} elements, got "
            f"{tensor.numel()}, shape {tuple(tensor.shape)}"
        )
