"""The planner in Python: formulas and their text, models and machines from files, and the figures
of papers and of a course.
"""

import json
import math
import tempfile
from dataclasses import replace
from pathlib import Path

from ringside.library import RingsideError
from ringside.planning import quantity as q
from ringside.planning.accounting import account
from ringside.planning.fit import FitOptions, fit
from ringside.planning.formulas import bounds
from ringside.planning.formulas.activations import block_activations, blocks_in_flight
from ringside.planning.formulas.parameters import active_parameters, block_matrices, parameter_count
from ringside.planning.formulas.pipeline import bubble_share
from ringside.planning.formulas.state import state_of_model
from ringside.planning.formulas.symbols import Symbols
from ringside.planning.formulas.work import hardware_flops
from ringside.planning.machine import find_machine
from ringside.planning.memory import memory_of_rank
from ringside.planning.mesh import Mesh, parse_mesh
from ringside.planning.model import Experts, Model, find_model
from ringside.planning.plan import Plan, Recomputation, Types, pipeline_part, recomputation_from

GIB = 1024.0**3
FULL, SELECTIVE = Recomputation("full", 1), Recomputation("selective")


def sentence(call, *arguments):
    try:
        call(*arguments)
    except RingsideError as error:
        return str(error)
    return "no error"


def near(seen, expected, share):
    assert abs(seen - expected) <= share * abs(expected), (seen, expected)


def parameters_of(name):
    return float(parameter_count(find_model(name))[-1])


# Formulas.


def test_a_formula_explains_itself_with_symbols_and_with_numbers():
    s, b, h, a, t = (
        q.named(*each) for each in (("s", 2048), ("b", 4), ("h", 6144), ("a", 64), ("t", 8))
    )
    bytes_ = s * b * h * (10 + 24 / t + 5 * a * s / (h * t))
    assert bytes_ == 2048 * 4 * 6144 * (10 + 24 / 8 + 5 * 64 * 2048 / (6144 * 8))
    assert q.symbols(bytes_) == "s b h (10 + 24 / t + 5 a s / (h t))"
    assert q.numbers(bytes_) == "2,048 x 4 x 6,144 x (10 + 24 / 8 + 5 x 64 x 2,048 / (6,144 x 8))"


def test_parentheses_stand_where_the_value_needs_them():
    a, b, c = q.named("a", 7), q.named("b", 2), q.named("c", 3)
    for formula, text in (
        (a - (b + c), "a - (b + c)"),
        (a - b + c, "a - b + c"),
        (a / (b / c), "a / (b / c)"),
        (a / b / c, "a / b / c"),
        (a * (b - c), "a (b - c)"),
        (a * b + c, "a b + c"),
        (a / b * c, "(a / b) c"),
        (a * b / c, "a b / c"),
        (q.largest(a, b + c), "max(a, b + c)"),
        (q.ceil(a / b), "ceil(a / b)"),
    ):
        assert q.symbols(formula) == text
    assert (a - (b + c), a / (b / c), q.smallest(a, b), q.sqrt(9.0), q.ceil(a / b)) == (
        2,
        10.5,
        2,
        3,
        4,
    )


def test_plain_numbers_pass_through_the_same_formulas():
    before = q.named("a", 7) * 2
    with q.values_only():
        product = before * q.named("b", 5)
        block = q.term("P", "a block", q.named("d", 4) * 3, q.Unit.NUMBER, "somewhere")
    assert (product, type(block), block) == (70, float, 12) and q.symbols(before) == "a 2"
    block = q.term("P_block", "a block", 12 * q.named("d", 4) * q.named("d", 4))
    assert 3 * block == 576 and q.symbols(3 * block) == "3 P_block"
    assert q.numbers(3 * block) == "3 x 192"


def test_a_formula_is_a_function_that_says_what_it_computes():
    @q.formula("F", "products of the head", q.Unit.FLOPS, "somewhere")
    def products(model, plan):
        """Forward only."""
        x = Symbols(model, plan)
        return 2 * x.T * x.d * x.V

    model, plan = find_model("tiny"), Plan(parse_mesh("cp=2"), micro_batch=3, sequence=128)
    line = products(model, plan)
    assert (line, line.symbol, line.what) == (2 * 192 * 128 * 256, "F", "products of the head")
    assert (line.unit, line.source, products.__doc__) == (
        q.Unit.FLOPS,
        "somewhere",
        "Forward only.",
    )
    assert q.symbols(line.formula) == "2 T d V" and q.symbols(line) == "F"
    assert q.symbols(Symbols(find_model("llama3-8b"), Plan(parse_mesh("tp=16"))).kv_held) == "kv"
    with q.values_only():
        assert type(products(model, plan)) is float and products(model, plan) == line


def test_numbers_and_units_are_written_as_people_read_them():
    for number, text in (
        (53248, "53,248"),
        (4.6e14, "4.6e14"),
        (0.75, "0.75"),
        (3e-6, "3e-6"),
        (219848638464, "219,848,638,464"),
    ):
        assert q.number_text(number) == text
    for value, unit, text in (
        (3517578215424, q.Unit.BYTES, "3,517,578,215,424 B = 3,518 GB"),
        (1500, q.Unit.BYTES, "1,500 B"),
        (44, q.Unit.DEVICES, "44 devices"),
        (1.42, q.Unit.SECONDS, "1.42 s"),
        (0.0203, q.Unit.SECONDS, "20.3 ms"),
        (12e-6, q.Unit.SECONDS, "12 us"),
        (0.315, q.Unit.SHARE, "31.5 %"),
    ):
        assert q.text_with_unit(value, unit) == text


# Files.


def machine_error(text):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "machine.json")
        path.write_text(text)
        return sentence(find_machine, str(path)).replace(folder + "/", "")


def test_a_machine_file_is_refused_with_the_place_of_the_mistake():
    device = '"device": {"peak_tflops": 1, "memory_gb": 1, "memory_gbps": 1}'

    def levels(text):
        return machine_error("{" + device + ', "levels": [' + text + "]}")

    def level(fields):
        return levels('{"name": "a", "group": 2, "gbps": 5, ' + fields + "}")

    def of_device(fields):
        return machine_error(
            '{"device": {"peak_tflops": 1, "memory_gb": 1, "memory_gbps": 1, '
            + fields
            + '}, "levels": [{"name": "a", "group": 2, "gbps": 5}]}'
        )

    known = (
        "is an unknown key; known are efficiency, gbps, group, in_network_efficiency, name, "
        "oversubscription, rails, us"
    )
    for seen, expected in (
        (
            levels('{"name": "a", "group": 2, "gbps": -5}'),
            "levels[0].gbps is -5, but a number above 0 is expected",
        ),
        (
            level('"oversubscription": 0.5'),
            "levels[0].oversubscription is 0.5, but a number of at least 1 is expected",
        ),
        (
            level('"oversubscription": 2'),
            "levels[0].oversubscription is 2, but the innermost "
            "level joins devices, which cannot be oversubscribed: move it to the level above",
        ),
        (
            level('"in_network_efficiency": -1'),
            "levels[0].in_network_efficiency is -1, but a number above 0 and at most 1 is expected",
        ),
        (level('"oversubscribed": 2'), f"levels[0].oversubscribed {known}"),
        (of_device('"overlap": 2'), "device.overlap is 2, but a number from 0 to 1 is expected"),
        (levels('{"name": "a", "group": 2, "gbp": 5}'), "levels[0].gbps is missing"),
        (level('"us": 1, "u": 2'), f"levels[0].u {known}"),
        (level('"us": -1'), "levels[0].us is -1, but a number of at least 0 is expected"),
        (
            level('"efficiency": 1.2'),
            "levels[0].efficiency is 1.2, but a number above 0 and at most 1 is expected",
        ),
        (
            levels('{"name": "a", "group": 8, "gbps": 5}, {"name": "b", "group": 8, "gbps": 5}'),
            "levels[1].group is 8, but levels go from the inside out: more than the 8 of "
            "levels[0] is expected",
        ),
        (levels(""), "levels is [], but a list of objects is expected"),
        (
            machine_error('{"device": {"peak_tflops": "fast"}}'),
            'device.peak_tflops is "fast", but a number above 0 is expected',
        ),
        (machine_error('{"device": 5}'), "device is 5, but an object {...} is expected"),
        (
            level('"rails": true'),
            "levels[0].rails is true, but the innermost level joins "
            "devices, and rails join groups of devices: move it to the level above",
        ),
        (level('"rails": 8'), "levels[0].rails is 8, but true or false is expected"),
        (
            of_device(
                '"matmul_efficiency_by_width": [{"width": 8, "efficiency": 0.5}, '
                '{"width": 4, "efficiency": 0.4}]'
            ),
            "device.matmul_efficiency_by_width[1].width is 4, but widths rise: more than the 8 of "
            "the row before is expected",
        ),
        (
            of_device('"matmul_efficiency_by_width": [{"width": 8, "share": 0.5}]'),
            "device.matmul_efficiency_by_width[0].share is an unknown key; known are efficiency, "
            "width",
        ),
        (
            of_device('"matmul_efficiency": 0.5, "matmul_efficiency_by_width": [{"width": 8}]'),
            "device has both matmul_efficiency and matmul_efficiency_by_width: leave out one",
        ),
    ):
        assert seen == "machine.json: " + expected, (seen, expected)
    assert (
        machine_error('{\n"device": {\n"peak_tflops": oops}}')
        == "machine.json is not JSON: the error is in line 3, column 16"
    )
    assert (
        machine_error('{"source": "a"}\0{}')
        == "machine.json is not JSON: the error is in line 1, column 16"
    )
    assert machine_error('{"source": "a", "source": "b"}') == 'machine.json names "source" twice'
    assert machine_error("[" * 17 + "]" * 17) == "machine.json is nested more than 16 levels deep"
    assert (
        machine_error('{"device": {"peak_tflops": 1e999}}')
        == "machine.json has a number that is too large for fp64"
    )
    for digits in "1" + "0" * 400, "9" * 5000:
        assert (
            machine_error('{"device": {"peak_tflops": ' + digits + "}}")
            == "machine.json has a number that is too large for fp64"
        )
    assert (
        machine_error('{"device": NaN}')
        == "machine.json is not JSON: the error is in line 1, column 12"
    )
    assert sentence(find_machine, "a1000").startswith(
        "there is no machine or file named 'a1000' (did you mean a100?); machines: a100, b200, "
    )


def model_of(config):
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "config.json").write_text(json.dumps(config))
        return find_model(folder)


def model_error(**config):
    said = sentence(model_of, config)
    return said[said.index("config.json") :] if "config.json" in said else said


LLAMA = dict(
    model_type="llama",
    vocab_size=100,
    hidden_size=64,
    intermediate_size=160,
    num_hidden_layers=3,
    num_attention_heads=8,
    num_key_value_heads=2,
)


def count(config, **more):
    return float(parameter_count(model_of({**config, **more}))[-1])


def test_a_model_is_refused_with_the_place_of_the_mistake():
    assert sentence(find_model, "llama4").startswith(
        "there is no model or file named 'llama4'; sizes of Ringside: tiny, moe-tiny, lab"
    )
    assert model_error(model_type="bert") == (
        'config.json: model_type is "bert", but llama, mistral, mixtral, qwen3, qwen3_moe, gpt2, '
        "deepseek_v3 or feed_forward is expected"
    )
    assert (
        model_error(model_type="gpt2", vocab_size=0.5)
        == "config.json: vocab_size is 0.5, but an integer from 1 to 1000000000 is expected"
    )
    gpt = dict(model_type="gpt2", vocab_size=10, n_layer=1, n_head=2, n_positions=4)
    assert model_error(**gpt, n_embd=9) == "config.json: the width 9 does not divide into 2 heads"
    assert model_error(**gpt, n_embd=8) == "no error"
    assert (
        model_error(**{**LLAMA, "num_key_value_heads": 3})
        == "config.json: 8 heads cannot share 3 key and value heads evenly"
    )


def test_a_key_that_is_not_read_is_refused_by_name():
    assert model_error(**LLAMA, num_experts=8) == (
        'config.json: the key "num_experts" = 8 is not known: if it does not change the number of '
        "parameters, remove it from the file"
    )
    assert (
        model_error(
            **LLAMA,
            rope_scaling={"factor": 8.0},
            torch_dtype="bfloat16",
            eos_token_id=[1, 2],
            num_experts=None,
        )
        == "no error"
    )
    assert (
        model_error(**{**LLAMA, "model_type": "qwen3"}, mlp_bias=True)
        == "config.json: mlp_bias is true, but false alone is known here"
    )
    assert model_error(**{**LLAMA, "model_type": "qwen3"}, mlp_bias=False) == "no error"


def test_keys_and_defaults_are_those_of_transformers():
    with_bias = 3 * (64 + 2 * 16 + 64)
    none = count(LLAMA)
    assert count(LLAMA, attention_bias=False, mlp_bias=False) == none
    assert count(LLAMA, attention_bias=True) == none + with_bias
    assert count(LLAMA, mlp_bias=True) == none + 3 * (2 * 160 + 64)
    # Left out: as many heads of keys as of queries in Llama, 8 in Mistral, 32 of 128 in Qwen3.
    alone = {key: value for key, value in LLAMA.items() if key != "num_key_value_heads"}
    assert count(alone) == count(LLAMA, num_key_value_heads=8)
    wide = dict(alone, num_attention_heads=32, head_dim=64)
    assert count(wide, model_type="mistral") == count(
        wide, model_type="mistral", num_key_value_heads=8
    )
    assert count(wide, model_type="mistral", num_key_value_heads=None) == count(
        wide, model_type="mistral", num_key_value_heads=32
    )
    small = dict(
        model_type="qwen3",
        vocab_size=151936,
        hidden_size=1024,
        intermediate_size=3072,
        num_hidden_layers=28,
        num_attention_heads=16,
        num_key_value_heads=8,
        tie_word_embeddings=True,
    )
    assert count(small) == count(small, head_dim=128) == 596049920  # as published: Qwen3-0.6B
    gpt = dict(
        model_type="gpt2",
        vocab_size=100,
        n_embd=64,
        n_layer=2,
        n_head=4,
        n_positions=32,
        n_inner=100,
    )
    assert count(gpt) == 68296 and count(gpt, tie_word_embeddings=False) == 68296 + 100 * 64
    assert count(dict(gpt, n_inner=None)) == count(dict(gpt, n_inner=256))


def test_blocks_without_experts_are_counted():
    config = dict(
        model_type="qwen3_moe",
        vocab_size=1000,
        hidden_size=256,
        intermediate_size=1024,
        moe_intermediate_size=64,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=64,
        num_experts=8,
        num_experts_per_tok=2,
        tie_word_embeddings=False,
    )
    attention, edges = 2 * 256 * 256 + 2 * 256 * 128 + 2 * 256 + 2 * 64, 2 * 1000 * 256 + 256
    experts, dense = 8 * 3 * 256 * 64 + 256 * 8, 3 * 256 * 1024
    assert count(config) == edges + 4 * (attention + experts)
    assert count(config, decoder_sparse_step=2) == edges + 4 * attention + 2 * (experts + dense)
    assert count(config, mlp_only_layers=[0]) == edges + 4 * attention + 3 * experts + dense
    assert (
        count(config, decoder_sparse_step=2, mlp_only_layers=[1])
        == edges + 4 * attention + experts + 3 * dense
    )
    model = model_of({**config, "mlp_only_layers": [0]})
    assert active_parameters(model) == count(config, mlp_only_layers=[0]) - 3 * 6 * 3 * 256 * 64
    # All that a step needs and computes is a mean over the blocks.
    whole = account(model, Plan(parse_mesh("ep=2"), sequence=128), find_machine("h100"))
    forward = 2 * 128 * (4 * (attention - 640) + 3 * (2048 + 2 * 3 * 256 * 64) + dense)
    attended, head = 4 * 4 * 128 * 128 * 256, 2 * 128 * 256 * 1000
    near(whole.model_flops, 3 * 2 * (forward + attended + head), 1e-12)
    assert whole.parameters == count(config, mlp_only_layers=[0]) and whole.step_seconds > 0
    assert model_error(**config, mlp_only_layers=3).startswith(
        "config.json: mlp_only_layers is 3, but a list"
    )


# Plans.


def plan_error(model, mesh="", **plan):
    return sentence(
        lambda: account(find_model(model), Plan(parse_mesh(mesh), **plan), find_machine("h100"))
    )


def test_a_plan_that_does_not_divide_the_model_is_refused():
    for seen, expected in (
        (plan_error("llama3-8b", "tp=3"), "the 32 heads of llama3-8b do not divide by tp=3"),
        (plan_error("llama3-8b", "pp=64"), "pp=64 has more stages than llama3-8b has blocks (32)"),
        (
            plan_error("llama3-8b", "pp=4", chunks=2),
            "--chunks 2 needs --schedule interleaved, looped_bfs or interleaved_zb, not 1f1b",
        ),
        (
            plan_error("llama3-8b", "pp=4", schedule="interleaved", chunks=9, micro_batches=4),
            "the 32 blocks of llama3-8b do not suffice for 36 stages: choose a smaller pp or "
            "fewer --chunks",
        ),
        (
            plan_error("llama3-8b", "pp=4", schedule="1f2b"),
            "there is no schedule named '1f2b' (did you mean 1f1b?); there are gpipe, 1f1b, "
            "interleaved, looped_bfs, zb_h1, zb_v, interleaved_zb and dualpipe_v, and csv:FILE "
            "for your own",
        ),
        (
            plan_error("llama3-8b", "pp=4", schedule="interleaved", chunks=2, micro_batches=6),
            "the interleaved schedule needs a multiple of pp=4 micro-batches, not 6",
        ),
        (
            plan_error("llama3-8b", sequence_parallel=True),
            "--sequence-parallel needs tensor parallel: tp=2 or more in --mesh",
        ),
        (
            plan_error("deepseek-v3", "tp=8"),
            "only the state of deepseek-v3 can be accounted "
            "for, and only with the axes dp and fsdp: leave out tp and pp",
        ),
        (
            plan_error("llama3-8b", "dp=100000"),
            "the plan needs 100000 devices, but h100 has 16384: its widest level is InfiniBand",
        ),
        (
            plan_error("llama3-8b", "tp=4,tp=2"),
            "--mesh tp=4,tp=2: the axis tp is named twice; name it once",
        ),
        (
            plan_error("llama3-8b", "tp"),
            "--mesh tp: expected AXIS=SIZE, got 'tp'; write for example --mesh pp=2,dp=2,tp=2",
        ),
        (
            plan_error("llama3-8b", "tp=8,"),
            "--mesh tp=8,: expected AXIS=SIZE, got ''; write for example --mesh pp=2,dp=2,tp=2",
        ),
        (
            plan_error("llama3-8b", "tp=-2"),
            "--mesh tp=-2: expected a size of tp from 1 to 1000000, got '-2'",
        ),
        (
            plan_error("llama3-8b", "xp=2"),
            "--mesh xp=2: there is no axis 'xp'; the axes are pp "
            "(pipeline parallel), dp (data parallel), fsdp (data parallel that shards), cp "
            "(context parallel), tp (tensor parallel) and ep (expert parallel)",
        ),
        (
            plan_error("llama3-8b", "ep=2"),
            "ep divides experts, and llama3-8b has none: leave out ep",
        ),
        (
            plan_error("korthikanti-175b", "cp=2", sequence=2048),
            "context parallel is known for "
            "models with fused attention only, not for korthikanti-175b: leave out cp",
        ),
        (
            plan_error("llama3-8b", "cp=4", sequence=8190),
            "sequences of 8190 tokens do not "
            "divide into 8 equal pieces, which zigzag order needs on 4 context-parallel ranks: "
            "choose a --sequence that is a multiple of 8",
        ),
        (
            sentence(recomputation_from, "evry=2"),
            "expected none, selective, full, every=K for "
            "groups of K blocks, or nested=K1,K2 for groups of K1 with smaller ones of K2 in "
            "them; got 'evry=2'",
        ),
        # 8 key heads are replicated twice on 16 ranks; 24 ranks would share them unevenly.
        (plan_error("llama3-405b", "tp=16"), "no error"),
    ):
        assert seen == expected, (seen, expected)


# Published figures.


def test_the_courses_xxl_parameters_state_devices_and_bounds():
    xxl, types = find_model("xxl"), Types(4.0, 4.0, 2.0)
    assert parameters_of("xxl") == 219_848_638_464
    state = state_of_model(q.named("P", 219_848_638_464), types)
    assert state == 3_517_578_215_424 and bounds.devices_for_state(state, 80e9) == 44
    assert 126 * block_activations(xxl, Plan(sequence=1)) == 17_547_264
    token = 17_547_264.0
    assert bounds.fsdp_devices(state, 0.0, 95e9) == 38
    assert bounds.fsdp_devices(state, 4096 * token, 95e9) == 61
    assert (
        bounds.fsdp_bytes(state, 4096 * token, 61)
        < 95e9
        < bounds.fsdp_bytes(state, 4096 * token, 60)
    )
    split = bounds.Split(16384, 53248, 16, 4, 4.6e14, 1.8e11, 2, 1)
    near(bounds.tokens_if_overlapped(split), 319.44, 2e-5)
    assert round(64 * bounds.tokens_if_overlapped(split)) == 20_444
    near(bounds.tokens_if_added(split), 395.3, 2e-4)
    near(bounds.tokens_at_best_split(split), 61.35, 1e-3)
    near(bounds.best_fsdp(split), 3.07, 1e-3)
    near(bounds.largest_tensor(split), 20.84, 1e-3)
    assert math.isinf(
        bounds.tokens_if_overlapped(bounds.Split(16384, 53248, 2, 32, 4.6e14, 1.8e11, 2, 1))
    )


# Korthikanti et al. 2022, table 3: pp, chunks, micro-batch and batch of each model; figure 1: GiB
# of the state, of all activations and of those with selective recomputation; table 5: seconds with
# full and with selective recomputation.
KORTHIKANTI = {
    "korthikanti-22b": (1, 1, 4, 4, 45.56, 59.25, 9.56, 1.42, 1.10),
    "korthikanti-175b": (8, 3, 1, 64, 45.56, 66.84, 12.35, 18.13, 13.75),
    "korthikanti-530b": (35, 3, 1, 280, 31.64, 114.02, 23.08, 49.05, 37.83),
    "korthikanti-1t": (64, 1, 1, 512, 32.96, 131.25, 26.56, 94.42, 71.49),
}


def plan_of(name, recompute=Recomputation(), sequence_parallel=False):
    pp, chunks, micro_batch, batch = KORTHIKANTI[name][:4]
    return Plan(
        parse_mesh(f"pp={pp},tp=8" if pp > 1 else "tp=8"),
        "interleaved" if chunks > 1 else "1f1b",
        chunks,
        micro_batch,
        batch // micro_batch,
        2048,
        recompute=recompute,
        sequence_parallel=sequence_parallel,
        types=Types(gradients=4.0),
        fused_gradients=True,
    )


def test_korthikanti_state_activations_and_seconds():
    a100 = find_machine("a100")
    for name, (pp, *_, state, full, selective, slow, fast) in KORTHIKANTI.items():
        model, none = find_model(name), plan_of(name)
        kept = plan_of(name, SELECTIVE, True)
        parameters = block_matrices(model) * model.layers / (8 * pp)
        near(state_of_model(parameters, none.types) / GIB, state, 2e-4)
        for plan, expected in ((none, full), (kept, selective)):
            held = blocks_in_flight(plan, pipeline_part(model, plan, 0))
            near(held * block_activations(model, plan) / GIB, expected, 5e-4)
        near(account(model, none, a100).stages[0].bytes_of("activations") / GIB, full, 1e-4)
        near(account(model, plan_of(name, FULL), a100).step_seconds, slow, 0.1)
        near(account(model, kept, a100).step_seconds, fast, 0.1)


def test_zero_megatron_llama_and_experts():
    for stage, gigabytes in enumerate((120, 31.4, 16.6, 1.88)):  # ZeRO, table 1
        plan = Plan(parse_mesh("dp=64"), zero=stage)
        near(
            account(find_model("zero-7.5b"), plan, find_machine("h100")).most_memory() / 1e9,
            gigabytes,
            3e-3,
        )
    for size in ("1.7", "3.6", "7.5", "18.4", "39.1", "76.1", "145.6", "310.1", "529.6", "1008"):
        near(parameters_of(f"megatron-{size}b"), float(size) * 1e9, 0.03)
    # 1T at 163 TFLOP/s, by F = 96 B s l h^2 (1 + s/6h + V/16lh).
    plan = Plan(parse_mesh("pp=64,dp=6,tp=8"), micro_batches=512, sequence=2048, recompute=FULL)
    layers, h, s, vocabulary = 128, 25600, 2048, 51200
    near(
        hardware_flops(find_model("megatron-1008b"), plan),
        96 * 3072 * s * layers * h * h * (1 + s / (6 * h) + vocabulary / (16 * layers * h)),
        1e-12,
    )
    assert parameters_of("llama3-405b") == 405_853_388_800
    assert parameters_of("deepseek-v3") == 671_026_419_200
    model, plan = find_model("llama3-405b"), Plan(parse_mesh("dp=64,pp=16,tp=8"))
    assert [pipeline_part(model, plan, rank).blocks for rank in (0, 1, 14, 15)] == [7, 8, 8, 7]
    for name, whole, active in (
        ("mixtral-8x7b", 46.70e9, 12.88e9),
        ("qwen3-30b-a3b", 30.53e9, 3.35e9),
        ("deepseek-v3", 671.03e9, 37.55e9),
    ):
        near(parameters_of(name), whole, 2e-3)
        near(active_parameters(find_model(name)), active, 2e-3)
    for size, parameters in (("125m", 125311488), ("1b", 1315950592), ("70b", 64862437376)):
        near(parameters_of(f"mpt-{size}"), parameters, 1e-3)  # the biases


def test_memory_of_groups_of_recomputed_blocks():
    """The figures to which a run is held, in C++."""
    model = Model("", "", "llama", 256, 64, 16, 8, 4, 8, 32, sequence=64, own=True)
    for text, expected in (
        ("full", 14499840),
        ("every=2", 14843904),
        ("every=4", 21823488),
        ("every=8", 38928384),
        ("every=16", 74711040),
        ("nested=4,1", 10305536),
        ("nested=8,2", 13795328),
        ("nested=8,1", 11354112),
    ):
        plan = Plan(
            Mesh(),
            micro_batch=32,
            sequence=64,
            types=Types(4.0, 4.0, 4.0),
            recompute=recomputation_from(text),
        )
        assert memory_of_rank(model, plan, 0).of("activations") == expected, text


# The parts of an account.

SMALL = Model("small", "", "llama", 256, 48, 12, 4, 4, 12, 128, sequence=64)
STREAM = 128 * 48 * 4  # T d e of two sequences of 64 tokens
BLOCK, TABLE = 4 * 48 * 48 + 3 * 48 * 128 + 2 * 48, 256 * 48


def small_plan(mesh, **more):
    settings = dict(micro_batch=2, micro_batches=4, sequence=64, types=Types(4.0, 4.0, 4.0))
    return Plan(parse_mesh(mesh), **{**settings, **more})


def small_account(mesh, model=SMALL, **more):
    return account(model, small_plan(mesh, **more), find_machine("h100"))


def sent(of, axis):
    return sum(each.bytes for each in of.traffic if each.axis == axis)


def test_bytes_of_each_axis():
    for t in (2, 4):
        part, edges = (t - 1) / t, 4 * (t - 1) / t * STREAM + 2 * (t - 1) / t * 12 * 128
        assert sent(small_account(f"tp={t}"), "tp") == 4 * (12 * 8 * part * STREAM + edges)
        assert sent(small_account(f"tp={t}", recompute=FULL), "tp") == 4 * (
            12 * 12 * part * STREAM + edges
        )
        # Once a step: the gradients of 25 norms.
        assert (
            sent(small_account(f"tp={t}", sequence_parallel=True), "tp")
            == 4 * (12 * 10 * part * STREAM + edges) + 2 * part * 25 * 48 * 4
        )
    whole = 12 * BLOCK + 2 * TABLE + 48
    for zero, expected in (
        (0, 2 * whole),
        (1, 2 * whole),
        (2, 5 * whole),
        (3, 4 * (2 * whole + 12 * BLOCK)),
    ):
        near(sent(small_account("dp=4", zero=zero), "dp"), 0.75 * 4 * expected, 1e-12)
    assert sent(small_account("pp=4"), "pp") == 4 * STREAM
    experts = replace(SMALL, experts=Experts(8, 2, 128))
    shared = 12 * (4 * 48 * 48 + 2 * 48 + 8 * 48) + 2 * TABLE + 48
    for n in (2, 4, 8):
        near(
            sent(small_account(f"ep={n}", experts), "ep"),
            (n - 1) / n * (4 * 12 * (4 * 2 * STREAM + 8 * 8) + 2 * 4 * shared),
            1e-12,
        )


def test_the_parts_of_a_step_add_up_and_memory_is_in_the_derivation():
    for mesh in ("", "dp=4", "fsdp=4", "tp=4", "pp=4", "pp=2,dp=2,tp=2"):
        result = small_account(mesh)
        near(sum(seconds for _, seconds in result.time), result.step_seconds, 1e-9)
        assert result.binds()[1] == max(seconds for _, seconds in result.time)
        values = {float(line) for section in result.derivation for line in section.terms}
        assert all(row.bytes in values for stage in result.stages for row in stage.rows)
    for schedule, share in (("1f1b", 3 / 11), ("zb_h1", 1 / 9), ("zb_v", 0.5 / 8.5)):
        near(bubble_share(small_plan("pp=4", schedule=schedule, micro_batches=8)), share, 1e-12)


def test_blocks_in_flight_by_schedule_and_stage():
    def held(stage, **plan):
        plan = small_plan("pp=4", **{"micro_batches": 8, **plan})
        return blocks_in_flight(plan, pipeline_part(SMALL, plan, stage))

    for stage in range(4):
        assert held(stage, schedule="gpipe") == 3 * 8
        assert held(stage, schedule="1f1b") == 3 * (4 - stage)
        assert held(stage, schedule="zb_h1") == 3 * 4  # I frees nothing
    assert held(0, schedule="interleaved", chunks=3) == (3 + 1) * 4 - 1  # chunks of one block
    assert held(0, micro_batches=2) == 3 * 2
    # What is in flight grows with the micro-batches of gpipe, and of no other: also where they are
    # too many to be listed.
    assert held(0, micro_batches=10**9) == 3 * 4
    assert held(0, micro_batches=10**9, schedule="gpipe") == 3e9


def test_pipelines_messages_stages_and_networks():
    # A rank sends to each neighbour of its stages; at the turn of the V two stages need no message.
    assert small_account("pp=4").busiest == 3  # with the head
    three = small_account("pp=4", schedule="interleaved", chunks=3)
    edge = three.busiest in (0, 3)
    assert sent(three, "pp") == (5 if edge else 6) * 4 * STREAM
    assert sent(small_account("pp=4", schedule="zb_v", chunks=2), "pp") == 2 * 4 * STREAM
    assert sent(small_account("pp=4,tp=2", sequence_parallel=True), "pp") == 4 * STREAM / 2
    # Llama 3 (2024, section 3.3.2): 126 blocks on 16 ranks, interleaved; the first and the last
    # stage have one block less.
    llama = find_model("llama3-405b")
    for chunks in (1, 4, 8):
        plan = Plan(parse_mesh("pp=16,tp=8"), "interleaved", chunks, micro_batches=16)
        assert [pipeline_part(llama, plan, rank).blocks for rank in (0, 1, 7, 14, 15)] == [
            7,
            8,
            8,
            8,
            7,
        ]
    # The groups of pp span all 64 devices, those of tp 8 neighbours.
    for each in small_account("pp=2,dp=8,tp=4").traffic:
        assert each.level == ("NVLink" if each.axis == "tp" else "InfiniBand")
    assert {each.level for each in small_account("tp=4,dp=2").traffic} == {"NVLink"}


def test_communication_hides_as_far_as_it_fits_behind_computing():
    h100 = find_machine("h100")

    def on(mesh, rate, latency=None):
        levels = tuple(replace(level, bytes_per_second=rate) for level in h100.levels)
        if latency is not None:
            levels = tuple(replace(level, latency=latency) for level in levels)
        return account(SMALL, small_plan(mesh), replace(h100, levels=levels))

    def hidden(of, axis):
        return sum(each.hidden for each in of.traffic if each.axis == axis)

    def stage(of):
        return next(
            float(line)
            for section in of.derivation
            for line in section.terms
            if line.symbol == "t_stage"
        )

    # On a slow network backward of the last micro-batch hides, two thirds of its time. Of four
    # micro-batches, three kinds of calls, each behind a third of the time. Of 12 blocks, 11 hide
    # the gather of the next one in backward; in forward the last hides that of the head.
    data, sharded = on("dp=4", 1e6), on("fsdp=4", 1e6)
    near(hidden(data, "dp"), stage(data) * 2 / 3, 1e-9)
    near(hidden(sharded, "fsdp"), 4 * stage(sharded) / 3 * (1 + 11 / 12 + 1), 1e-9)
    assert hidden(on("tp=4", 1e6), "tp") == 0 and data.binds()[0] == "dp communication, exposed"
    # A fast network hides everything but the calls that no block runs beside.
    assert all(each.exposed == 0 for each in on("dp=4", 1e15, 0.0).traffic)
    shares = [
        round(each.exposed / each.seconds * each.calls / 4)
        for each in on("fsdp=4", 1e15, 0.0).traffic
    ]
    assert shares == [2, 1, 2]  # of 14, 12 and 14 in each micro-batch


def test_memory_of_ranks_that_shard():
    lab = find_model("lab")

    def needed(ranks=1, model=lab, sequence=256, **plan):
        plan = Plan(
            parse_mesh(f"dp={ranks}"), sequence=sequence, types=Types(4.0, 4.0, 4.0), **plan
        )
        return memory_of_rank(model, plan, 0)

    whole = parameters_of("lab") * 4
    one, four = needed(micro_batch=16), needed(4, micro_batch=4, gradient_copies=2.0)
    assert one.of("parameters") == four.of("parameters") == whole
    assert four.of("gradients") == four.of("optimizer_state") == 2 * whole
    assert needed(micro_batch=4, micro_batches=4).of("activations") == four.of("activations")
    # Two units in bytes: the head with the last norm, which are as large as the embedding; and a
    # block, which has four square matrices, three of the feed-forward part and two norms.
    units = 4.0 * (10000 * 512 + 512 + 4 * 512 * 512 + 3 * 512 * 1344 + 2 * 512)
    part = needed(4, sequence=1, zero=3)
    assert part.of("parameters") == whole / 4 + units
    assert part.of("gradients") == whole / 4 + 2 * units
    near(part.of("optimizer_state"), whole / 2, 1e-4)
    # A wide model of few blocks: its parameters alone are more than what is left of them.
    wide = Model("", "", "llama", 100, 8, 100_000, 8, 4, 1, 8, sequence=64, own=True)
    assert needed(100_000, wide, 1, zero=3).at_start == 4 * float(parameter_count(wide)[-1])


def test_fit_finds_meshes_that_fit_the_fastest_first():
    model, h100, watched = find_model("llama3-8b"), find_machine("h100"), []

    def watch(mesh):
        watched.append(mesh)
        return mesh

    found = fit(model, h100, FitOptions(16, 16, 8192), lambda meshes: map(watch, meshes))
    times = [each.step_seconds for each in found.accounts]
    assert len(times) >= 3 and times == sorted(times) and watched
    meshes = [each.plan.mesh for each in found.accounts]
    assert (
        all(mesh.ranks() == 16 for mesh in watched)
        and len(set(meshes)) == len(meshes)
        and all(mesh.ranks() == 16 for mesh in meshes)
    )
    for each in found.accounts:
        assert each.fits() and each.plan.batch == 16
        if each.plan.mesh.size("pp") > 1:  # every schedule is tried
            plain = replace(each.plan, schedule="1f1b", chunks=1)
            assert each.step_seconds < account(model, plain, h100).step_seconds
    none = fit(model, replace(h100, memory=1e9), FitOptions(16, 16, 8192))
    assert not none.accounts and none.least_memory > 1e9 and none.tried == found.tried


def test_ranks_of_a_mesh():
    mesh = parse_mesh("dp=2,tp=3")
    assert mesh.members(4, "tp") == [3, 4, 5] and mesh.members(4, "dp") == [1, 4]
    assert mesh.describe(4) == "dp=1,tp=1"
    assert (mesh.stride("dp"), mesh.stride("pp"), Mesh().text()) == (3, 1, "one device")
