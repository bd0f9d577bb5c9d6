"""The ledger of a rank: the memory of torch's tensors, and the most there was.

    with Ledger() as ledger:
        ...                         the student's code
        ledger.bytes()              of all tensors that exist now
        ledger.most                 since the beginning, or since ledger.most = 0

A tensor's memory is its storage, which several may share. The ledger learns of a storage where an operation takes or makes it,
so it also knows those that autograd keeps in a graph; and where Python knows a tensor. It keeps none alive. What leads past
it, such as another thread, is refused in a student's file (AROUND_THE_LEDGER in ranks.py).
"""
import gc
import weakref

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

# As they were before the student's code came: whatever that makes of torch.Tensor, a tensor is found, and measured.
Tensor, collect_garbage, objects, refer = torch.Tensor, gc.collect, gc.get_objects, weakref.ref
storage_of, size_of = Tensor.untyped_storage, torch.UntypedStorage.nbytes
bytes_of, gradient_of, is_leaf = Tensor.nbytes.__get__, Tensor.grad.__get__, Tensor.is_leaf.__get__  # of a tensor


def tensors_that_python_knows():
    """Gradients belong to theirs, and are found through them."""
    collect_garbage()
    tensors = [each for each in objects() if issubclass(type(each), Tensor)]  # isinstance() asks proxies
    return tensors + [gradient for each in tensors if is_leaf(each) and (gradient := gradient_of(each)) is not None]


class Ledger(TorchDispatchMode):
    def __init__(self, after_each=None):
        """`after_each` is called after each operation."""
        super().__init__()
        self.storages = {}  # by address: the how many-th it is, and a weak reference
        self.count = self.most = 0
        self.after_each = after_each

    def __torch_dispatch__(self, function, types, arguments=(), options=None):
        result = function(*arguments, **(options or {}))
        self.learn(each for each in tree_leaves((arguments, options, result)) if isinstance(each, Tensor))
        self.most = max(self.most, sum(self.sizes()))
        if self.after_each:
            self.after_each()
        return result

    def learn(self, tensors):
        for tensor in tensors:
            storage = storage_of(tensor)
            _, found = self.storages.get(storage._cdata, (0, None))
            if found is None or found() is None:  # a new storage, perhaps at the address of an old one
                self.storages[storage._cdata] = self.count, refer(storage)
                self.count += 1

    def sizes(self, since=0):
        """Bytes of each storage that it has learnt of, from the `since`-th on, and that still exists; a storage may have changed its size."""
        living = [(address, number, storage) for address, (number, each) in self.storages.items() if (storage := each()) is not None]
        self.storages = {address: self.storages[address] for address, _, _ in living}
        return [size_of(storage) for _, number, storage in living if number >= since]

    def bytes(self):
        """Of all tensors that exist."""
        self.learn(tensors_that_python_knows())
        return sum(self.sizes())
