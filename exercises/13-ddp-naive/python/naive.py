"""Data parallelism, first version: one all-reduce for each gradient, after backward."""
import torch
import torch.distributed as dist


def replicate(module: torch.nn.Module) -> None:
    """Copies parameters and buffers of rank 0 to all ranks, frozen parameters too."""
    for tensor in [*module.parameters(), *module.buffers()]:
        dist.broadcast(tensor.detach(), src=0)


class DDP(torch.nn.Module):
    """A module on every rank, whose gradients are averaged over the ranks."""

    def __init__(self, module: torch.nn.Module):
        """Makes the ranks equal before the first step."""
        super().__init__()
        self.module = module
        replicate(module)

    def forward(self, *inputs, **kwargs):
        return self.module(*inputs, **kwargs)

    def finish_gradient_synchronization(self) -> None:
        """After backward, in each step: replaces each gradient by its mean over all ranks. A parameter without a gradient on every
        rank stays without one. If only some ranks have it, raises RuntimeError with the parameter's name."""
        for name, parameter in self.module.named_parameters():
            if parameter.grad is None:
                continue
            try:
                dist.all_reduce(parameter.grad)
            except RuntimeError as error:
                raise RuntimeError(f"the gradient of {name}: {error}") from error
            parameter.grad /= dist.get_world_size()
