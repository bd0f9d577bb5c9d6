"""What the cases of judge.cpp do in a rank with an answer in torch."""
import math

import torch
from data_parallel import numbers

WIDTH = 8


def as_json(tensor):
    """null where a number is not finite."""
    return [each if math.isfinite(each) else None for each in numbers(tensor)]


def fp32(values, columns):
    return torch.tensor(values, dtype=torch.float32).view(-1, columns)


def route(witness, student, rank, size):
    seen = []
    for each in witness.ask("router_cases"):
        routing = student.route(fp32(each["logits"], each["experts"]), each["per_token"])
        seen.append({"chosen": numbers(routing.chosen), "weights": as_json(routing.weights)})
    return seen


def computed(layer, rows, transposed):
    """What the experts of this rank make of the rows for them, in fp64. Whatever the student returns: so many rows that all ranks go on."""
    whole, begin = torch.zeros(sum(layer["rows"]) * WIDTH, dtype=torch.float64), 0
    given = rows.detach().flatten()[:len(whole)].double()
    whole[:len(given)] = given
    whole, outputs = whole.view(-1, WIDTH), []
    for matrix, count in zip(layer["matrices"], layer["rows"]):
        matrix = torch.tensor(matrix, dtype=torch.float64)
        outputs.append(whole[begin:begin + count] @ (matrix if transposed else matrix.T))
        begin += count
    return torch.cat(outputs).float()


def tokens(witness, student, layer, until):
    """The functions up to `until`, on the tokens of a setting."""
    seen, experts, per_token = {"sent": {}}, layer["experts"], layer["per_token"]
    x, dy, weights = fp32(layer["x"], WIDTH), fp32(layer["dy"], WIDTH), fp32(layer["weights"], per_token)
    chosen = torch.tensor(layer["chosen"], dtype=torch.int64).view(-1, per_token)

    def noted(function, *arguments):
        witness.doing(f"{function}, '{layer['name']}' tokens")
        witness.barrier()
        witness.mark("clear")
        result = getattr(student, function)(*arguments)
        seen["sent"][function] = witness.mark("sent")
        return result

    plan = noted("plan_dispatch", chosen, experts)
    seen["to"], seen["from"] = ([int(each) for each in numbers(rows)] for rows in (plan.to, plan.from_))
    if until == "counts":
        return seen
    rows = noted("dispatch", x, plan)
    seen["rows"] = as_json(rows)
    if until == "dispatch":
        return seen
    combined = noted("combine", computed(layer, rows, transposed=False), weights, plan)
    seen["y"] = as_json(combined.y)
    if until == "combine":
        return seen
    gradients = noted("combine_backward", dy, weights, combined.kept, plan)
    seen["doutputs"], seen["dweights"] = as_json(gradients.outputs), as_json(gradients.weights)
    seen["dx"] = as_json(noted("dispatch_backward", computed(layer, gradients.outputs, transposed=True), plan))
    seen["dlogits"] = as_json(student.route_backward(student.Routing(chosen, weights), fp32(layer["dweights"], per_token), experts))
    return seen


def until(function):
    return lambda witness, student, rank, size: [tokens(witness, student, witness.ask("expert_layer", number), function) for number in range(witness.ask("expert_settings"))]


CASES = {"route": route, "counts": until("counts"), "dispatch": until("dispatch"), **dict.fromkeys(("combine", "bytes"), until("combine")),
         **dict.fromkeys(("gradients", "gradient-bytes"), until("backward"))}
