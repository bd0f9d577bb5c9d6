"""ZeRO's first stage, first version: every parameter has an owner, the only rank that keeps its optimizer state and updates it."""
import torch
import torch.distributed as dist


class ShardedOptimizer(torch.optim.Optimizer):
    """An optimizer of torch, `optimizer_cls`, of which each rank keeps about 1/p. Every rank must make it of the same parameters."""

    def __init__(self, params, optimizer_cls: type[torch.optim.Optimizer], **kwargs):
        self.optimizer_cls, self.kwargs = optimizer_cls, kwargs
        self.owners = {}  # the rank that owns each parameter
        self.owned_elements = [0] * dist.get_world_size()  # of each rank, over all groups
        self.local = None  # an optimizer_cls over what this rank owns; None while it owns nothing
        self.local_groups = []  # for each group the one that self.local has of it, or None
        super().__init__(params, kwargs)  # calls add_param_group() for each group

    def owner(self, parameter: torch.Tensor) -> int:
        """The rank that owns a parameter."""
        return self.owners[parameter]

    def add_param_group(self, param_group: dict) -> None:
        """Gives the parameters of a group their owners, and what this rank owns of it to self.local."""
        super().add_param_group(param_group)  # fills in what the group does not say
        group = self.param_groups[-1]
        self.choose_owners(group["params"])
        mine = {**group, "params": [each for each in group["params"] if self.owner(each) == dist.get_rank()]}
        if not mine["params"]:
            self.local_groups.append(None)  # torch makes no optimizer without parameters
            return
        if self.local is None:
            self.local = self.optimizer_cls([mine], **self.kwargs)
        else:
            self.local.add_param_group(mine)
        self.local_groups.append(self.local.param_groups[-1])

    def choose_owners(self, parameters: list[torch.Tensor]) -> None:
        """Adds the owner of each parameter to self.owners. A parameter is not divided; each rank should own about 1/p of the elements
        of all groups so far: self.owned_elements counts them."""
        # The largest first, each to the rank that owns the fewest elements so far.
        for parameter in sorted(parameters, key=torch.Tensor.numel, reverse=True):
            rank = self.owned_elements.index(min(self.owned_elements))
            self.owners[parameter] = rank
            self.owned_elements[rank] += parameter.numel()

    def step(self, closure=None, **kwargs):
        """Updates what this rank owns, with the rates that are set in self.param_groups; then each parameter comes from its owner."""
        loss = closure() if closure is not None else None
        for group, mine in zip(self.param_groups, self.local_groups):
            if mine is not None:
                mine.update({key: value for key, value in group.items() if key != "params"})
        if self.local is not None:
            self.local.step(**kwargs)
        for group in self.param_groups:
            for parameter in group["params"]:
                dist.broadcast(parameter.detach(), src=self.owner(parameter))
        return loss
