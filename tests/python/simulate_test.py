"""`ringside simulate` as a user sees it, and the times of collectives."""

import io
import json
import tempfile
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import replace
from pathlib import Path

from pages import figures_in, require_well_formed
from ringside.command_line import run_command
from ringside.lab.simulate import COMMAND
from ringside.planning.collective_time import (
    CLOSED_FORMS,
    algorithms_on,
    closed_form,
    collective_times,
)
from ringside.planning.machine import find_machine
from ringside.program import run

H100 = find_machine("h100")


def near(a, b, epsilon=1e-12):
    assert abs(a - b) <= epsilon * max(abs(a), abs(b)), (a, b)


def simulate(*words):
    """The exit code, standard output and standard error."""
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        code = run_command(COMMAND, list(map(str, words)))
    return code, out.getvalue(), err.getvalue()


def shown(*words):
    code, out, err = simulate(*words)
    assert code == 0 and err == "", err
    assert all(len(line) <= 80 or "report: " in line for line in out.splitlines()), out
    return out


def figures(*words):
    code, out, err = simulate(*words, "--json", "-")
    assert code == 0, err
    return json.loads(out)


def sentence(*words):
    code, out, err = simulate(*words)
    assert code in (1, 2) and out == "", (code, out)
    return err.replace("ringside: ", "", 1).split("\nTry: ")[0].strip()


def seconds_of(collective, algorithm, ranks, size, machine=H100):
    return collective_times(collective, algorithm, ranks, [size], machine)[0].seconds


# Collectives.


def test_the_closed_forms_are_the_walked_schedules():
    level = replace(H100.levels[0], group=64)
    flat = replace(H100, levels=(level,))
    for collective, forms in CLOSED_FORMS.items():
        for algorithm in forms:
            for ranks in (2, 3, 7, 8, 13, 16, 31, 64):
                size = ranks * 1000  # equal chunks
                (walked,) = collective_times(collective, algorithm, ranks, [size], flat)
                assert walked.walked == (algorithm != "chain")
                near(closed_form(collective, algorithm, ranks, size, level), walked.seconds)


def test_rings_and_pairwise_exchanges_are_walked_here_as_by_the_program():
    alpha, beta = 3e-6, 1 / 369e9
    flat = replace(
        H100,
        levels=(
            replace(
                H100.levels[0], group=64, latency=alpha, bytes_per_second=369e9, efficiency=1.0
            ),
        ),
    )
    for collective in ("all_reduce", "all_gather", "reduce_scatter", "all_to_all"):
        algorithm = "pairwise" if collective == "all_to_all" else "ring"
        for ranks in (2, 3, 5, 8, 21, 64):
            done = run(
                [
                    "prove",
                    collective,
                    "--algorithm",
                    algorithm,
                    "--max-size",
                    str(ranks),
                    "--costs",
                    f"{alpha},{beta}",
                    "--bytes",
                    "1B,100B,1001B,1000003B",
                    "--json",
                    "-",
                ]
            )
            for row in json.loads(done.stdout):
                near(seconds_of(collective, algorithm, ranks, row["bytes"], flat), row["seconds"])


def test_an_all_reduce_is_a_reduce_scatter_and_an_all_gather():
    large = 16_000_000_000
    for ranks in (8, 16, 64, 128, 1024):
        times = {
            name: collective_times(name, algorithm, ranks, [large], H100)[0]
            for name, algorithm in (
                ("all_reduce", "ring"),
                ("all_gather", "ring"),
                ("reduce_scatter", "ring"),
                ("all_to_all", "pairwise"),
                ("broadcast", "chain"),
            )
        }
        near(
            times["all_gather"].seconds + times["reduce_scatter"].seconds,
            times["all_reduce"].seconds,
            1e-9,
        )
        # Each is as fast as the link: its bus bandwidth is that of the all-reduce.
        near(times["all_gather"].busbw(), times["all_reduce"].busbw(), 1e-9)
        near(times["broadcast"].busbw(), times["all_reduce"].busbw(), 0.02)
        assert not times["broadcast"].walked and times["all_gather"].walked == (ranks <= 64)
        # Between servers each rank has one card; within one, NVLink. A rank rests for one round.
        near(times["all_to_all"].algbw(), 450e9 * 0.82 if ranks == 8 else 50e9 * 0.9, 0.02)
    # Few bytes want few rounds, many bytes want few bytes.
    assert seconds_of("all_gather", "pat", 1024, 1000) < (
        seconds_of("all_gather", "ring", 1024, 1000) / 50
    )
    for small, large in (("recursive_doubling", "halving_doubling"), ("halving_doubling", "ring")):
        assert seconds_of("all_reduce", small, 1024, 1000) < seconds_of(
            "all_reduce", large, 1024, 1000
        )
    # Beyond 64 ranks the closed form takes over, without a jump.
    at_64, at_65 = (seconds_of("all_reduce", "ring", ranks, 10**9) for ranks in (64, 65))
    assert at_64 < at_65 < 1.01 * at_64


def test_nccl_on_one_server_and_on_several():
    def busbw(algorithm, ranks, size, machine=H100):
        return collective_times("all_reduce", algorithm, ranks, [size], machine)[0].busbw() / 1e9

    near(busbw("ring", 8, 16_000_000_000), 370, 0.05)
    wires = replace(H100, levels=(replace(H100.levels[0], efficiency=1.0, latency=0.0),))
    near(busbw("ring", 8, 16_000_000_000, wires), 450, 1e-6)
    # Issue 290 of NVIDIA/nccl-tests.
    near(busbw("ring", 16, 10**9), 370, 0.1)
    near(busbw("ring", 16, 16_000_000_000), 370, 0.05)
    # Issue 283: 248 servers, 512 MiB. A ring would take 3,966 hops.
    assert 300 < busbw("double_tree", 1984, 512 << 20) < 350
    assert busbw("ring", 1984, 512 << 20) < 100
    # A message over one card is not faster than that card.
    assert busbw("halving_doubling", 16, 16_000_000_000) < 50
    # Up and down 3 levels of servers, and 7 hops inside: by hand.
    near(H100.tree_latency(1, 64, 1), 2 * (3 * 6e-6 + 7 * 3e-6))


def test_hierarchical_inside_the_servers_over_nvlink_and_between_them_over_all_cards():
    nvlink, card, k = 450e9 * 0.82, 50e9 * 0.9, 8
    for servers in (2, 3, 8, 125):
        size = 800_000_000 * servers
        # Half of a ring inside, a ring of one rank of each server with an eighth of the buffer,
        # and the other half.
        near(
            seconds_of("all_reduce", "hierarchical", 8 * servers, size),
            2 * (k - 1) * (3e-6 + size / k / nvlink)
            + 2 * (servers - 1) * (6e-6 + size / k / servers / card),
            1e-9,
        )
        # A pair needs one round.
        rounds = 1 if servers == 2 else servers
        near(
            seconds_of("all_to_all", "hierarchical", 8 * servers, size),
            k * (3e-6 + size / k / nvlink) + rounds * (6e-6 + size / servers / card),
            1e-9,
        )
    assert algorithms_on("all_reduce", 12, H100)[-1] == "double_tree"
    assert algorithms_on("all_to_all", 12, H100)[-1] == "pairwise"
    assert algorithms_on("all_to_all", 16, H100)[-1] == "hierarchical"
    assert algorithms_on("all_reduce", 8, find_machine("h100-nvls"))[-1] == "in_network"


def test_algorithms_without_a_closed_form_and_those_of_files_are_costed_by_the_program():
    (one_shot,) = figures("all_reduce", "--algorithm", "one_shot", "--bytes", "1KB", "-n", 8)
    assert one_shot["walked"]
    messages = one_shot["time_us"] / (3 + 1000 / 369e9 * 1e6)  # of the whole buffer
    near(messages, round(messages), 1e-9)
    assert 7 <= messages < 14
    with tempfile.TemporaryDirectory() as folder:
        file = f"{folder}/mine.json"
        assert (
            run(
                ["step", "all_reduce", "--algorithm", "one_shot", "-n", "8", "--json", file]
            ).returncode
            == 0
        )
        (mine,) = figures("all_reduce", "--algorithm", file, "--bytes", "1KB", "-n", 8)
        assert mine["time_us"] == one_shot["time_us"] and mine["algorithm"].endswith("mine.json")


def test_an_all_reduce_on_1024_ranks_table_json_and_page_have_the_same_figures():
    with tempfile.TemporaryDirectory() as folder:
        page, file = f"{folder}/curves.html", f"{folder}/figures.json"
        out = shown(
            "all_reduce",
            "-n",
            "8,1024",
            "--bytes",
            "1KB,1MB,1GB",
            "--topology",
            "h100",
            "--json",
            file,
            "--html",
            page,
        )
        assert "all_reduce on 8 ranks of h100, over NVLink; times from the walked" in out
        assert "all_reduce on 1024 ranks of h100, over InfiniBand" in out
        rows = json.loads(Path(file).read_text())
        assert len(rows) == (3 + 4) * 3  # between servers there is the double tree, too
        # 2 (n - 1) messages of D/n bytes over 8 cards of 45 GB/s; of 8 hops, 7 of 3 us stay in a
        # server.
        ring = rows[9 + 8]
        assert (ring["algorithm"], ring["bytes"]) == ("ring", 10**9)
        near(
            ring["time_us"], 2 * 1023 * (6 + 7 * 3) / 8 + 2 * 1023 / 1024 * 1e9 / 360e9 * 1e6, 1e-9
        )
        curves = figures_in(Path(page).read_text())["Time, 1024 ranks over InfiniBand"]["drawing"]
        assert [series["points"][-1] for series in curves["series"]] == [
            [row["bytes"], row["time_us"]] for row in rows[9 + 8 :]
        ]


def test_every_collective_has_a_table_and_figures_of_its_own():
    for collective in CLOSED_FORMS:
        for ranks in (3, 16, 2048):
            code, out, err = simulate(collective, "-n", ranks, "--json", "-")
            assert code == 0 and f"{collective} on {ranks} ranks of h100" in err
            for row in json.loads(out):
                assert row["collective"] == collective
                assert row["time_us"] > 0 and row["busbw_gbps"] < 370


# Steps.


def test_a_step_of_a_plan_table_json_drawing_trace_and_page_have_the_same_figures():
    with tempfile.TemporaryDirectory() as folder:
        svg, trace, page, file = (
            f"{folder}/{name}" for name in ("lanes.svg", "trace.json", "page.html", "figures.json")
        )
        code, out, err = simulate(
            "--model",
            "llama3-8b",
            "--mesh",
            "pp=4,dp=2,tp=8",
            "--micro-batches",
            8,
            "--json",
            file,
            "--svg",
            svg,
            "--trace",
            trace,
            "--html",
            page,
        )
        assert code == 0 and err == ""
        assert "64; one data-parallel replica simulated, the others do the same" in out
        told = json.loads(Path(file).read_text())
        assert len(told["pipeline_ranks"]) == 4 and len(told["exposed"]) == 3
        for rank in told["pipeline_ranks"]:
            near(sum(rank.values()) + told["optimizer_seconds"], told["step_seconds"], 1e-9)
        # A stage in the middle sends an activation and a gradient of each of 8 micro-batches: 8192
        # tokens of width 4096 in 16 bits.
        (pp,) = [link for link in told["links"] if link["axis"] == "pp"]
        assert pp["sent_bytes"] == 2 * 8 * 8192.0 * 4096 * 2
        events = [
            event
            for event in json.loads(Path(trace).read_text())["traceEvents"]
            if event["ph"] == "X"
        ]
        near(max(event["ts"] + event["dur"] for event in events) * 1e-6, told["step_seconds"], 1e-9)
        assert sum(event["name"] == "forward" for event in events) == 4 * 8
        require_well_formed(Path(svg).read_text())
        assert Path(svg).read_text().count('<svg class="lane"') == 4
        pictures = figures_in(Path(page).read_text())
        assert len(pictures["Load of the links"]["table"]["rows"]) == len(told["links"])
        tracks = pictures["What the ranks do in a step"]["drawing"]
        near(tracks["end"] * 1e-3, told["step_seconds"], 1e-9)
        for rank in tracks["ranks"]:
            assert sum(name == "forward" for _, name, *_ in rank["spans"]) == 8


def test_stragglers_the_step_without_them_stands_beside_it():
    out = shown(
        "--model",
        "llama3-8b",
        "--mesh",
        "dp=4,tp=8",
        "--slow",
        "9=1.5,10=1.2",
        "--jitter",
        0.1,
        "--seed",
        7,
    )
    assert "all 32 simulated" in out and "without slow ranks: " in out


def test_experts_the_axis_ep_is_in_the_report_and_a_busiest_rank_takes_longer():
    steps = []
    for imbalance in (1, 1.5):
        told = figures(
            "--model",
            "mixtral-8x7b",
            "--mesh",
            "pp=2,dp=2,ep=4",
            "--micro-batches",
            4,
            "--imbalance",
            imbalance,
        )
        assert any(row["axis"] == "ep" and row["seconds"] > 0 for row in told["exposed"])
        steps.append(told["step_seconds"])
    assert steps[1] > 1.05 * steps[0]


def test_the_times_of_a_traces_stages_are_those_of_the_step_that_was_traced():
    plan = ("--model", "llama3-8b", "--mesh", "pp=4,tp=2", "--fused-gradients", "--topology")
    with tempfile.TemporaryDirectory() as folder:
        trace = f"{folder}/trace.json"
        for schedule in ("1f1b", "zb_h1"):
            figures(*plan, "h100", "--micro-batches", 8, "--schedule", schedule, "--trace", trace)
            # Another schedule, network and number of micro-batches, from the same computations.
            for other in ("1f1b", "gpipe", "zb_h1"):
                more = ("h100", "--micro-batches", 12, "--schedule", other)
                near(
                    figures(*plan, *more, "--measured", trace)["step_seconds"],
                    figures(*plan, *more)["step_seconds"],
                    1e-6,
                )
            a100 = ("a100", "--micro-batches", 8)
            assert (
                figures(*plan, *a100, "--measured", trace)["step_seconds"]
                < (figures(*plan, *a100)["step_seconds"])
            )
        assert sentence("--model", "llama3-8b", "--mesh", "pp=2", "--measured", trace) == (
            "the trace has 4 stages, but the plan has 2: name the mesh and the schedule of that run"
        )


def test_predicted_stands_beside_measured_from_a_trace_of_train():
    with tempfile.TemporaryDirectory() as folder:
        trace = f"{folder}/step.json"
        done = run(
            [
                "train",
                "-n",
                "2",
                "--mesh",
                "pp=2",
                "--micro-batches",
                "2",
                "--batch",
                "4",
                "--sequence",
                "32",
                "--steps",
                "2",
                "--trace",
                trace,
            ]
        )
        assert done.returncode == 0, done.stderr
        plan = (
            "--model",
            "tiny",
            "--topology",
            "laptop",
            "--sequence",
            32,
            "--micro-batches",
            2,
            "--against",
            trace,
            "--mesh",
        )
        code, out, err = simulate(*plan, "pp=2", "--json", "-")
        assert code == 0 and "Predicted beside measured" in err
        against = json.loads(out)["against"]
        measured = {part: row["measured_seconds"] for part, row in against.items()}
        assert all(
            measured[part] > 0 and against[part]["predicted_seconds"] > 0
            for part in ("step", "forward", "backward", "update")
        )
        assert measured["step"] > measured["forward"] + measured["backward"]
        assert sentence(*plan, "dp=4").endswith(
            "has traces of 2 ranks, but the mesh has 4: name the mesh of that run"
        )


def test_a_file_that_is_no_trace_gets_a_sentence_with_its_place():
    forward = '{"ph": "X", "cat": "phase", "name": "forward", "ts": 0, "dur": 5, "pid": 0%s}'
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "step.json")

        def said(option, text):
            file.write_text(text)
            return sentence("--model", "tiny", "--topology", "laptop", option, file)

        def events(text):
            return f'{{"traceEvents": [{text}]}}'

        for option in ("--measured", "--against"):
            assert said(option, "step 1\nstep 2\n") == (
                f"{file} is not JSON: the error is in line 1, column 1"
            )
            assert said(option, "{}") == f"{file}: traceEvents is missing"
            assert said(option, "[1]") == f"{file} is [1], but an object {{...}} is expected"
            assert said(option, events("7")) == (
                f"{file}: traceEvents[0] is 7, but an object {{...}} is expected"
            )
            assert said(option, events('{"ph": "X", "cat": "phase", "name": "a", "ts": -1}')) == (
                f"{file}: traceEvents[0].ts is -1, but a number of at least 0 is expected"
            )
        for text, what in (
            ('{"ph": "M"}', "the trace shows no forward: it"),
            (forward % "", "the trace shows no backward of stage 0"),
            (
                forward % ', "args": {"data": "1F0"}',
                "the trace shows stage 1 but not stage 0: it must be one of all",
            ),
        ):
            assert said("--measured", events(text)).startswith(what)
        assert said("--against", events(forward % "")).startswith("the trace has no whole step")
    assert sentence("--model", "tiny", "--measured", "none.json") == (
        "cannot read none.json: No such file or directory"
    )


def test_what_cannot_be_simulated_gets_one_sentence():
    for words, said in (
        (
            ["barrier"],
            "there is no simulation of 'barrier': choose one of all_reduce, "
            "all_gather, reduce_scatter, all_to_all, broadcast, reduce, gather, scatter",
        ),
        (
            ["all_reduce", "--algorithm", "rung"],
            "there is no algorithm named 'rung' for all_reduce (did you mean ring?)",
        ),
        (
            ["all_gather", "-n", "65", "--algorithm", "bruck"],
            "there is no closed form of the all_gather 'bruck', only of ring, pat: choose one of "
            "these, or at most 64 ranks",
        ),
        (
            ["all_reduce", "-n", "12", "--algorithm", "hierarchical"],
            "hierarchical takes whole servers of 8, and 12 ranks are none: choose a multiple of",
        ),
        (["all_reduce", "-n", "100000"], "the plan needs 100000 devices, but h100 has 16384"),
        (["all_reduce", "--bytes", "many"], "'many' is not a number of bytes"),
        (["all_reduce", "--bytes", "0B"], "--bytes 0B: at least one byte is needed"),
        (["all_reduce", "--topology", "moon"], "there is no machine or file"),
        (
            ["all_reduce", "--algorithm", "in_network"],
            "the switches of NVLink on h100 do not add up: give the level an",
        ),
        ([], "what is to be simulated? Give --model and --mesh for a step, or all_reduce"),
        (["all_reduce", "--model", "lab"], "give either a collective or --model, not both"),
        (
            ["--model", "deepseek-v3", "--mesh", "dp=8"],
            "only the state of deepseek-v3 is known, so its step cannot be simulated",
        ),
    ):
        assert sentence(*words).startswith(said), sentence(*words)
    for words, said in (
        (["--mesh", "tp=3"], "the 32 heads of llama3-8b do not divide by tp=3"),
        (["--mesh", "dp=20000"], "the plan needs 20000 devices, but h100 has 16384"),
        (
            ["--slow", "5"],
            "--slow 5: a rank and a factor of at least 1 are expected, as in --slow 5=1.3",
        ),
        (["--slow", "0=0.5"], "--slow 0=0.5: a rank and a factor of at least 1"),
        (
            ["--mesh", "dp=2", "--slow", "2=2"],
            "rank 2 cannot be slow: the mesh dp=2 has the ranks 0 to 1",
        ),
        (["--mesh", "pp=2", "--schedule", "2f2b"], "there is no schedule named '2f2b'"),
        (["--congestion"], "transfers that share links are simulated no more"),
    ):
        assert sentence("--model", "llama3-8b", *words).startswith(said), sentence(*words)
    assert "none.csv" in sentence(
        "--model", "llama3-8b", "--mesh", "pp=2", "--schedule", "csv:none.csv"
    )
