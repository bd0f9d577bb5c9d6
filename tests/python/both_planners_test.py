"""The planner in Python answers as the one in C++ does: random plans give the same JSON, or the
same sentence. RINGSIDE_LAB names the program, RINGSIDE_PLANS how many plans are compared (300).

    both_planners_test.py CASE ...     the functions test_CASE below; without CASE all
"""
import contextlib
import io
import json
import math
import os
import random
import subprocess
import sys
import tempfile
from pathlib import Path

from ringside.command_line import run_command
from ringside.lab.account import COMMAND
from ringside.planning.machine import machine_names
from ringside.planning.model import find_model, model_names, size_names
from ringside.planning.plan import schedule_names, takes_chunks

LAB = os.environ.get("RINGSIDE_LAB", "ringside-lab")
PLANS = int(os.environ.get("RINGSIDE_PLANS", "300"))
SIZES = [1, 1, 2, 2, 3, 4, 4, 8, 16]


def random_machine(rng, folder):
    """A file with a machine of one to four levels."""
    device = {"peak_tflops": rng.choice([0.05, 312, 989.4]), "memory_gb": rng.choice([8, 80, 192]),
              "memory_gbps": rng.choice([30, 3352]), "kernel_us": rng.choice([0, 4.5]),
              "memory_efficiency": rng.choice([1, 0.7]), "overlap": rng.choice([0, 0.5, 1])}
    if rng.random() < 0.5:
        device["matmul_efficiency_by_width"] = [{"width": width, "efficiency": width / 5000}
                                                for width in (64, 300, 2048)]
    levels, group = [], 1
    for i in range(rng.randint(1, 4)):
        group *= rng.choice([2, 4, 6, 16]) if i else rng.choice([4, 8, 8, 72])
        level = {"name": f"level {i}", "group": group, "gbps": rng.choice([12.5, 50, 450])}
        for key, values in (("us", [0, 3.5]), ("efficiency", [1, 0.8]),
                            ("in_network_efficiency", [0.6])):
            if rng.random() < 0.5:
                level[key] = rng.choice(values)
        if i and rng.random() < 0.4:
            level["oversubscription"] = rng.choice([1, 2, 7])
        if i and rng.random() < 0.4:
            level["rails"] = rng.choice([True, False])
        levels.append(level)
    levels[-1]["group"] = max(group, rng.choice([64, 4096]))
    if len(levels) > 1 and levels[-1]["group"] == levels[-2]["group"]:
        levels.pop()
    path = Path(folder, f"machine-{rng.random()}.json")
    path.write_text(json.dumps({"source": "random", "device": device, "levels": levels}))
    return str(path)


def random_model(rng, folder):
    """A file with the config.json of a model of any family, all of whose keys both planners
    read."""
    heads = rng.choice([4, 8, 12, 16])
    config = {"model_type": rng.choice(["llama", "qwen3", "qwen3_moe", "mixtral", "gpt2"]),
              "vocab_size": rng.choice([1000, 50257, 128256]), "hidden_size": heads * 64,
              "intermediate_size": rng.choice([512, 1536, 4096]), "num_attention_heads": heads,
              "num_hidden_layers": rng.randint(2, 40), "head_dim": rng.choice([64, 96]),
              "num_key_value_heads": rng.choice([each for each in (1, 2, 4) if heads % each == 0]),
              "max_position_embeddings": rng.choice([512, 4096]),
              "tie_word_embeddings": rng.choice([True, False])}
    if config["model_type"] == "llama":
        config.update(attention_bias=rng.choice([True, False]), mlp_bias=rng.choice([True, False]))
    if config["model_type"] == "qwen3":
        config["attention_bias"] = rng.choice([True, False])
    if config["model_type"] == "mixtral":
        config.update(num_local_experts=8, num_experts_per_tok=2)
    if config["model_type"] == "qwen3_moe":
        config.update(num_experts=16, num_experts_per_tok=4, moe_intermediate_size=256)
    if config["model_type"] == "gpt2":
        config = {"model_type": "gpt2", "vocab_size": 50257, "n_embd": heads * 32, "n_head": heads,
                  "n_layer": rng.randint(2, 30), "n_positions": rng.choice([256, 1024])}
        if rng.random() < 0.5:
            config["attn_implementation"] = rng.choice(["eager", "sdpa"])
    path = Path(folder, f"model-{rng.random()}.json")
    path.write_text(json.dumps(config))
    return str(path)


def random_plan(rng, folder):
    """The words of a plan. Most fit together; some of the others are wrong in one way or more."""
    model = random_model(rng, folder) if rng.random() < 0.25 else \
        rng.choice(size_names() + 2 * model_names())
    known = find_model(model)
    words = ["--model", model, "--machine",
             random_machine(rng, folder) if rng.random() < 0.4 else rng.choice(machine_names())]
    wild = rng.random() < 0.15  # sizes that need not divide the model
    axes = ["pp", "dp", "fsdp", "cp", "tp", "ep"]
    rng.shuffle(axes)
    sizes = {}
    for axis in axes[:rng.randint(0, 5)]:
        allowed = {"tp": known.heads or 8, "ep": known.experts.routed if known.experts else 1,
                   "cp": 16 if known.kind == "llama" else 1,
                   "pp": 16 if known.has_blocks else 1}.get(axis)
        size = rng.choice(SIZES)
        if wild or allowed is None or (allowed % size == 0 and known.has_blocks) or axis == "pp":
            sizes[axis] = min(size, allowed) if axis == "pp" and not wild else size
    if sizes:
        words += ["--mesh", ",".join(f"{axis}={size}" for axis, size in sizes.items())]
    pp, schedule = sizes.get("pp", 1), rng.choice(schedule_names())
    micro_batches = rng.randint(1, 40)
    if rng.random() < 0.8:
        words += ["--schedule", schedule]
        if takes_chunks(schedule) and known.layers:
            words += ["--chunks", str(rng.randint(1, max(1, min(4, known.layers // pp))))]
        if "interleaved" in schedule and not wild:
            micro_batches = pp * rng.randint(1, 6)
    if rng.random() < 0.2:
        words += ["--batch", str(micro_batches * math.prod(sizes.get(axis, 1) for axis in
                                                           ("dp", "fsdp", "ep")) + wild)]
    else:
        words += ["--micro-batches", str(micro_batches)]
    if rng.random() < 0.7:
        words += ["--sequence", str(rng.choice([64, 100, 512, 2048, 4096, 32768]))]
    options = {"--micro-batch": [1, 2, 4, 7], "--zero": [0, 1, 2, 3], "--imbalance": [1, 1.3, 4],
               "--recompute": ["none", "selective", "full", "every=2", "every=7", "nested=4,2"],
               "--context": ["ring", "all_gather", "ulysses"], "--overlap": [0, 0.3, 1],
               "--token-order": ["contiguous", "zigzag"], "--memory": ["1GB", "80GB", "64GiB"],
               "--parameters": ["bf16", "fp32"], "--gradients": ["bf16", "fp32"],
               "--activations": ["bf16", "fp32"], "--tokens": ["15T", "3e9", "7B"]}
    for option, values in options.items():
        if rng.random() < 0.3:
            words += [option, str(rng.choice(values))]
    if rng.random() < 0.2 and (wild or sizes.get("tp", 1) > 1):
        words.append("--sequence-parallel")
    if rng.random() < 0.3:
        words.append("--fused-gradients")
    if rng.random() < 0.2:
        words += ["--torus", "fsdp=2,tp=1"]
    if rng.random() < 0.1:
        words.append("--explain")
    return words


def of_program(words):
    done = subprocess.run([LAB, "account", *words], capture_output=True, text=True)
    return done.returncode, done.stdout, done.stderr


def of_python(words):
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = run_command(COMMAND, words)
    return code, out.getvalue(), err.getvalue()


def differences(a, b, place=""):
    """Where two JSON values differ by more than 1e-12 of their size, or in kind or order."""
    if isinstance(a, dict) and isinstance(b, dict):
        if list(a) != list(b):
            return [f"{place}: keys {list(a)} and {list(b)}"]
        return [each for key in a for each in differences(a[key], b[key], f"{place}.{key}")]
    if isinstance(a, list) and isinstance(b, list):
        if len(a) != len(b):
            return [f"{place}: {len(a)} and {len(b)} elements"]
        return [each for i in range(len(a)) for each in differences(a[i], b[i], f"{place}[{i}]")]
    if a is None and b == 0 or "nan" in str(a):  # C++: blocks in flight of a rank without blocks
        return []
    if isinstance(a, float) and isinstance(b, float):
        return [] if abs(a - b) <= 1e-12 * max(abs(a), abs(b)) else [f"{place}: {a!r} and {b!r}"]
    return [] if type(a) is type(b) and a == b else [f"{place}: {a!r} and {b!r}"]


def test_random_plans_have_the_same_figures_and_sentences():
    rng = random.Random(int(os.environ.get("RINGSIDE_SEED", "1")))
    refused, wrong = 0, []
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(PLANS):
            words = [*random_plan(rng, folder), "--json", "-"]
            theirs, ours = of_program(words), of_python(words)
            refused += theirs[0] != 0
            if theirs[0] != ours[0]:
                found = [f"exit codes {theirs[0]} and {ours[0]}", theirs[2][-300:], ours[2][-300:]]
            elif theirs[2] != ours[2]:  # the table, or the sentence
                found = [f"{a!r}, not {b!r}" for a, b in
                         zip(ours[2].splitlines(), theirs[2].splitlines()) if a != b]
            else:
                found = differences(json.loads(theirs[1] or "0"), json.loads(ours[1] or "0"))
            if found:
                wrong.append(f"ringside account {' '.join(words)}\n    " + "\n    ".join(found[:5]))
    print(f"{PLANS} plans, {refused} of them refused with the same sentence, {len(wrong)} differ")
    assert not wrong, "\n".join(wrong[:10])
    assert PLANS // 50 < refused < PLANS // 2


def test_meshes_that_fit_the_list_and_the_help_are_the_same():
    for words in (["--model", "llama3-8b", "--devices", "8"], ["--model", "lab", "--devices", "6"],
                  ["--model", "xxl", "--devices", "16", "--memory", "1GiB"],
                  ["--model", "mixtral-8x7b", "--devices", "4", "--machine", "b200", "--tokens",
                   "3T"],
                  ["--model", "korthikanti-22b", "--devices", "8", "--machine", "a100",
                   "--explain"], ["--model", "llama3-8b", "--devices", "7", "--batch", "3"],
                  ["--model", "deepseek-v3"], ["--model", "tiny", "--devices", "100000"]):
        theirs, ours = (run([*words, "--fit", "--json", "-"]) for run in (of_program, of_python))
        assert theirs[0] == ours[0] and theirs[2] == ours[2], (words, theirs[2], ours[2])
        found = differences(json.loads(theirs[1] or "0"), json.loads(ours[1] or "0"))
        assert not found, (words, found[:5])
    assert of_program(["--list"]) == of_python(["--list"])


# Each after --model tiny, unless it names a model.
WRONG = """
--model llama4; --model lama3-8b; --model /etc/passwd; --model /; --machine a1000
--machine /etc/passwd; --machine /tmp; --mesh dp=2,dp=2; --mesh xp=2; --mesh dp; --mesh dp=0
--mesh dp=1000000,tp=2; --mesh dp=9999999; --mesh dp=2,; --mesh dp=1000 --machine laptop
--schedule 1f2b; --schedule interleavd --mesh pp=2; --chunks 0; --chunks x; --micro-batch 1.5
--micro-batches -3; --micro-batches 99999999999; --zero 4; --zero one; --recompute every=0
--recompute nested=2,2; --recompute fll; --imbalance 0.5; --imbalance x; --overlap 2
--context rng; --token-order zag; --parameters fp8; --memory 0B; --memory 80cards; --tokens 0
--tokens 15Q; --tokens -3B; --fit --devices 0; --fit --devices 1000000; --fit --batch 0
--torus dp=2; --torus fsdp; --modl tiny; --model; --chunks 2 --chunks 3; stray; --json
--html /none/x.html; --json /none/x.json; --sequence 1e3; --sequence 1e12; --batch 7 --mesh dp=2
--model deepseek-v3 --fit; --model deepseek-v3 --mesh ep=3; --model deepseek-v3 --mesh tp=2
--sequence-parallel --mesh tp=2 --sequence 3; --mesh cp=3 --sequence 64
"""


def test_wrong_arguments_have_the_same_sentences():
    for line in WRONG.replace("\n", ";").split(";"):
        words = line.split() if "--model " in line else ["--model", "tiny", *line.split()]
        theirs, ours = of_program(words), of_python(words)
        assert not line or theirs[0] != 0, words
        assert theirs == ours, (words, theirs, ours)


if __name__ == "__main__":
    for name in sys.argv[1:] or [each[5:] for each in list(globals()) if each.startswith("test_")]:
        globals()["test_" + name]()
