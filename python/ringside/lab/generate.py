"""`ringside generate` of a checkpoint with a tokenizer.json: the program takes and prints token ids,
and what is text is encoded and decoded here."""

import argparse
import os
import subprocess
import sys
from pathlib import Path
from typing import List

from ringside.lab import tokenizer as tokenizers
from ringside.lab.corpus import read_file
from ringside.lab.tokenize import ids_from, printable
from ringside.library import RingsideError
from ringside.program import find_program


def reader() -> argparse.ArgumentParser:
    """Of the options that are read here. The program knows the others, and is given them."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    for name in ("--init", "--prompt", "--prompt-file", "--prompt-tokens"):
        parser.add_argument(name)
    return parser


def continued(init: str, prompt: bytes, options: List[str]) -> bytes:
    """The prompt and what the checkpoint in the folder `init` adds to it. A token that the tokenizer
    lacks is a "?": a model's vocabulary may be larger."""
    tokenizer = tokenizers.load(Path(init))
    if not prompt:
        raise RingsideError("a prompt needs at least one byte")
    ids = tokenizers.with_special_tokens(tokenizer, tokenizers.encode(tokenizer, prompt))
    done = subprocess.run(
        [find_program(), "generate", "--init", init, "--prompt-tokens", "-", *options],
        input=",".join(map(str, ids)),
        stdout=subprocess.PIPE,
        text=True,
    )
    if done.returncode != 0:
        sys.exit(done.returncode)  # the program has said why
    return tokenizers.decode(tokenizer, ids_from(done.stdout), unknown=b"?")


def generate(words: List[str]) -> int:
    """The words that follow `ringside generate`. Returns the exit code."""
    try:
        own, options = reader().parse_known_args(words)
        is_text = own.init and own.prompt_tokens is None and not {"-h", "--help"} & set(words)
        if not is_text or not Path(own.init, "tokenizer.json").exists():
            os.execv(find_program(), ["ringside", "generate", *words])
        if own.prompt_file is None:
            prompt = os.fsencode("\n" if own.prompt is None else own.prompt)
        else:
            prompt = read_file(Path(own.prompt_file))
        print(printable(continued(own.init, prompt, options)))
        return 0
    except (RingsideError, OSError) as error:
        print(f"ringside: {error}", file=sys.stderr)
        return 1
