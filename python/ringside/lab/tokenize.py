"""`ringside tokenize`: encodes text as tokens, decodes tokens, and trains tokenizers."""

import argparse
import json
import os
import re
import sys
import time
from pathlib import Path
from typing import Any, Dict, List

from ringside.command_line import (
    JSON_OPTION,
    Command,
    Flag,
    Option,
    UsageError,
    Words,
    counted,
    in_range,
    text_beside,
)
from ringside.lab import tokenizer as tokenizers
from ringside.lab.corpus import (
    Text,
    default_corpus,
    is_token_file,
    read_text,
    write_corpus,
    write_tokens,
    write_whole,
)
from ringside.lab.report import write_json_file
from ringside.lab.tokenizer import Tokenizer
from ringside.library import RingsideError

SPECIAL = ["<|endoftext|>"]
USE, LEARN = "Use a tokenizer", "Train a tokenizer, or a model"  # headings of the help
# Control characters, which may move the cursor, those that change the direction of the text, and
# bytes that are not UTF-8.
UNSAFE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\udc80-\udcff]"
)


def printable(data: bytes) -> str:
    """Bytes as text that is safe to print: what is no character, or none to print, is \\xNN."""

    def escaped(found: "re.Match[str]") -> str:
        return "".join(f"\\x{byte:02x}" for byte in found[0].encode("utf-8", "surrogateescape"))

    return UNSAFE.sub(escaped, data.decode("utf-8", "surrogateescape"))


def on_one_line(data: bytes) -> str:
    return printable(data).replace("\n", "\\n").replace("\t", "\\t")


def ids_from(text: str) -> List[int]:
    """ "464,262,1001": ids with commas or white space between them."""
    try:
        return [int(each) for each in re.split(r"[,\s]+", text.strip(", \t\r\n"))]
    except ValueError:
        raise UsageError(
            f"ids with commas between them are expected, such as 464,262,1001, not {text[:60]!r}"
        ) from None


def read_data(args: argparse.Namespace) -> Text:
    return read_text([Path(path) for path in args.data or [default_corpus()]])


def per(a: int, b: int) -> float:
    return a / b if b else 0.0


def figures_of(tokenizer: Tokenizer, size: int, ids: int) -> Dict[str, Any]:
    """Of a text of `size` bytes."""
    return {
        "vocabulary": len(tokenizer.tokens),
        "bytes": size,
        "tokens": ids,
        "bytes_per_token": per(size, ids),
    }


def write_figures(args: argparse.Namespace, figures: Dict[str, Any]) -> None:
    if args.json:
        write_json_file(args.json, figures)


# The tasks.


def save(path: Path, tokenizer: Tokenizer) -> Path:
    """A file NAME.json, or a folder with tokenizer.json, what transformers' AutoTokenizer needs, and
    vocabulary.json, by which `ringside eval` knows the bytes of the tokens."""
    if path.suffix == ".json":
        write_whole(path, tokenizer.text.encode())
        return path
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RingsideError(f"cannot create the directory {path}: {error.strerror}") from None
    write_whole(path / "tokenizer.json", tokenizer.text.encode())
    config = path / "tokenizer_config.json"
    if not config.exists():
        kind = {"tokenizer_class": "PreTrainedTokenizerFast"}
        write_whole(config, (json.dumps(kind, indent=2) + "\n").encode())
    vocabulary = tokenizers.vocabulary_of(tokenizer)
    write_whole(path / "vocabulary.json", (json.dumps(vocabulary) + "\n").encode())
    return path / "tokenizer.json"


def copy(path: Path, tokenizer: Tokenizer) -> None:
    """Into a folder that may be a checkpoint: the tokens of its model stay what they are."""
    there = path if path.suffix == ".json" else path / "tokenizer.json"
    if there.exists() and there.read_bytes() != tokenizer.text.encode():
        raise RingsideError(f"{there} is another tokenizer: save to another folder")
    print(f"saved    {save(path, tokenizer)}")


def train(args: argparse.Namespace) -> None:
    start = time.perf_counter()
    text = read_data(args)
    learnt = tokenizers.train(
        text.data, args.train, args.special or SPECIAL, args.min_frequency, args.pattern
    )
    seconds = time.perf_counter() - start
    saved = save(Path(args.save), learnt)
    size, ids = len(text.data), len(tokenizers.encode(learnt, text.data))
    out = text_beside(args.json)
    print(
        f"{len(learnt.tokens)} tokens learnt from {counted(text.files, 'file')}, {size} bytes, in "
        f"{seconds:.1f} s\nthe text is {ids} tokens: {per(size, ids):.2f} bytes per token\n"
        f"saved    {saved}",
        file=out,
    )
    if len(learnt.tokens) < args.train:
        print(
            f"These are all: no other pair occurs {args.min_frequency} times or more "
            "(--min-frequency).",
            file=out,
        )
    figures = figures_of(learnt, size, ids)
    write_figures(args, {**figures, "files": text.files, "train_s": seconds})


def encode(args: argparse.Namespace, tokenizer: Tokenizer, text: bytes, each: bool) -> None:
    """A short text (`each`) is printed token by token, a file only counted."""
    start = time.perf_counter()
    ids = tokenizers.encode(tokenizer, text)
    if not args.plain:
        ids = tokenizers.with_special_tokens(tokenizer, ids)
    seconds = time.perf_counter() - start
    if args.out:
        write_tokens(Path(args.out), ids)
    lines = [f'{id:>8}  "{on_one_line(tokenizer.tokens[id] or b"")}"' for id in ids if each]
    lines.append(
        f"{counted(len(ids), 'token')} for {counted(len(text), 'byte')}, "
        f"{per(len(text), len(ids)):.2f} bytes per token"
        + ("" if each else f"; {len(text) / 1e6 / seconds:.1f} MB/s")
    )
    if args.ids:
        lines = [",".join(map(str, ids))]
    print("\n".join(lines), file=text_beside(args.json))
    figures = figures_of(tokenizer, len(text), len(ids))
    write_figures(args, {**figures, "ids": list(ids)} if each else figures)


def decode(args: argparse.Namespace, tokenizer: Tokenizer) -> None:
    ids = ids_from(sys.stdin.read() if args.decode == "-" else args.decode)
    sys.stdout.flush()
    sys.stdout.buffer.write(tokenizers.decode(tokenizer, ids, args.skip_special))
    if sys.stdout.isatty():
        sys.stdout.buffer.write(b"\n")
    sys.stdout.buffer.flush()


def make_corpus(args: argparse.Namespace, tokenizer: Tokenizer) -> None:
    if not args.out or Path(args.out).suffix == ".json":
        raise UsageError("name the tokens of --data with --out: NAME.u16 or NAME.u32")
    start = time.perf_counter()
    text = read_data(args)
    corpus = write_corpus(Path(args.out), tokenizer, text)
    seconds = time.perf_counter() - start
    size, ids = corpus["bytes"], corpus["training_tokens"] + corpus["held_out_tokens"]
    print(
        f"{counted(text.files, 'file')}, {size} bytes, {corpus['held_out_bytes']} of them held out\n"
        f"{counted(ids, 'token')}, {per(size, ids):.2f} bytes per token; in {seconds:.1f} s\n"
        f"saved    {args.out}\n"
        f"         for ringside train --data {args.out}, with {Path(args.out).stem}.corpus.json",
        file=text_beside(args.json),
    )
    kept = ("files", "held_out_bytes", "training_tokens", "held_out_tokens")
    write_figures(args, {**figures_of(tokenizer, size, ids), **{key: corpus[key] for key in kept}})


def task_of(args: argparse.Namespace) -> str:
    """Refuses options that do not go together."""
    given = [name for name in ("text", "file", "decode", "data", "save") if getattr(args, name)]
    if args.train is not None:
        if args.tokenizer or {"text", "file", "decode"} & set(given) or args.out:
            raise UsageError(
                "--train makes a tokenizer: leave out --tokenizer, the text, --file, --decode and "
                "--out"
            )
        if not args.save:
            raise UsageError("--train needs a place for the tokenizer: name it with --save")
        return "train"
    if not args.tokenizer:
        raise UsageError(
            "choose a tokenizer (--tokenizer FILE), or train one (--train N --save DIR)"
        )
    if args.out and not is_token_file(Path(args.out)):
        raise UsageError(
            f"the name of {args.out} must end in .u16, .u32 or .json, which determines the format"
        )
    if not given and args.out:
        return "data"
    if len(given) != 1:
        raise UsageError(
            "choose one task: a text, --file FILE, --data PATH, --decode IDS or --save DIR"
        )
    return given[0]


def run(args: argparse.Namespace) -> None:
    task = task_of(args)
    if task == "train":
        return train(args)
    tokenizer = tokenizers.load(Path(args.tokenizer))
    if task == "save":
        copy(Path(args.save), tokenizer)
    elif task == "data":
        make_corpus(args, tokenizer)
    elif task == "decode":
        decode(args, tokenizer)
    elif task == "file":
        encode(args, tokenizer, read_text([Path(args.file)]).data, each=False)
    else:
        encode(args, tokenizer, b" ".join(os.fsencode(each) for each in args.text), each=True)


COMMAND = Command(
    "tokenize",
    "Encode text as tokens, decode tokens, or train a tokenizer",
    run,
    [
        Words("text TEXT", "Text to encode; several texts are joined by spaces"),
        JSON_OPTION,
        Option("--tokenizer PATH", "A tokenizer.json, or a folder with one", group=USE),
        Option("--file FILE", "Encode a file, or all files of a folder, as one text", group=USE),
        Option(
            "--decode IDS",
            "Print the bytes of these ids, for example 464,262,1001; - reads them from standard "
            "input",
            group=USE,
        ),
        Option("--out FILE", "Write the ids to this file; formats: see below", group=USE),
        Flag("--ids", "Print the ids alone, for --decode and generate", group=USE),
        Flag(
            "--plain", "Leave out the tokens that the tokenizer adds around every text", group=USE
        ),
        Flag("--skip-special", "Leave out special tokens in --decode", group=USE),
        Words(
            "--data PATH",
            "Text files and directories of text files, to learn from or, with --out, to encode for "
            "`ringside train --data` [the C++ standard library headers]",
            group=LEARN,
        ),
        Option(
            "--train N",
            "Learn N tokens, which include the 256 bytes and the special tokens",
            in_range(1, 2**24),
            group=LEARN,
        ),
        Option(
            "--save PATH",
            "Where to save: a file NAME.json, or a folder for tokenizer.json and vocabulary.json",
            group=LEARN,
        ),
        Words("--special TOKEN", "Special tokens, with ids from 0 [<|endoftext|>]", group=LEARN),
        Option(
            "--min-frequency N",
            "How often a pair must occur to become a token [2]",
            in_range(1, 2**32 - 1),
            default=2,
            group=LEARN,
        ),
        Option(
            "--pattern REGEX",
            "Regular expression of a word, in Hugging Face's syntax (Oniguruma) [GPT-2's]",
            group=LEARN,
        ),
    ],
    notes="""\
It needs the Python package tokenizers: pip install tokenizers. A tokenizer is
Hugging Face's tokenizer.json or a folder with one, of any family; what --train
learns is byte-level byte-pair encoding, as in GPT-2, Llama 3 and many others.
Byte-level tokens encode any bytes, UTF-8 or not.

Files of ids, recognised by their names; `ringside eval --tokens` reads them
too:
  NAME.u16    one stream of little-endian two-byte ids; for vocabularies up to
              65536
  NAME.u32    the same with four bytes
  NAME.json   a list, [464, 262, 1001]

With --data, NAME.u16 has the text that a run trains on and then the text that
it holds out: the same bytes as without a tokenizer. NAME.corpus.json beside it
has what the run must know: where the parts end, the bytes of each token, and
the tokenizer.

--save with --tokenizer writes vocabulary.json into the folder of a checkpoint
that has a tokenizer.json alone: `ringside eval` needs it for bits per byte.

Examples:
  ringside tokenize --train 10000 --save tokenizer/
      learn 10000 tokens from the C++ standard library
  ringside tokenize --tokenizer tokenizer/ "const char* text"
      print the ids and the bytes of each
  ringside tokenize --tokenizer tokenizer/ --decode 464,262,1001
      print the text of these ids
  ringside tokenize --tokenizer tokenizer/ --file book.txt --out book.u16
      encode a file, for `ringside eval`
  ringside tokenize --tokenizer tokenizer/ --data notes/ --out notes.u16
      encode a text for training
  ringside train --data notes.u16
      train on these tokens
""",
)
