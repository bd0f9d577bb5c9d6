"""`ringside tokenize`: families of tokenizers, any bytes, what the core reads, and fingerprints.

tokenizers/ has tokenizers and ids that make_tokenizer_reference.py wrote, and fingerprints.json
what Ringside saved in its checkpoints when it read these files in C++.
"""

import array
import io
import json
import os
import random
import sys
import tempfile
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path

import tokenizers
from ringside.__main__ import main
from ringside.lab import corpus
from ringside.lab import tokenizer as ours
from ringside.library import RingsideError
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors, trainers

REFERENCE = Path(__file__).parent / "tokenizers"
TEXTS = json.loads((REFERENCE / "texts.json").read_text())
FINGERPRINTS = json.loads((REFERENCE / "fingerprints.json").read_text())
LEARN_FROM = (REFERENCE / "learn_from.txt").read_text()
GPT2 = str(REFERENCE / "gpt2.json")


def reference(name):
    return ours.load(REFERENCE / f"{name}.json")


def changed(name, change):
    """A reference tokenizer after change(its JSON)."""
    data = json.loads((REFERENCE / f"{name}.json").read_text())
    change(data)
    return ours.parse(json.dumps(data), name)


def parsed(library):
    return ours.parse(library.to_str(), "made here")


@contextmanager
def folder():
    with tempfile.TemporaryDirectory() as path:
        yield Path(path)


def command(*words):
    """What a command prints, and what it prints as an error, and its exit code."""
    out, err = io.TextIOWrapper(io.BytesIO(), "utf-8"), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        code = main([*map(str, words)])
    out.flush()
    return out.buffer.getvalue().decode("utf-8", "replace"), err.getvalue(), code


def tokenize(*words):
    return command("tokenize", *words)


def refusal(*words, code=1):
    out, err, ended = tokenize(*words)
    assert (out, ended) == ("", code), (out, err)
    return err


def error_of(call, *arguments):
    try:
        call(*arguments)
    except RingsideError as error:
        return str(error)
    raise AssertionError("expected an error")


def any_bytes(seed, pieces):
    """Text with letters, spaces, digits, long characters, special tokens, and broken bytes."""
    some = [b"a", b" ", b"\n", b"the", b"ring", b"22", "ä".encode(), "日".encode(), "🙂".encode()]
    some += [b"'s", b"<|endoftext|>", b"\t", b"\xff", b"\xc3", b"<|", b"\xe2\x82", b"++", b"\r"]
    chosen = random.Random(seed)
    pick = [lambda: chosen.choice(some), lambda: bytes([chosen.randrange(256)])]
    return b"".join(chosen.choice(pick)() for _ in range(pieces))


# Ids and bytes.


def test_ids_of_the_library_with_and_without_special_tokens():
    for name in FINGERPRINTS:
        tokenizer = reference(name)
        for text, row in zip(TEXTS, json.loads((REFERENCE / f"{name}.ids.json").read_text())):
            ids = ours.encode(tokenizer, text.encode())
            assert list(ids) == row["ids"], (name, text)
            assert len(ours.with_special_tokens(tokenizer, ids)) == row["framed"]
    assert list(ours.with_special_tokens(reference("llama3"), [7, 8])) == [1, 7, 8]
    assert list(ours.with_special_tokens(reference("digits"), [7, 8])) == [7, 8, 0]
    assert list(ours.with_special_tokens(reference("gpt2"), [7, 8])) == [7, 8]


def test_any_bytes_come_back_from_byte_level_tokens_and_are_counted():
    # Not llama3, whose <mask> removes white space.
    for name in ("gpt2", "digits", "split_isolated", "split_contiguous"):
        tokenizer = reference(name)
        counts = ours.vocabulary_of(tokenizer)["byte_counts"]
        texts = [bytes([byte]) for byte in range(256)]
        texts += [any_bytes(seed, seed) for seed in range(200)]
        for text in texts + [each.encode() for each in TEXTS]:
            if name == "digits" and b"<mask>" in text:  # removes white space, too
                continue
            ids = ours.encode(tokenizer, text)
            assert ours.decode(tokenizer, ids) == text
            assert sum(counts[id] for id in ids) == len(text)


def test_a_long_text_has_the_ids_of_one_call_of_the_library():
    text = "".join(random.Random(3).choice(TEXTS) + " " for _ in range(20000))
    for name in ("gpt2", "llama3", "prefix_space", "split_merged_with_next"):
        library = reference(name).library
        whole = library.encode(text, add_special_tokens=False).ids
        assert len(text) > 3 * ours.PIECE
        assert list(ours.encode_text(library, text)) == whole
    spaces = "a" + " " * (2 * ours.PIECE) + "b"  # one word: no place to cut
    library = reference("gpt2").library
    assert list(ours.encode_text(library, spaces)) == library.encode(spaces).ids


def test_bytes_that_are_not_utf_8_without_a_token_are_refused():
    def without_ff(data):
        del data["model"]["vocab"]["ÿ"]

    tokenizer = changed("split_isolated", without_ff)
    assert ours.decode(tokenizer, ours.encode(tokenizer, b"a \xfe")) == b"a \xfe"
    assert error_of(ours.encode, tokenizer, b"a \xff") == (
        "the tokenizer split_isolated has no token for a byte of the text that is not UTF-8"
    )


# Families.


def trained(model, trainer, **parts):
    made = tokenizers.Tokenizer(model)
    for name, part in parts.items():
        setattr(made, name, part)
    made.train_from_iterator(LEARN_FROM.splitlines(), trainer)
    return made


def word_piece():
    made = trained(
        models.WordPiece(unk_token="[UNK]"),
        trainers.WordPieceTrainer(
            vocab_size=200, special_tokens=["[UNK]", "[CLS]", "[SEP]"], show_progress=False
        ),
        normalizer=normalizers.BertNormalizer(lowercase=True),
        pre_tokenizer=pre_tokenizers.BertPreTokenizer(),
        decoder=decoders.WordPiece(),
    )
    special = [(name, made.token_to_id(name)) for name in ("[CLS]", "[SEP]")]
    made.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=special
    )
    return made


def unigram(normalizer):
    return trained(
        models.Unigram(),
        trainers.UnigramTrainer(
            vocab_size=200, unk_token="<unk>", special_tokens=["<unk>"], show_progress=False
        ),
        normalizer=normalizer,
        pre_tokenizer=pre_tokenizers.Metaspace(),
        decoder=decoders.Metaspace(),
    )


def test_word_piece_with_special_tokens():
    tokenizer = parsed(word_piece())
    ids = ours.encode(tokenizer, b"The ring waits")
    assert ours.decode(tokenizer, ids) == b"the ring waits"
    framed = ours.with_special_tokens(tokenizer, ids)
    assert (framed[0], framed[-1], framed[1:-1]) == (1, 2, ids)
    assert ours.decode(tokenizer, framed, skip_special=True) == b"the ring waits"
    counts = ours.vocabulary_of(tokenizer)["byte_counts"]
    assert sum(counts[id] for id in ids) == len(" the ring waits")  # each word brings its space
    assert ours.vocabulary_of(tokenizer)["beginning"] == [1, 2]  # an empty line has no other token


def test_unigram_with_unicode_normal_forms():
    for normalizer in (normalizers.NFC(), normalizers.NFKC()):
        tokenizer = parsed(unigram(normalizer))
        text = "the ring waits for größer"
        ids = ours.encode(tokenizer, text.encode())
        assert ours.decode(tokenizer, ids) == text.encode()
        counts = ours.vocabulary_of(tokenizer)["byte_counts"]
        assert sum(counts[id] for id in ids) == len(text.encode()) + 1  # and a space before it
        decomposed = text.replace("ö", "o\u0308").encode()
        assert ours.encode(tokenizer, decomposed) == ids


def test_byte_level_tokens_after_a_normal_form_as_qwen_has_them():
    def as_qwen(data):
        data["normalizer"] = {"type": "NFC"}

    tokenizer = changed("llama3", as_qwen)
    text = "Größe and the ring\n".encode()
    assert ours.decode(tokenizer, ours.encode(tokenizer, text)) == text
    decomposed = "Gro\u0308ße and the ring\n".encode()
    assert ours.encode(tokenizer, decomposed) == ours.encode(tokenizer, text)
    assert ours.canonical(tokenizer) != ours.canonical(reference("llama3"))


def test_bytes_of_sentencepiece():
    vocabulary = {"<unk>": 0, **{f"<0x{byte:02X}>": byte + 1 for byte in range(256)}}
    vocabulary.update({"▁": 257, "a": 258, "▁a": 259})
    made = tokenizers.Tokenizer(
        models.BPE(vocabulary, [("▁", "a")], unk_token="<unk>", byte_fallback=True, fuse_unk=True)
    )
    made.normalizer = normalizers.Sequence(
        [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
    )
    made.decoder = decoders.Sequence(
        [
            decoders.Replace("▁", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(" ", 1, 0),
        ]
    )
    tokenizer = parsed(made)
    ids = ours.encode(tokenizer, "a a日".encode())
    assert list(ids) == [259, 259, 0xE6 + 1, 0x97 + 1, 0xA5 + 1]
    assert ours.decode(tokenizer, ids) == "a a日".encode()
    counts = ours.vocabulary_of(tokenizer)["byte_counts"]
    assert [counts[id] for id in ids] == [2, 2, 1, 1, 1]
    assert '"fuse_unk": true' in ours.canonical(tokenizer)


def test_an_added_token_that_is_a_token_of_the_vocabulary_too_comes_back():
    def add_both(data):
        for content in ("Ġring", "ö"):
            token = {"id": data["model"]["vocab"][content], "content": content}
            flags = dict.fromkeys(
                ("single_word", "lstrip", "rstrip", "normalized", "special"), False
            )
            data["added_tokens"].append({**token, **flags})

    tokenizer = changed("gpt2", add_both)
    for text in ("the ring, the rings", "schön, größer", "<|endoftext|> ring"):
        ids = ours.encode(tokenizer, text.encode())
        assert ours.decode(tokenizer, ids) == text.encode()
        counts = ours.vocabulary_of(tokenizer)["byte_counts"]
        assert sum(counts[id] for id in ids) == len(text.encode())


def test_truncation_padding_and_dropout_do_not_change_ids():
    def add_all(data):
        data["truncation"] = {
            "direction": "Right",
            "max_length": 2,
            "strategy": "LongestFirst",
            "stride": 0,
        }
        data["padding"] = {
            "strategy": {"Fixed": 50},
            "direction": "Right",
            "pad_to_multiple_of": None,
            "pad_id": 0,
            "pad_type_id": 0,
            "pad_token": "x",
        }
        data["model"]["dropout"] = 0.5

    text = b"the ring passes each chunk"
    assert ours.encode(changed("gpt2", add_all), text) == ours.encode(reference("gpt2"), text)


# What a run keeps.


def test_fingerprints_are_those_of_older_versions():
    for name, expected in FINGERPRINTS.items():
        assert ours.vocabulary_of(reference(name))["fingerprint"] == expected, name
    # The layout of a file does not count, nor what it leaves out.
    old_form = changed("gpt2", lambda data: None)
    assert ours.vocabulary_of(old_form)["fingerprint"] == FINGERPRINTS["gpt2"]

    def as_old_files(data):
        model = data["model"]
        merges = [" ".join(each) for each in model["merges"]]
        data["model"] = {"vocab": model["vocab"], "merges": ["#version: 0.2", *merges]}

    data = json.loads((REFERENCE / "gpt2.json").read_text())
    as_old_files(data)
    old = ours.Tokenizer("old", "", data, None, True, [], frozenset())
    assert ours.fingerprint(ours.canonical(old).encode()) == FINGERPRINTS["gpt2"]


def test_what_is_learnt_equals_the_library_and_its_file_is_canonical():
    learnt = ours.train(LEARN_FROM.encode(), 420, ["<|endoftext|>"], 2, None)
    assert learnt.text == (REFERENCE / "gpt2.json").read_text()
    assert ours.canonical(learnt) == learnt.text
    with_pattern = ours.train(
        LEARN_FROM.encode(), 300, ["<a>", "<b>"], 5, r"\p{L}+|\s+|[^\p{L}\s]+"
    )
    assert ours.canonical(with_pattern) == with_pattern.text
    assert with_pattern.tokens[:2] == [b"<a>", b"<b>"]
    text = b"any \xff bytes"
    assert ours.decode(with_pattern, ours.encode(with_pattern, text)) == text


def test_a_corpus_holds_out_the_bytes_that_a_run_on_bytes_does():
    text = LEARN_FROM.encode() * 50 + b"\xff"
    training, held_out = corpus.parts_of(text)
    assert len(training) + len(held_out) == len(text)
    size = len(text) // 20
    assert held_out.startswith(text[19 * size : 20 * size])
    with folder() as path:
        (path / "text.txt").write_bytes(text)
        out, err, code = tokenize(
            "--tokenizer", GPT2, "--data", path / "text.txt", "--out", path / "text.u16"
        )
        assert (err, code) == ("", 0) and "held out" in out
        kept = json.loads((path / "text.corpus.json").read_text())
        ids = array.array("H", (path / "text.u16").read_bytes())
        tokenizer = reference("gpt2")
        parts = ids[: kept["training_tokens"]], ids[kept["training_tokens"] :]
        assert len(parts[1]) == kept["held_out_tokens"]
        assert [ours.decode(tokenizer, part) for part in parts] == [training, held_out]
        assert kept["bytes"] == len(text) and kept["held_out_bytes"] == len(held_out)
        assert kept["text"] == ours.fingerprint(training + held_out)
        assert kept["files"] == 1
        assert kept["tokenizer"] == (REFERENCE / "gpt2.json").read_text()
        assert kept["vocabulary"] == ours.vocabulary_of(tokenizer)
        counts = kept["vocabulary"]["byte_counts"]
        assert sum(counts[id] for id in ids) == len(text)


def test_text_is_read_as_the_core_reads_it():
    with folder() as path:
        for name, data in {"b.txt": b"B", "a/z.txt": b"Z", "c": b"C", "d.bin": b"\0"}.items():
            (path / name).parent.mkdir(exist_ok=True)
            (path / name).write_bytes(data)
        (path / "gone").symlink_to("/nowhere")
        text = corpus.read_text([path / "b.txt", path])
        assert (text.data, text.files) == (b"BZBC", 4)
        (path / "empty").write_bytes(b"")
        assert error_of(corpus.read_text, [path / "empty"]) == (
            f"{path}/empty is empty: there is nothing to learn from it"
        )
        assert error_of(corpus.read_text, [path / "no"]) == (
            f"there is no file or directory {path}/no"
        )
        (path / "bare").mkdir()
        assert error_of(corpus.read_text, [path / "bare"]) == (
            f"the directory {path}/bare holds no readable text"
        )


def test_the_default_corpus_is_the_library_of_the_compiler_here():
    assert (corpus.default_corpus() / "vector").exists()
    there, os.environ["CXX"] = os.environ.get("CXX"), "/nowhere/c++"
    try:
        assert error_of(corpus.default_corpus) == (
            "the compiler /nowhere/c++ does not say where the C++ standard library headers are: "
            "name a text with --data"
        )
    finally:
        os.environ.pop("CXX")
        if there:
            os.environ["CXX"] = there


# The command.


def test_tokens_of_a_text_are_printed_with_their_bytes():
    out, err, code = tokenize("--tokenizer", GPT2, "the ring\n\udcff<|endoftext|>")
    assert (err, code) == ("", 0)
    assert '  " ring"\n' in out and '  "\\n"\n' in out and '  "\\xff"\n' in out
    assert '       0  "<|endoftext|>"\n' in out and " tokens for 23 bytes, " in out
    llama3 = REFERENCE / "llama3.json"
    assert tokenize("--tokenizer", llama3, "a")[0].startswith('       1  "<|begin|>"\n')
    assert "begin" not in tokenize("--tokenizer", llama3, "--plain", "a")[0]


def test_decode_gives_the_text_back():
    text = "It's the\tring, Größe 12345 🙂\n"
    with folder() as path:
        figures = path / "figures.json"
        assert tokenize("--tokenizer", GPT2, "--json", figures, text)[2] == 0
        written = json.loads(figures.read_text())
    assert written["bytes"] == len(text.encode()) and written["tokens"] == len(written["ids"])
    assert written["bytes_per_token"] == written["bytes"] / written["tokens"]
    ids = tokenize("--tokenizer", GPT2, "--ids", text)[0]
    assert ids == ",".join(map(str, written["ids"])) + "\n"
    assert tokenize("--tokenizer", GPT2, "--decode", ids)[0] == text
    with_special = ["--tokenizer", GPT2, "--decode", f"0,{ids}", "--skip-special"]
    assert tokenize(*with_special)[0] == text
    there, sys.stdin = sys.stdin, io.StringIO(ids)
    try:
        assert tokenize("--tokenizer", GPT2, "--decode", "-")[0] == text
    finally:
        sys.stdin = there


def test_files_of_ids():
    with folder() as path:
        (path / "text.txt").write_bytes(b"the ring, the ranks\nand \xff the rest")
        for name in ("ids.u16", "ids.u32", "ids.json"):
            words = ("--tokenizer", GPT2, "--file", path / "text.txt", "--out", path / name)
            out, err, _ = tokenize(*words)
            assert err == "" and " bytes per token; " in out
        ids = json.loads((path / "ids.json").read_text())
        assert list(array.array("H", (path / "ids.u16").read_bytes())) == ids
        assert list(array.array("I", (path / "ids.u32").read_bytes())) == ids
        assert sorted(each.name for each in path.iterdir()) == [
            "ids.json",
            "ids.u16",
            "ids.u32",
            "text.txt",
        ]
        assert error_of(corpus.write_tokens, path / "x.u16", [65536]) == (
            "the id 65536 does not fit into 2 bytes: write to a file NAME.u32"
        )


def test_train_saves_a_folder_that_a_checkpoint_can_have():
    with folder() as path:
        learn = ("--train", 420, "--data", REFERENCE / "learn_from.txt", "--save", path / "t")
        out, err, _ = tokenize(*learn, "--json", path / "figures.json")
        assert err == "" and f"saved    {path}/t/tokenizer.json\n" in out
        assert (path / "t/tokenizer.json").read_text() == (REFERENCE / "gpt2.json").read_text()
        kept = json.loads((path / "t/vocabulary.json").read_text())
        assert kept["fingerprint"] == FINGERPRINTS["gpt2"]
        assert json.loads((path / "figures.json").read_text())["files"] == 1
        (path / "t/vocabulary.json").unlink()  # a checkpoint of an older version
        assert tokenize("--tokenizer", path / "t", "--save", path / "t")[2] == 0
        assert json.loads((path / "t/vocabulary.json").read_text()) == kept
        assert refusal("--tokenizer", REFERENCE / "llama3.json", "--save", path / "t") == (
            f"ringside: {path}/t/tokenizer.json is another tokenizer: save to another folder\n"
        )
        assert "These are all: " in tokenize(*learn[:1], 5000, *learn[2:])[0]


def test_generate_encodes_the_prompt_and_decodes_what_the_program_prints():
    with folder() as path:
        program, model = path / "program", path / "model"
        program.write_text(
            f'#!/bin/sh\n[ -n "$*" ] && echo "$@" >{path}/words\necho "$(cat),0,1,99999"\n'
        )
        program.chmod(0o755)
        model.mkdir()
        (model / "tokenizer.json").write_text((REFERENCE / "gpt2.json").read_text())
        (path / "prompt.txt").write_bytes("größer \x1b".encode() + b"\xff")
        there, os.environ["RINGSIDE_PROGRAM"] = os.environ.get("RINGSIDE_PROGRAM"), str(program)
        try:
            from_words = command("generate", "--init", model, "--prompt", "the ring", "--tokens", 3)
            assert from_words == ("the ring<|endoftext|>!?\n", "", 0)
            words = (path / "words").read_text()
            assert words == f"generate --init {model} --prompt-tokens - --tokens 3\n"
            from_file = command("generate", f"--init={model}", "--prompt-file", path / "prompt.txt")
            assert from_file == ("größer \\x1b\\xff<|endoftext|>!?\n", "", 0)
            assert command("generate", "--init", model, "--prompt", "")[1:] == (
                "ringside: a prompt needs at least one byte\n",
                1,
            )
        finally:
            os.environ.pop("RINGSIDE_PROGRAM")
            if there:
                os.environ["RINGSIDE_PROGRAM"] = there


def test_wrong_arguments():
    def usage(*words):
        text = refusal(*words, code=2)
        assert text.endswith("\nTry: ringside tokenize --help\n")
        return text.splitlines()[0]

    tasks = (
        "ringside: choose one task: a text, --file FILE, --data PATH, --decode IDS or --save DIR"
    )
    assert usage("text") == (
        "ringside: choose a tokenizer (--tokenizer FILE), or train one (--train N --save DIR)"
    )
    assert usage("--tokenizer", GPT2) == tasks
    assert usage("--tokenizer", GPT2, "text", "--decode", "1") == tasks
    assert usage("--tokenizer", GPT2, "text", "--out", "ids.bin") == (
        "ringside: the name of ids.bin must end in .u16, .u32 or .json, which determines the format"
    )
    assert usage("--tokenizer", GPT2, "--data", "x") == (
        "ringside: name the tokens of --data with --out: NAME.u16 or NAME.u32"
    )
    assert usage("--train", "300") == (
        "ringside: --train needs a place for the tokenizer: name it with --save"
    )
    assert usage("--train", "300", "--save", "x", "text").startswith(
        "ringside: --train makes a tokenizer: leave out --tokenizer, the text, --file, --decode"
    )
    assert "ids with commas between them" in usage("--tokenizer", GPT2, "--decode", "a")
    learn = ("--save", "x", "--data", REFERENCE / "learn_from.txt")
    assert refusal("--train", "100", *learn) == (
        "ringside: a vocabulary of 100 has no room for the 256 bytes and 1 special token: it needs "
        "at least 257\n"
    )
    assert refusal("--train", "300", *learn, "--special", "a", "a") == (
        'ringside: the special token "a" is given twice\n'
    )
    assert refusal("--train", "300", *learn, "--pattern", "(").startswith(
        "ringside: the regular expression ( cannot be used: "
    )
    assert "there is no token with the id 99999: the tokenizer has " in refusal(
        "--tokenizer", GPT2, "--decode", "99999"
    )


def test_bad_files_are_refused_by_their_name():
    assert refusal("--tokenizer", "/nowhere.json", "x") == (
        "ringside: cannot read the tokenizer /nowhere.json: No such file or directory\n"
    )
    good = (REFERENCE / "split_removed.json").read_text()
    bad = ["", "{", "null", "[1]", "7", "{}", '{"model": 7}', "[" * 100000, good[:-20], "\udcff"]
    bad.append(
        good.replace('"type": "BPE"', '"type": "Other"').replace('"type":"BPE"', '"type":""')
    )
    bad.append(json.dumps({**json.loads(good), "decoder": {"type": "Other"}}))
    with folder() as path:
        for content in bad:
            (path / "tokenizer.json").write_text(content, "utf-8", "surrogateescape")
            error = refusal("--tokenizer", path, "x")
            assert error.startswith(f"ringside: the tokenizer {path}/tokenizer.json cannot be used")
        (path / "tokenizer.json").write_text('{"model": {}}\0' + good)  # goes on after its end
        assert "cannot be used: Extra data: line 1 column 14" in refusal("--tokenizer", path, "x")

        sparse = json.loads(good)
        sparse["model"]["vocab"]["unused"] = 10**9
        (path / "tokenizer.json").write_text(json.dumps(sparse))
        assert "it has the id 1000000000, which is not possible in a vocabulary of " in refusal(
            "--tokenizer", path, "x"
        )


def test_without_the_package_one_sentence_says_what_to_install():
    there = sys.modules["tokenizers"]
    sys.modules["tokenizers"] = None  # import tokenizers fails
    try:
        assert refusal("--tokenizer", GPT2, "x") == (
            f"ringside: a tokenizer needs the Python package tokenizers, which {sys.executable} "
            "does not have: install it (pip install tokenizers)\n"
        )
    finally:
        sys.modules["tokenizers"] = there
