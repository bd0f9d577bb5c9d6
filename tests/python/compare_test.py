"""`ringside compare` of metrics, dumps and checkpoints, and `train --against one-process`."""

import contextlib
import io
import json
import math
import os
import struct
import subprocess

from pages import figures_in, require_well_formed
from ringside.__main__ import main
from ringside.lab import safetensors
from ringside.program import find_program

TRY = "\nTry: ringside train --help\n"


def compare(*words):
    """The exit code, standard output and standard error."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main(["compare", *map(str, words)])
    return code, out.getvalue(), err.getvalue()


def error_of(*words):
    code, out, err = compare(*words)
    assert (code, out) == (1, ""), (code, out, err)
    return err


def stored(path, arrays):
    """A file of {name: (type, shape, numbers)}, whose numbers are bytes or floats."""
    header, data = {}, b""
    for name, (kind, shape, numbers) in arrays.items():
        code = safetensors.CODES[kind]
        if not isinstance(numbers, bytes):
            numbers = struct.pack(f"<{len(numbers)}{code}", *numbers)
        header[name] = {"dtype": kind, "shape": shape}
        header[name]["data_offsets"] = [len(data), len(data) + len(numbers)]
        data += numbers
    text = json.dumps(header).encode()
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)
    return path


def checkpoint(folder, numbers, shape=(2, 3), kind="F32", name="model.norm.weight"):
    stored(folder / "model.safetensors", {name: (kind, list(shape), numbers)})
    return folder


def dump(folder, steps):
    """Step s has the gradient and the parameter steps[s]."""
    for step, (gradient, parameter) in steps.items():
        arrays = {"parameter.w": ("F32", [2], parameter), "gradient.w": ("F32", [2], gradient)}
        stored(folder / f"step{step:04}.safetensors", arrays)
    return folder


def metrics(path, losses, seconds=0.5):
    rows = [
        {
            "step": step,
            "bits_per_byte": loss,
            "step_seconds": seconds,
            "communication_seconds": 0.1,
            "tokens_per_second": 100.0,
        }
        for step, loss in losses.items()
    ]
    rows.append({"step": max(losses), "validation_bits_per_byte": 3.5})
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_metrics_show_two_runs_side_by_side_and_how_far_their_losses_are_apart(tmp_path):
    one = metrics(tmp_path / "one", {1: 8.0, 2: 7.0, 3: 6.0})
    other = metrics(tmp_path / "other", {2: 7.0, 3: 6.25, 4: 5.0}, 1.0)
    code, out, err = compare(one, one)
    assert (code, err) == (0, "") and "\n  The losses of 3 steps are equal.\n" in out
    page = tmp_path / "page.html"
    code, out, err = compare(one, other, "--html", page)
    assert (code, err) == (0, "")
    assert "The losses of 2 steps differ by at most 0.25 bits per byte, in step 3.\n" in out
    rows = {line[:22].strip(): line[22:].split() for line in out.splitlines()[2:9]}
    assert rows["step, ms (median)"] == ["500.0", "1000.0", "2.000"]
    assert rows["all steps, s"] == ["1.5", "3.0", "2.000"]
    assert rows["last loss, bits/byte"] == ["6.0000", "5.0000", "0.833"]
    assert rows["held out, bits/byte"] == ["3.5000", "3.5000", "1.000"]
    require_well_formed(page.read_text())
    assert figures_in(page.read_text())["Time of each step"]["drawing"]["series"][1]["points"] == [
        [2, 1000],
        [3, 1000],
        [4, 1000],
    ]
    assert json.loads(compare(one, other, "--json", "-")[1])[0] == {
        "figure": "steps",
        "a": 3,
        "b": 3,
    }
    assert compare(one, other, "--tolerance", "0.25")[0] == 0
    assert compare(one, other, "--tolerance", "0.2")[::2] == (
        1,
        "ringside: the largest difference, 0.25, is above --tolerance 0.2\n",
    )
    assert (
        "The runs have no step in common.\n" in compare(metrics(tmp_path / "a", {9: 1.0}), one)[1]
    )


def test_metrics_that_are_none_are_refused(tmp_path):
    one, bad, empty = metrics(tmp_path / "one", {1: 8.0}), tmp_path / "bad", tmp_path / "empty"
    bad.write_text('{"step": 1}\n')
    empty.write_text("")
    assert error_of(one, bad) == (
        f"ringside: line 1 of {bad} is not a row of `ringside train --metrics`\n"
    )
    assert error_of(one, empty) == (
        f"ringside: {empty} has no step: is it a file of `ringside train --metrics`?\n"
    )
    assert error_of(one, "/nope") == (
        "ringside: cannot read /nope: is it a file of `ringside train --metrics`, or a folder of "
        "--dump or --save?\n"
    )


def test_checkpoints_differ_in_a_place_that_is_named(tmp_path):
    numbers = [1.0, -8.0, 3.0, 4.0, 5.0, 6.0]
    one, same = checkpoint(tmp_path / "one", numbers), checkpoint(tmp_path / "same", numbers)
    code, out, err = compare(one, same)
    assert (code, err) == (0, "") and "  All 1 array are equal, bit for bit.\n" in out
    other = checkpoint(tmp_path / "other", [1.0, -8.0, 3.0, 4.0, 5.5, 6.25])
    told = json.loads(compare(one, other, "--json", "-")[1])
    assert told == [
        {
            "name": "model.norm.weight",
            "largest_difference": 0.5,
            "relative_difference": 0.75 / 27,
            "step": None,
            "index": [1, 1],
            "shape": [2, 3],
        }
    ]
    code, out, err = compare(one, other)
    assert "\nmodel.norm.weight      0.5     0.028    1,1\n" in out
    assert "The order of additions does not make so much of it" in out
    assert "Why it is not zero" not in out
    assert compare(one, other, "--tolerance", "0.5")[0] == 0
    assert compare(one, other, "--tolerance", "0.49")[::2] == (
        1,
        "ringside: the largest difference, 0.5, is above --tolerance 0.49\n",
    )
    near = checkpoint(tmp_path / "near", [1.0, -8.000001, 3.0, 4.0, 5.0, 6.0])
    assert (
        "Why it is not zero: the runs add the same numbers in another order"
        in compare(one, near)[1]
    )
    # One file is as good as its folder; a model in several files is one.
    assert compare(one / "model.safetensors", other, "--tolerance", "0.5")[0] == 0
    two = tmp_path / "two"
    for number, name in enumerate("ab", 1):
        stored(two / f"model-0000{number}-of-00002.safetensors", {name: ("F32", [1], [1.0])})
    assert "All 2 arrays are equal" in compare(two, two)[1]


def test_every_type_is_read_and_no_number_is_far_from_every_number(tmp_path):
    for kind, exact in (("F64", 1 / 3), ("F32", 0.3333333432674408), ("F16", 0.333251953125)):
        array = safetensors.read(
            stored(tmp_path / f"{kind}.safetensors", {"w": (kind, [2], [1 / 3, -2.0])})
        ).arrays["w"]
        assert array.numbers(array.bytes(0, 9)) == (exact, -2.0)
    halves = stored(tmp_path / "b.safetensors", {"w": ("BF16", [2], b"\xab\x3e\x00\xc0")})
    array = safetensors.read(halves).arrays["w"]
    assert array.numbers(array.bytes(0, 9)) == (0.333984375, -2.0)
    nan = checkpoint(tmp_path / "nan", [1.0, math.nan, math.inf, 4.0], [4])
    same = checkpoint(tmp_path / "same", [2.0, -math.nan, math.inf, 4.0], [4])
    number = checkpoint(tmp_path / "number", [1.0, 2.0, math.inf, 4.0], [4])
    assert json.loads(compare(nan, same, "--json", "-")[1])[0]["largest_difference"] == 1
    assert "\nmodel.norm.weight      inf" in compare(nan, number)[1]
    assert "Why it is not zero" not in compare(nan, number)[1]
    assert compare(nan, number, "--tolerance", "1e300")[0] == 1


def test_arrays_longer_than_a_piece_are_compared_to_their_end(tmp_path):
    from ringside.lab.differences import PIECE

    numbers = [0.5] * (PIECE + 10)
    one = checkpoint(tmp_path / "one", numbers, [PIECE + 10])
    numbers[-1] = 0.75
    other = checkpoint(tmp_path / "other", numbers, [PIECE + 10])
    assert f"  {PIECE + 9}\n" in compare(one, other)[1]


def test_dumps_are_compared_in_the_steps_that_both_have(tmp_path):
    one = dump(tmp_path / "one", {1: ([1, 2], [3, 4]), 2: ([1, 2], [3, 4]), 3: ([5, 6], [7, 8])})
    near = dump(tmp_path / "near", {1: ([1, 2.000001], [3, 4]), 3: ([5, 6], [7, 10])})
    code, out, err = compare(one, near)
    assert (code, err) == (0, "")
    assert out == (
        "Parameters: the largest difference\n"
        "   largest  relative  step  where\n"
        "w        2      0.13     3      1\n"
        "\n"
        "Gradients: the largest difference\n"
        "   largest  relative  step  where\n"
        "w  9.5e-07   3.2e-07     1      1\n"
        "  2 of 2 arrays of 2 steps differ, at most by 2: parameter.w.\n"
        "  In step 1 the mean difference is at most 3.2e-07 of the mean number:\n"
        "  gradient.w.\n"
        "  Why it is not zero: the runs add the same numbers in another order, as another\n"
        "  number of ranks, threads or buckets does, and each sum is rounded: (a + b) + c\n"
        "  is not a + (b + c). AdamW makes more of it where a gradient is near zero\n"
        '  (docs/failures.md, "Why it is not zero").\n'
    )
    # Another learning rate: the gradients of the first step are equal.
    other = dump(tmp_path / "other", {1: ([1, 2], [3.001, 4])})
    assert (
        "  In step 1 the mean difference is at most 0.00014 of the mean number:\n"
        "  parameter.w.\n"
        "  The order of additions does not make so much of it: do both runs have the same\n"
        "  model, text, batch, seed and options, and does neither compress gradients?\n"
        "  (Over many steps rounding grows: compare the first, with --dump.)\n"
    ) in compare(one, other)[1]


def test_damaged_headers_and_rows_are_refused_in_a_sentence(tmp_path):
    path = tmp_path / "a.safetensors"
    entry = '{"w": {"dtype": %s, "shape": %s, "data_offsets": %s}}'
    for header in (
        "",
        "{",
        "7",
        "[1]",
        '{"w": 1}',
        "[" * 100_000,
        entry % ('"F32"', "[2.0]", "[0, 8]"),
        entry % ('"F32"', "[-2]", "[0, -8]"),
        entry % ('"F32"', "[2]", "[-8, 0]"),
        entry % ('"F32"', "[1]", "[0, 8]"),
        entry % ('"F8"', "[8]", "[0, 8]"),
        entry % ("[]", "[2]", "[0, 8]"),
        entry % ('"F32"', '"2"', "[0, 8]"),
    ):
        path.write_bytes(struct.pack("<Q", len(header)) + header.encode() + bytes(8))
        error = error_of(path, path)
        assert error.startswith(f"ringside: cannot read {path} as safetensors: "), error
        assert error.count("\n") == 1
    for row in (
        "[" * 100_000,
        '{"step": 1e999, "bits_per_byte": 1}',
        '{"step": [], "a": 1}',
        "null",
    ):
        (tmp_path / "rows").write_text(row)
        assert error_of(tmp_path / "rows", tmp_path / "rows").startswith("ringside: line 1 of ")


def test_folders_that_do_not_go_together_are_refused(tmp_path):
    one = checkpoint(tmp_path / "one", [1.0] * 6)
    turned = checkpoint(tmp_path / "turned", [1.0] * 6, [3, 2])
    named = checkpoint(tmp_path / "named", [1.0] * 6, name="w")
    first, later = (
        dump(tmp_path / "a", {1: ([1, 2], [3, 4])}),
        dump(tmp_path / "b", {5: ([1, 2], [3, 4])}),
    )
    (tmp_path / "none").mkdir()
    (tmp_path / "cut").mkdir()
    (tmp_path / "cut/model.safetensors").write_bytes((one / "model.safetensors").read_bytes()[:-1])
    (tmp_path / "text").mkdir()
    (tmp_path / "text/model.safetensors").write_text("not safetensors, but text")
    for a, b, sentence in (
        (
            one,
            turned,
            f"model.norm.weight has the shape [2, 3] in {one} and [3, 2] in {turned}: these are two "
            "models",
        ),
        (one, named, f"{named} has no model.norm.weight, but {one} has"),
        (one, first, f"{first} is a folder of --dump and {one} a checkpoint: name two of a kind"),
        (
            first,
            later,
            f"the folders have no step in common: {first} has steps 1 to 1, {later} has steps 5 to 5",
        ),
        (
            one,
            tmp_path / "none",
            f"{tmp_path}/none is no folder with step0001.safetensors and so on, as `ringside train "
            "--dump` writes them, or with model.safetensors, as --save does",
        ),
        (
            one,
            tmp_path / "cut",
            f"cannot read {tmp_path}/cut/model.safetensors as safetensors: model.norm.weight ends at "
            "byte 113 of 112: the file was cut short",
        ),
        (
            one,
            tmp_path / "text",
            f"cannot read {tmp_path}/text/model.safetensors as safetensors: a header of "
            "7306634592548843374 bytes does not fit into 25 bytes",
        ),
        (
            one,
            "/nope",
            "/nope is no folder with step0001.safetensors and so on, as `ringside train --dump` "
            "writes them, or with model.safetensors, as --save does",
        ),
    ):
        assert error_of(a, b) == f"ringside: {sentence}\n"


SMALL = "--d-model 16 --layers 1 --heads 2 --d-ff 20 --sequence 12 --threads 1".split()


def train(folder, *words, path=None):
    text = folder / "text.txt"
    text.write_text("".join(f"line {i * i} of a text that means little;\n" for i in range(500)))
    environment = {**os.environ, "PATH": path} if path else None
    command = [find_program(), "train", *SMALL, "--data", str(text), *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, env=environment, timeout=100)


def test_a_dump_has_the_first_the_last_and_every_nth_step(tmp_path):
    for every, steps in ((0, (1, 7)), (3, (1, 3, 6, 7)), (1, range(1, 8))):
        folder = tmp_path / str(every)
        assert (
            train(tmp_path, "--steps", 7, "--dump", folder, "--dump-every", every).returncode == 0
        )
        assert sorted(path.name for path in folder.iterdir()) == [
            f"step{step:04}.safetensors" for step in steps
        ]


def test_training_against_one_process_compares_both_and_says_why_they_differ(tmp_path):
    # Three ranks have a batch of 18, not 16.
    done = train(
        tmp_path, "-n", 3, "--parallel", "bucketed", "--steps", 3, "--against", "one-process"
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    again = done.stdout.index("\nThe same with one process\n")
    for part in (done.stdout[:again], done.stdout[again:]):
        assert "18 sequences of 12 bytes" in part and "\nstep 3/3 " in part
    assert "ranks    3 over shm, bucketed" in done.stdout[:again]
    assert "ranks    1, 1 thread each" in done.stdout[again:]
    end = done.stdout[done.stdout.index("\nHow far the two are apart") :]
    assert "\nlm_head.weight" in end and " arrays of 2 steps differ, at most by " in end
    assert 'docs/failures.md, "Why it is not zero"' in end.replace("\n  ", " ")
    # A mesh, and the user's own dump, which stays.
    own = tmp_path / "own"
    done = train(
        tmp_path,
        "-n",
        2,
        "--mesh=tp=2",
        "--sequence-parallel",
        "--dump",
        own,
        "--steps",
        3,
        "--against=one-process",
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    assert len(list(own.iterdir())) == 3 and "Why it is not zero" in done.stdout


def test_what_is_wrong_is_said_before_training_against_one_process(tmp_path):
    against = ("--against", "one-process")
    done = train(tmp_path, *against, "--against", "two")
    assert done.returncode == 2
    assert done.stderr == f"ringside: --against: expected one-process, got 'two'{TRY}"
    done = train(tmp_path, "-n", 2, "--steps", 1, *against, "--batch", 3)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        "ringside: a batch of 3 sequences does not divide by 2 ranks: choose a multiple of 2, so "
        "that every rank reads equally much\n"
    )
    done = train(tmp_path, "--resume", tmp_path, *against)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        "ringside: --against compares whole runs: leave out --resume, or start from the checkpoint "
        f"with --init{TRY}"
    )
    done = train(tmp_path, "-n", 2, "--steps", 1, *against, path="/nowhere")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        "ringside: `ringside train` needs python3 here, which is not on PATH: install it (apt-get "
        "install python3)\n"
    )
