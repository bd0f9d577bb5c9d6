"""Which meshes a model fits on, and how fast each would be."""

import itertools
import math
from dataclasses import dataclass, field
from typing import Callable, Iterable, Iterator, List, Optional, Tuple

from ringside.planning.accounting import Account, account
from ringside.planning.json_fields import require
from ringside.planning.machine import Machine
from ringside.planning.memory import memory_of_stages
from ringside.planning.mesh import Mesh
from ringside.planning.model import Model, on_mesh
from ringside.planning.plan import (
    Plan,
    Types,
    objections,
    recomputation_from,
    schedule_names,
    takes_chunks,
)
from ringside.planning.quantity import values_only

RECOMPUTATIONS = [recomputation_from(name) for name in ("none", "selective", "full")]


@dataclass(frozen=True)
class FitOptions:
    devices: int = 8
    batch: int = 8  # sequences of a step, over all ranks
    sequence: int = 1024  # tokens
    types: Types = Types()


@dataclass
class Fit:
    tried: int = 0  # plans that divide the model, the batch and the devices
    accounts: List[Account] = field(default_factory=list)  # those that fit, the fastest first
    least_memory: float = math.inf  # of all plans: bytes of the rank that needs most


def _divisors_of(number: int) -> List[int]:
    return [i for i in range(1, number + 1) if number % i == 0]


def _mesh_of(**sizes: int) -> Mesh:
    return Mesh(tuple((axis, size) for axis, size in sizes.items() if size > 1))


def meshes_of(machine: Machine, devices: int) -> List[Mesh]:
    """Every mesh of dp, fsdp, tp and pp. Tensor parallel stays within the innermost level of the
    network."""
    meshes, server = [], machine.levels[0].group
    for tp in _divisors_of(devices):
        for pp in _divisors_of(devices // tp) if tp <= server else ():
            # Either all data ranks shard the parameters, or none does, or those of one server do.
            data, inner = devices // tp // pp, server // tp
            meshes.append(_mesh_of(pp=pp, dp=data, tp=tp))
            if data > 1:
                meshes.append(_mesh_of(pp=pp, fsdp=data, tp=tp))
            if 1 < inner < data and data % inner == 0:
                meshes.append(_mesh_of(pp=pp, dp=data // inner, fsdp=inner, tp=tp))
    return meshes


def plans_of(mesh: Mesh, options: FitOptions) -> Iterator[Plan]:
    """Micro-batches of 1, 2, 4, ...; ZeRO stages 0 to 2; each recomputation; every schedule of a
    pipeline, with 2 and 4 chunks where it takes them; with and without sequence parallel. Only
    those that divide the batch."""
    schedules = schedule_names() if mesh.size("pp") > 1 else ["1f1b"]
    chunked = [(name, v) for name in schedules for v in ((2, 4) if takes_chunks(name) else (1,))]
    sizes = [1 << i for i in range(options.batch.bit_length())]
    for (schedule, chunks), zero, recompute, sequence_parallel, b in itertools.product(
        chunked, range(3 if mesh.size("dp") > 1 else 1), RECOMPUTATIONS, (False, True), sizes
    ):
        m, rest = divmod(options.batch, mesh.data_ranks() * b)
        if m >= 1 and rest == 0:
            shape = (mesh, schedule, chunks, b, m, options.sequence)
            savings = dict(zero=zero, recompute=recompute, sequence_parallel=sequence_parallel)
            yield Plan(*shape, types=options.types, **savings)


def _fastest(
    model: Model, machine: Machine, mesh: Mesh, options: FitOptions, found: Fit
) -> Optional[Plan]:
    """The fastest plan on this mesh that fits."""
    best: Tuple[float, Optional[Plan]] = (math.inf, None)
    placed = on_mesh(model, mesh.size("ep"))
    for plan in plans_of(mesh, options):
        if any(objections(plan, model)):
            continue
        found.tried += 1
        memory = max(stage.total() for stage in memory_of_stages(placed, plan))
        found.least_memory = min(found.least_memory, memory)
        if memory <= machine.memory:
            seconds = account(model, plan, machine).step_seconds
            if seconds < best[0]:
                best = (seconds, plan)
    return best[1]


def fit(
    model: Model,
    machine: Machine,
    options: FitOptions,
    watched: Callable[[List[Mesh]], Iterable[Mesh]] = iter,
) -> Fit:
    """The best plan of each mesh. `watched` passes the meshes on, one by one."""
    require(
        model.has_blocks,
        f"only the state of {model.name} can be accounted for, so no plan can be tried",
    )
    machine.level_for(options.devices)
    found, meshes = Fit(), meshes_of(machine, options.devices)
    with values_only():
        best = [_fastest(model, machine, mesh, options, found) for mesh in watched(meshes)]
    require(
        found.tried > 0,
        f"no mesh of {options.devices} devices divides {model.name} and a "
        f"batch of {options.batch} sequences: choose another --batch, a multiple of the number "
        "of data-parallel ranks",
    )
    found.accounts = sorted(
        (account(model, plan, machine) for plan in best if plan), key=lambda each: each.step_seconds
    )
    return found
