"""Experts on different ranks: tokens travel to the experts that they chose, and the outputs travel back. No expert has a capacity, so no
token is dropped; any number of rows may be 0.

    route -- plan_dispatch -- dispatch -- the experts -- combine -- y
    route_backward ---------- dispatch_backward -- the experts -- combine_backward -- dy

All ranks call the same functions in the same order. Letters: N tokens of this rank, K experts for each, E experts in all, n ranks.
Expert e is on rank e // (E/n). A choice is a token and one of its experts: choice c = t K + j is the j-th expert of token t.
"""
from __future__ import annotations

import dataclasses

import torch
import torch.distributed as dist


@dataclasses.dataclass
class Routing:
    """The experts of each token, the largest logit first, and their weights."""

    chosen: torch.Tensor  # [N, K], int64
    weights: torch.Tensor  # [N, K], those of a token add up to 1


@dataclasses.dataclass
class Plan:
    """Which rows travel where. A row is sent for each choice."""

    per_token: int  # K
    to: torch.Tensor  # [E]: rows that this rank has for expert e
    from_: torch.Tensor  # [E]: element r E/n + l: rows of rank r for expert l of this one
    # Yours: the judge does not read them.
    order: torch.Tensor | None = None  # the choices, in the order in which their rows are sent
    places: torch.Tensor | None = None  # row i of what arrives is row places[i] in the order of experts


@dataclasses.dataclass
class Combined:
    """What combine() returns."""

    y: torch.Tensor  # [N, width]
    kept: object  # yours: whatever combine_backward() needs


@dataclasses.dataclass
class CombineGradients:
    outputs: torch.Tensor  # of the rows that combine() got
    weights: torch.Tensor  # [N, K]


def route(logits: torch.Tensor, per_token: int) -> Routing:
    """logits [N, E] -> the K largest of each token, of equal ones the lower index first, and the softmax over these K."""
    chosen = torch.sort(logits, dim=1, descending=True, stable=True).indices[:, :per_token]
    return Routing(chosen, torch.softmax(logits.gather(1, chosen), dim=1))


def plan_dispatch(chosen: torch.Tensor, experts: int) -> Plan:
    """How many rows travel between this rank and the experts of all ranks, and in which order."""
    ranks, choices = dist.get_world_size(), chosen.flatten()
    to = torch.bincount(choices, minlength=experts)
    from_ = torch.empty_like(to)
    dist.all_to_all_single(from_, to)
    order = torch.argsort(choices, stable=True)
    expert_of_row = torch.arange(experts // ranks).repeat(ranks).repeat_interleave(from_)  # by rank, then by expert
    places = torch.argsort(torch.argsort(expert_of_row, stable=True))
    return Plan(chosen.shape[1], to, from_, order, places)


def dispatch(x: torch.Tensor, plan: Plan) -> torch.Tensor:
    """x [N, width] -> the rows for the experts of this rank, expert by expert: of expert l, those of all ranks, the sum over r of
    plan.from_[r E/n + l] rows."""
    sent = x.repeat_interleave(plan.per_token, dim=0)[plan.order]
    to, from_ = (rows.view(dist.get_world_size(), -1).sum(1).tolist() for rows in (plan.to, plan.from_))
    arrived = x.new_empty(sum(from_), x.shape[1])
    dist.all_to_all_single(arrived, sent, from_, to)
    rows = torch.zeros_like(arrived)
    rows[plan.places] = arrived
    return rows


def combine(outputs: torch.Tensor, weights: torch.Tensor, plan: Plan) -> Combined:
    """What the experts of this rank made of the rows of dispatch(), in the same order, and weights [N, K] of this rank's tokens ->
    y [N, width]: the sum over j of weight [t, j] times the output of the j-th expert of token t."""
    sent = outputs[plan.places]
    to, from_ = (rows.view(dist.get_world_size(), -1).sum(1).tolist() for rows in (plan.to, plan.from_))
    arrived = outputs.new_empty(sum(to), outputs.shape[1])
    dist.all_to_all_single(arrived, sent, to, from_)
    of_choices = torch.zeros_like(arrived)
    of_choices[plan.order] = arrived
    of_choices = of_choices.view(*weights.shape, outputs.shape[1])
    y = (weights[..., None] * of_choices).sum(1)
    return Combined(y, of_choices)


def combine_backward(dy: torch.Tensor, weights: torch.Tensor, kept: object, plan: Plan) -> CombineGradients:
    """dy [N, width], and what combine() kept -> the gradients of its outputs and weights."""
    of_choices = weights[..., None] * dy[:, None]
    dweights = (kept * dy[:, None]).sum(2)
    return CombineGradients(dispatch(of_choices.flatten(0, 1), dataclasses.replace(plan, per_token=1)), dweights)


def dispatch_backward(drows: torch.Tensor, plan: Plan) -> torch.Tensor:
    """The gradients of the rows of dispatch() -> dx [N, width]."""
    ones = torch.ones(len(plan.order) // plan.per_token, plan.per_token)
    return combine(drows, ones, plan).y


def route_backward(routing: Routing, dweights: torch.Tensor, experts: int) -> torch.Tensor:
    """The gradient of the weights [N, K] -> that of the logits [N, E]. The choice has none."""
    mean = (routing.weights * dweights).sum(1, keepdim=True)  # of the token's gradients, by weight
    of_chosen = routing.weights * (dweights - mean)
    return torch.zeros(len(dweights), experts).scatter(1, routing.chosen, of_chosen)
