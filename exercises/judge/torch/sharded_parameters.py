"""What the cases of sharded parameters do in a rank: the net and the steps of exercises/judge/zero/block_net_step.cpp, in torch.

`make` is the student's class FSDP(module, compute_dtype=None).
"""
import torch
from data_parallel import as_json, backward, layer_of, register_hook, tensor_of
from ledger import Ledger, size_of, storage_of
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

VOCABULARY, TOKENS, STEPS = 11, 4, 3
PLAIN, TIED, DEEP, RECOMPUTED, WITHOUT_HISTORY, MIXED = ({}, {"tied": True}, {"depth": 10, "width": 32}, {"recompute": True}, {"history": False}, {"mixed": True})


class Block(torch.nn.Module):
    def __init__(self, told):
        super().__init__()
        self.inner = layer_of(told)

    def forward(self, x):
        h = self.inner(x)
        return x + functional.silu(h.to(wide(h))).to(h.dtype)


def wide(x):
    """The type in which a net computes what it does not compute in bf16."""
    return torch.float32 if x.dtype == torch.bfloat16 else x.dtype


class BlockNet(torch.nn.Module):
    """Embedding, blocks, and a root with norm and head."""

    def __init__(self, witness, depth=3, width=6, tied=False, recompute=False, history=True, mixed=False):
        super().__init__()
        told = witness.ask("blocks", VOCABULARY, width, depth)
        self.recompute = recompute
        self.embed = torch.nn.Embedding(VOCABULARY, width, dtype=torch.float64)
        self.layers = torch.nn.ModuleList(map(Block, told["layers"]))
        self.norm = torch.nn.RMSNorm(width, eps=1e-5, dtype=torch.float64)
        self.head = torch.nn.Linear(width, VOCABULARY, bias=False, dtype=torch.float64)
        with torch.no_grad():
            self.embed.weight.copy_(tensor_of(told["embed"]).view(VOCABULARY, width))
            self.head.weight.copy_(tensor_of(told["head"]).view(VOCABULARY, width))
        if tied:
            self.head.weight = self.embed.weight
        if mixed:  # numbers of bf16 in fp32
            self.to(torch.float32)
            with torch.no_grad():
                for each in self.parameters():
                    each.copy_(each.to(torch.bfloat16))

    def forward(self, ids):
        x = self.embed(ids)
        for block in self.layers:
            # As checkpoint() of C++, which computes again where backward reaches the block.
            x = checkpoint(block, x, use_reentrant=True) if self.recompute and torch.is_grad_enabled() else block(x)
        y = self.head(self.norm(x.to(wide(x))).to(x.dtype))
        return y.to(wide(y))


def batch_of(witness, step, like):
    ids, target = witness.ask("tokens", step, VOCABULARY, TOKENS)
    return torch.tensor(ids), tensor_of(target).view(TOKENS, VOCABULARY).to(like)


def training(witness, make, rank, options):
    """The whole gradients of each step, and the parameters at the end, as rank 0 sees them; and the bytes that all-gathers carry in the last step."""
    mixed = options.get("mixed", False)
    net = BlockNet(witness, **options)
    model, seen = make(net, torch.bfloat16 if mixed else None), []
    whole = lambda tensors: {name: as_json(each) for name, each in tensors.items()} if rank == 0 else {}
    for step in range(STEPS):
        witness.doing(f"step {step}")
        ids, target = batch_of(witness, step, torch.float32 if mixed else torch.float64)
        witness.mark("clear")
        backward(functional.mse_loss(model(ids), target))
        model.finish_gradient_synchronization()
        gathered = witness.mark("gathered")
        seen.append(whole(model.gather_full_gradients()))
        with torch.no_grad():
            for shard in model.parameters():
                if shard.grad is not None:
                    shard -= (1e-4 if mixed else 0.1) * shard.grad
                    shard.grad = None
    return [*seen, whole(model.gather_full_params()), {"gathered": gathered}]


def layers_of(net):
    """What is entered: {name: module}."""
    return {"embed": net.embed, **{f"layers.{i}": each for i, each in enumerate(net.layers)}, "norm": net.norm, "head": net.head}


def units_in_memory(net):
    """Those with a parameter whose memory exists now, whatever the student's class says: in the order of backward."""
    units = {"root": net.norm, **{f"layers.{i}": net.layers[i] for i in reversed(range(len(net.layers)))}}
    if net.head.weight is not net.embed.weight:
        units["embed"] = net.embed
    return [name for name, module in units.items() if any(size_of(storage_of(each)) for each in module.parameters())]


def step(witness, make, options):
    """One step: the units in memory when forward and backward reach each layer, all calls, and the most memory. That of parameters is what
    the student's class keeps between steps, and what is whole."""
    events, error, whole = [], "", [0]
    note = lambda what: events.append({"what": what, "in memory": units_in_memory(net)})

    def watch():
        storages = {each._cdata: each for each in map(storage_of, parameters)}
        whole.append(sum(map(size_of, storages.values())))

    parameters = []
    with Ledger(watch) as ledger:
        before = ledger.bytes()
        net = BlockNet(witness, **options)
        model = make(net, None)
        parameters += net.parameters()
        at_rest = ledger.bytes() - before
        for name, module in layers_of(net).items():
            module.register_forward_pre_hook(lambda *_, name=name: note(f"forward of {name}"))
            module.register_forward_hook(lambda _, inputs, y, name=name: hook_backward(y, lambda: note(f"backward of {name}")))
        ids, target = batch_of(witness, 0, torch.float64)
        witness.doing("one step")
        witness.barrier()
        witness.mark("clear")
        whole[:], ledger.most = [0], 0
        try:
            if options.get("history", True):
                backward(functional.mse_loss(model(ids), target))
                model.finish_gradient_synchronization()
            else:
                with torch.no_grad():
                    model(ids)
            note("end")
            witness.barrier()
        except RuntimeError as raised:  # the calls that were made explain it
            error = str(raised)
        return {"events": events, "calls": witness.mark("whole_calls"), "error": error, "sent": witness.mark("sent"),
                "peak": at_rest + max(whole), "peak of all": ledger.most - before}


def hook_backward(y, function):
    if y.requires_grad:
        register_hook(y, lambda _: function())


def peak_of_all(witness, options, size):
    """What a step needs that has whole parameters and gradients only in units, by one that has all of them: activations, shards of both, two
    units of parameters, three of gradients."""
    net = BlockNet(witness, **options)
    rest = []

    def watch():
        theirs = [each.grad for each in parameters if each.grad is not None]
        rest.append(sum(ledger.sizes()) - sum(each.nbytes for each in [*parameters, *theirs]))

    parameters = list(net.parameters())
    unit = max(sum(each.nbytes for each in module.parameters()) for module in [net.layers[0], torch.nn.ModuleList([net.norm, net.head])])
    with Ledger(watch) as ledger:
        ids, target = batch_of(witness, 0, torch.float64)
        backward(functional.mse_loss(net(ids), target))
    return max(rest) + 2 * sum(each.nbytes for each in parameters) // size + 5 * unit
