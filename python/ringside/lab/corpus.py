"""Text for training, and files of token ids.

    NAME.u16, NAME.u32    one stream of little-endian ids of 2 or 4 bytes
    NAME.json             a list of ids: [464, 262, 1001]
    NAME.corpus.json      what `ringside train --data NAME.u16` must know of the stream: see
                          corpus_of()

What is read from a path, what is held out and the fingerprints are those of a run on bytes:
transformer/data/corpus.hpp.
"""

import array
import json
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Dict, List, Sequence, Tuple

from ringside.lab.tokenizer import Tokenizer, encode, fingerprint, vocabulary_of
from ringside.library import RingsideError

LARGEST_BLOCK = 64 * 1024  # bytes
BLOCKS_PER_HELD_OUT = 20
WIDTHS = {".u16": "H", ".u32": "I"}  # codes of array.array


@dataclass
class Text:
    data: bytes
    files: int


# Reading text.


def read_file(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise RingsideError(f"cannot read {path}: {error.strerror}") from None


def text_below(folder: Path) -> List[bytes]:
    """The files of a folder, sorted by path, without those that are no text (a NUL byte near the
    beginning) or cannot be read."""
    paths = sorted(
        (Path(root, name) for root, _, names in os.walk(folder) for name in names),
        key=lambda path: [os.fsencode(part) for part in path.parts],
    )
    texts = []
    for path in paths:
        try:
            data = path.read_bytes() if path.is_file() else b"\0"
        except OSError:
            continue
        if b"\0" not in data[:8192]:
            texts.append(data)
    if not any(texts):
        raise RingsideError(f"the directory {folder} holds no readable text")
    return texts


def read_text(paths: Sequence[Path]) -> Text:
    """All bytes of files and folders, in the order given."""
    texts: List[bytes] = []
    for path in paths:
        if not path.exists():
            raise RingsideError(f"there is no file or directory {path}")
        if path.is_dir():
            texts += text_below(path)
            continue
        texts.append(read_file(path))
        if not texts[-1]:
            raise RingsideError(f"{path} is empty: there is nothing to learn from it")
    return Text(b"".join(texts), len(texts))


def default_corpus() -> Path:
    """The headers of the standard library of the C++ compiler here, on which the program trains
    without --data."""
    compiler = os.environ.get("CXX") or "c++"
    try:
        said = subprocess.run(
            [compiler, "-x", "c++", "-E", "-v", "/dev/null"], capture_output=True, text=True
        ).stderr
    except OSError:
        said = ""
    for folder in re.findall("^ (/.*)$", said, re.MULTILINE):
        if Path(folder, "vector").exists():
            return Path(os.path.normpath(folder))
    raise RingsideError(
        f"the compiler {compiler} does not say where the C++ standard library headers are: name a "
        "text with --data"
    )


# Token files.


def is_token_file(path: Path) -> bool:
    return path.suffix in (*WIDTHS, ".json")


def write_whole(path: Path, data: bytes) -> None:
    """Writes a file that is complete wherever it is seen."""
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        try:
            part.write_bytes(data)
            os.replace(part, path)
        finally:
            part.unlink(missing_ok=True)
    except OSError as error:
        raise RingsideError(f"cannot write {path}: {error.strerror}") from None


def write_tokens(path: Path, ids: Sequence[int]) -> None:
    if path.suffix == ".json":
        return write_whole(path, (json.dumps(list(ids), separators=(",", ":")) + "\n").encode())
    try:
        stream = array.array(WIDTHS[path.suffix], ids)
    except OverflowError:
        raise RingsideError(
            f"the id {max(ids)} does not fit into 2 bytes: write to a file NAME.u32"
        ) from None
    if sys.byteorder == "big":
        stream.byteswap()
    write_whole(path, stream.tobytes())


# Text as tokens, for `ringside train --data`.


def parts_of(text: bytes) -> Tuple[bytes, bytes]:
    """What a run trains on, and what it holds out: the last of every 20 blocks."""
    size = min(max(len(text) // BLOCKS_PER_HELD_OUT, 1), LARGEST_BLOCK)
    blocks = [text[begin : begin + size] for begin in range(0, len(text), size)]
    held_out = blocks[BLOCKS_PER_HELD_OUT - 1 :: BLOCKS_PER_HELD_OUT]
    del blocks[BLOCKS_PER_HELD_OUT - 1 :: BLOCKS_PER_HELD_OUT]
    return b"".join(blocks), b"".join(held_out)


def write_corpus(path: Path, tokenizer: Tokenizer, text: Text) -> Dict[str, Any]:
    """Encodes each part of the text as one. The stream is the training part and then the held-out
    part. Returns what NAME.corpus.json says of it."""
    training, held_out = parts_of(text.data)
    ids, held_out_ids = encode(tokenizer, training), encode(tokenizer, held_out)
    write_tokens(path, ids + held_out_ids)
    corpus = {
        "files": text.files,
        "bytes": len(text.data),
        "held_out_bytes": len(held_out),
        "training_tokens": len(ids),
        "held_out_tokens": len(held_out_ids),
        "text": fingerprint(training, held_out),
        "vocabulary": vocabulary_of(tokenizer),
        "tokenizer": tokenizer.text,
    }
    write_whole(path.with_suffix(".corpus.json"), json.dumps(corpus).encode())
    return corpus
