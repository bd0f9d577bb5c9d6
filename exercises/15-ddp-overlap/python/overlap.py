"""Data parallelism, third version: the all-reduce of a gradient starts as soon as the gradient is complete, while backward computes
those of the layers below."""
import contextlib

import torch
import torch.distributed as dist


class DDP(torch.nn.Module):
    """A module on every rank, whose gradients are averaged over the ranks while backward runs."""

    def __init__(self, module: torch.nn.Module):
        """Makes the ranks equal, as in exercise 13, and adds a hook to each trained parameter."""
        super().__init__()
        self.module = module
        self.synchronizing = True
        self.held = {}  # parameters whose gradient came under no_sync(), in that order
        self.under_way = []  # the works of the calls that have started
        for tensor in [*module.parameters(), *module.buffers()]:
            dist.broadcast(tensor.detach(), src=0)
        for parameter in module.parameters():
            if parameter.requires_grad:
                parameter.register_post_accumulate_grad_hook(self.on_gradient)

    def forward(self, *inputs, **kwargs):
        return self.module(*inputs, **kwargs)

    @contextlib.contextmanager
    def no_sync(self):
        """Inside of it backward only adds gradients up on this rank."""
        self.synchronizing = False
        try:
            yield
        finally:
            self.synchronizing = True

    def on_gradient(self, parameter: torch.nn.Parameter) -> None:
        """In backward, when the gradient of a parameter is complete: starts its call, or holds it back under no_sync()."""
        if self.synchronizing:
            self.launch(parameter)
        else:
            self.held[parameter] = True

    def launch(self, parameter: torch.nn.Parameter) -> None:
        """Starts the all-reduce of the parameter's gradient, and returns at once."""
        self.held.pop(parameter, None)
        parameter.grad /= dist.get_world_size()
        self.under_way.append(dist.all_reduce(parameter.grad, async_op=True))

    def finish_gradient_synchronization(self) -> None:
        """After backward: waits until each gradient is the mean over all ranks. Starts the calls that were held back, and that the
        last backward did not reach."""
        for parameter in list(self.held):
            self.launch(parameter)
        for work in self.under_way:
            work.wait()
        self.under_way.clear()
