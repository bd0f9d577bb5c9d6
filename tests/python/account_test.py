"""`ringside account` as a user sees it."""

import json
import math
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import ringside
from pages import figures_in, require_well_formed


def run(*words):
    return subprocess.run(
        [sys.executable, "-m", "ringside", "account", *words], capture_output=True, text=True
    )


def output_of(*words):
    done = run(*words)
    assert (done.stderr, done.returncode) == ("", 0), done.stderr
    assert max(map(len, done.stdout.splitlines())) <= 80
    return done.stdout


def error_of(*words, code=1):
    done = run(*words)
    assert (done.stdout, done.returncode) == ("", code), done.stdout
    return done.stderr


def figures_of(*words):
    return json.loads(run(*words, "--json", "-").stdout)


def test_explain_answers_the_questions_of_the_course():
    assert "at least 44 devices of 80" in output_of("--model", "xxl", "--memory", "80GB")
    devices = output_of("--model", "xxl", "--memory", "95GB", "--explain")
    for text in (
        "devices that hold the state, and nothing else\n",
        " = 38 devices\n",
        " = 61 devices\n",
    ):
        assert text in devices

    def bounds(mesh):
        return output_of(
            "--model",
            "xxl",
            "--mesh",
            mesh,
            "--machine",
            "tpu-v5p",
            "--torus",
            "fsdp=2,tp=1",
            "--explain",
        )

    told = bounds("fsdp=16,tp=4")
    for tokens in ("319.4", "395.3", "61.32"):
        assert f" = {tokens} tokens\n" in told
    # (d): all devices; accumulation in two micro-batches; twice the tensor parallel; the best mesh;
    # without overlap.
    smaller = told[told.index("\nA smaller batch: what helps, and what does not\n") :]
    figures = [line.split(" = ")[1] for line in smaller.splitlines() if line.endswith(" tokens")]
    assert figures == [f"{n} tokens" for n in ("20,444", "40,889", "10,222", "3,925", "25,302")]
    assert smaller.count("  no help: ") == 2 and smaller.count("  helps: ") == 3
    assert "    rate = 1 / (4 / 3)\n         = 75 %\n" in smaller
    assert " = inf tokens\n" in bounds("fsdp=4,tp=16")  # 32 ranks of tensor parallel are too many
    # Where tensor parallel alone takes longer than computing, no batch is large enough.
    assert " = inf" in bounds("fsdp=2,tp=32") and "Least batch" not in bounds("fsdp=64")


def test_tables_formulas_and_json_have_the_same_figures():
    plan = (
        "--model",
        "korthikanti-22b",
        "--mesh",
        "tp=8",
        "--machine",
        "a100",
        "--recompute",
        "full",
        "--micro-batch",
        "4",
    )
    table = output_of(*plan)
    assert "model    korthikanti-22b: 22,074,273,792 parameters" in table
    assert "What binds: matrix products" in table
    explained = output_of(*plan, "--explain")
    assert explained.startswith(table)
    assert (
        "    A_block = 2 s b h\n            = 2 x 2,048 x 4 x 6,144\n"
        "            = 100,663,296 B = 0.1007 GB\n"
        "    [Korthikanti et al. 2022, table 2]\n"
    ) in explained
    done = run(*plan, "--json", "-")
    told = json.loads(done.stdout)
    assert done.stderr == table and told["devices"] == 8
    assert told["stages"][0]["memory_bytes"]["activations"] == 4831838208.0
    assert any(line["symbol"] == "A" and line["value"] == 4831838208.0 for line in told["formulas"])


def test_every_model_and_machine_of_the_list_can_be_accounted_for():
    listed = output_of("--list")
    for model in ("tiny", "xl", "xxl", "llama3-405b", "deepseek-v3", "zero-7.5b", "megatron-1008b"):
        assert f"  {model}" in listed and output_of("--model", model)
    for machine in ("a100", "h100", "laptop", "llama3", "tpu-v5p"):
        assert f"\n  {machine:10}" in listed
        explained = output_of("--model", "lab", "--mesh", "dp=2", "--machine", machine, "--explain")
        assert f"Where the figures of {machine} come from\n" in explained
        assert machine == "laptop" or "Estimates:" in explained


def test_context_parallel_and_copies_of_shards():
    """32 blocks of 8 key heads of 128, 32768 tokens in bf16: S = 32768 * 2 * 1024 * 2 bytes of keys
    and values. A rank sends 3/4 S in forward; 3/4 S, and 4/4 S in fp32, in backward."""

    def sent(axis, *words):
        told = figures_of("--model", "llama3-8b", "--sequence", "32768", *words)
        return sum(each["sent_bytes"] for each in told["traffic"] if each["axis"] == axis)

    s, mesh = 32768.0 * 2 * 1024 * 2, ("--mesh", "fsdp=4,cp=4")
    assert math.isclose(sent("cp", *mesh), 32 * s * (0.75 + 0.75 + 2))
    assert math.isclose(sent("cp", *mesh, "--context", "all_gather"), 32 * s * 1.5)
    assert math.isclose(
        sent("cp", *mesh, "--context", "ulysses"),
        32 * 2 * 0.75 * (2 * 4096 + 2 * 1024) * 2 * 32768 / 4,
    )
    # 8,030,261,248 parameters in 4 x 4 shards, two copies of each.
    assert math.isclose(sent("dp", "--mesh", "dp=2,fsdp=4,cp=4"), 8030261248.0 / 16 * 2)


def test_fit_lists_meshes_or_says_how_much_memory_would_do():
    fits = output_of("--model", "llama3-8b", "--fit", "--devices", "16", "--memory", "80GB")
    assert "of their meshes fit into 80 GB per device" in fits and "fsdp=16" in fits
    none = output_of("--model", "llama3-8b", "--fit", "--devices", "4", "--memory", "1GiB")
    assert "0 of their meshes fit into 1.074 GB per device" in none
    assert "the least that any plan needs is" in none
    days = output_of("--model", "llama3-8b", "--fit", "--devices", "8", "--tokens", "15T")
    assert " days\n" in days and "MFU" not in days
    for ignored in ("--mesh", "dp=2"), ("--html", "page.html"), ("--torus", "tp=3"):
        assert error_of("--model", "tiny", "--fit", *ignored, code=2) == (
            "ringside: --fit tries every mesh: leave out --mesh, --torus and --html\n"
            "Try: ringside account --help\n"
        )


def test_overlap_is_the_share_of_communication_that_computing_hides():
    def step(*words):
        return figures_of("--model", "llama3-8b", "--mesh", "dp=64", *words)

    whole, half, none = step(), step("--overlap", "0.5"), step("--overlap", "0")
    hidden = [told["traffic"][0]["hidden_seconds"] for told in (whole, half, none)]
    assert hidden[2] == 0 < hidden[1] and math.isclose(
        none["step_seconds"], whole["step_seconds"] + hidden[0]
    )


def test_tokens_say_how_many_days_a_plan_trains():
    plan = ("--model", "llama3-8b", "--mesh", "fsdp=64", "--tokens", "15T")
    told, steps = figures_of(*plan), math.ceil(15e12 / (64 * 8192))
    days = steps * told["step_seconds"] / 86400
    assert (told["training_tokens"], told["training_steps"]) == (15e12, steps)
    assert math.isclose(told["training_days"], days)
    assert math.isclose(told["device_hours"], 24 * 64 * days)
    text = output_of(*plan)
    assert "15,000,000,000,000 tokens take 28,610,230 steps: " in text and " device hours\n" in text
    for wrong in ("many", "15Q", "0", "-3B", "inf", "1e", ""):
        assert "is no number of tokens: write it as 15T, 300B or 1e9" in error_of(
            "--model", "llama3-8b", "--tokens", wrong, code=2
        )


def test_a_page_is_well_formed_and_has_every_figure():
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "plan.html")
        output_of(
            "--model",
            "llama3-70b",
            "--mesh",
            "pp=4,dp=2,tp=8",
            "--micro-batches",
            "16",
            "--html",
            str(path),
        )
        require_well_formed(path.read_text())
        figures = figures_in(path.read_text())
        for title in (
            "Memory of a rank",
            "Time of a step, on the busiest stage",
            "Communication of a rank of the busiest stage, in one step",
        ):
            assert figures[title]["table"]["rows"]
        memory = figures["Memory of a rank"]
        bars, rows = memory["drawing"]["bars"], memory["table"]["rows"]
        assert [bar["name"] for bar in bars] == ["first stage", "middle stage", "last stage"]
        # The parts of a bar are the first rows, and together they are no more than its device has.
        assert len(rows) > len(bars[0]["values"]) and rows[-1][0] == "total"
        assert all(0 < sum(bar["values"]) <= memory["drawing"]["scale"] for bar in bars)
        output_of("--model", "deepseek-v3", "--mesh", "fsdp=1024", "--html", str(path))
        assert "Memory of a rank" in figures_in(path.read_text())


def test_wrong_arguments_get_one_sentence():
    end = "\nTry: ringside account --help\n"
    assert (
        error_of(code=2)
        == f"ringside: --model is required: a name, or the path of a config.json{end}"
    )
    assert error_of("--model", "xxl", "--memory", "80 cards", code=2) == (
        "ringside: --memory: '80 cards' is not a number of bytes: write 4B, 64KB (64000 bytes), "
        f"64KiB (65536 bytes), 10MB or 1GB{end}"
    )
    assert error_of("--model", "lab", "--mesh", "dp=3", "--batch", "8") == (
        "ringside: a batch of 8 sequences does not divide into micro-batches of 1 on 3 "
        "data-parallel ranks\n"
    )
    assert (
        error_of("--model", "lab", "--mesh", "tp=3")
        == "ringside: the 16 heads of lab do not divide by tp=3\n"
    )
    assert "a number from 0 to 1 is expected, not 2" in error_of(
        "--model", "llama3-8b", "--overlap", "2", code=2
    )
    assert error_of("--model", "lab", "--recompute", "evry=2", code=2).startswith(
        "ringside: --recompute: expected none, selective, full, every=K for groups of K blocks"
    )
    done = run("--model", "lab", "--json", "/nowhere/a.json")
    assert (
        done.returncode == 1
        and done.stderr
        == "ringside: cannot write the figures to /nowhere/a.json: No such file or directory\n"
    )


def test_it_needs_no_program_and_answers_in_a_second():
    package = str(Path(ringside.__file__).resolve().parent.parent)
    bare = {"PYTHONPATH": package, "PATH": "/nowhere", "PYTHONDONTWRITEBYTECODE": "1"}
    seconds = []
    for _ in range(3):
        begin = time.monotonic()
        done = subprocess.run(
            [
                sys.executable,
                "-m",
                "ringside",
                "account",
                "--model",
                "llama3-70b",
                "--mesh",
                "pp=4,fsdp=8,tp=8",
            ],
            env=bare,
            capture_output=True,
        )
        assert done.returncode == 0, done.stderr
        seconds.append(time.monotonic() - begin)
    assert min(seconds) < 1, seconds
    before = dict(os.environ)
    try:
        os.environ.update(RINGSIDE_PROGRAM="/nowhere/ringside")
        result = ringside.account(model="llama3-8b", mesh={"tp": 8})
        assert result.data["devices"] == 8 and "Memory of a rank" in str(result)
        assert result._repr_html_().startswith("<iframe srcdoc='<!DOCTYPE html>")
        assert ringside.account(list=True).data is None
        assert ringside.account.__doc__.startswith("Compute what a plan needs")
    finally:
        os.environ.clear()
        os.environ.update(before)
