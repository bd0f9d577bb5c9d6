"""A tokenizer.json and what it does with bytes, over Hugging Face's library `tokenizers`.

The library knows every family (byte-level BPE, SentencePiece's BPE and Unigram, WordPiece, ...) and
takes text of UTF-8. What is added here: any bytes where the tokens are byte-level, the bytes of each
token, and the fingerprint by which a run knows its vocabulary again.
"""

import array
import json
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Dict, Iterator, List, Optional, Sequence, Tuple

from ringside.command_line import counted
from ringside.library import RingsideError

Ids = array.array  # of "I": 4 bytes for each id

PIECE = 1 << 16  # characters that are encoded at once
MARGIN = 1 << 10  # more characters, within which the next piece begins
CUTS = 50  # how many of them are tried
BROKEN = re.compile("([\udc80-\udcff]+)")  # bytes that are not UTF-8, after surrogateescape
# What a file may leave out, in the order of the library's files.
BPE = {
    "type": "BPE",
    "dropout": None,
    "unk_token": None,
    "continuing_subword_prefix": None,
    "end_of_word_suffix": None,
    "fuse_unk": False,
    "byte_fallback": False,
    "ignore_merges": False,
}
ADDED = ("single_word", "lstrip", "rstrip", "normalized", "special")


@dataclass(frozen=True)
class Tokenizer:
    name: str  # in errors, usually a path
    text: str  # of the tokenizer.json, unchanged
    data: Dict[str, Any]  # the same, read
    library: Any  # tokenizers.Tokenizer
    byte_level: bool  # whether tokens are bytes, written as letters
    tokens: List[Optional[bytes]]  # by id: what a token adds to a text; None: no such token
    special: frozenset  # ids of tokens that are not text


def import_tokenizers() -> Any:
    try:
        import tokenizers
    except ImportError:
        raise RingsideError(
            f"a tokenizer needs the Python package tokenizers, which {sys.executable} does not "
            "have: install it (pip install tokenizers)"
        ) from None
    return tokenizers


def letters() -> Dict[int, str]:
    """The letter of each byte: itself where it is printable in Latin-1, else U+0100 and on. Source:
    bytes_to_unicode() of GPT-2."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    return {
        **{byte: chr(byte) for byte in printable},
        **{byte: chr(0x100 + i) for i, byte in enumerate(others)},
    }


LETTERS = letters()
BYTES = {letter: byte for byte, letter in LETTERS.items()}


def from_letters(token: str) -> Optional[bytes]:
    """The bytes of a byte-level token; None if it has a character that is no letter of a byte."""
    found = [BYTES.get(letter) for letter in token]
    return None if None in found else bytes(found)


# Reading a file.


def load(path: Path) -> Tokenizer:
    """Reads a tokenizer.json, or the one in a folder."""
    file = path / "tokenizer.json" if path.is_dir() else path
    try:
        text = file.read_bytes()
    except OSError as error:
        raise RingsideError(f"cannot read the tokenizer {file}: {error.strerror}") from None
    try:
        return parse(text.decode("utf-8"), str(file))
    except UnicodeDecodeError:
        raise RingsideError(f"the tokenizer {file} cannot be used: it is not UTF-8") from None


def parse(text: str, name: str) -> Tokenizer:
    library = import_tokenizers()
    try:
        data = json.loads(text)
        found = library.Tokenizer.from_str(text)
        found.no_truncation()
        found.no_padding()
        if data["model"].get("dropout"):
            found.model.dropout = None  # merges that are left out at random
        vocabulary: Dict[str, int] = found.get_vocab(with_added_tokens=False)
        added: Dict[int, Any] = found.get_added_tokens_decoder()
        check_ids({*vocabulary.values(), *added})
        byte_level = any(kind == "ByteLevel" for kind in decoders_of(data.get("decoder")))
        tokens = (bytes_of_letters if byte_level else bytes_in_text)(found, vocabulary, added)
    except RecursionError:
        raise RingsideError(f"the tokenizer {name} cannot be used: it is nested too deep") from None
    except RingsideError as error:
        raise RingsideError(f"the tokenizer {name} cannot be used: {error}") from None
    except Exception as error:  # the library raises Exception itself
        raise RingsideError(f"the tokenizer {name} cannot be used: {error}") from None
    special = frozenset(id for id, token in added.items() if token.special)
    return Tokenizer(name, text, data, found, byte_level, tokens, special)


def check_ids(ids: set) -> None:
    """There is a table with an entry for each id, so they must not be sparse."""
    if not ids:
        raise RingsideError("its vocabulary is empty")
    if max(ids) > 65536 + 4 * len(ids):
        raise RingsideError(
            f"it has the id {max(ids)}, which is not possible in a vocabulary of {len(ids)} tokens"
        )


def decoders_of(decoder: Any) -> Iterator[Any]:
    """The types of a decoder's parts."""
    if isinstance(decoder, dict):
        yield decoder.get("type")
        for part in decoder.get("decoders") or []:
            yield from decoders_of(part)


def bytes_of_letters(
    library: Any, vocabulary: Dict[str, int], added: Dict[int, Any]
) -> List[Optional[bytes]]:
    """An added token is plain text. If it is a token of the vocabulary, too, merges make it of the
    bytes that its letters stand for: these are its bytes, unless no text has them."""
    tokens: List[Optional[bytes]] = [None] * (max([*vocabulary.values(), *added]) + 1)
    for token, id in vocabulary.items():
        found = from_letters(token)
        tokens[id] = token.encode() if found is None else found
    for id, token in added.items():
        try:
            if vocabulary.get(token.content) == id:
                (tokens[id] or b"").decode()
                continue
        except UnicodeDecodeError:
            pass
        tokens[id] = token.content.encode()
    return tokens


def bytes_in_text(
    library: Any, vocabulary: Dict[str, int], added: Dict[int, Any]
) -> List[Optional[bytes]]:
    """What each token adds to a decoded text that ends in another token."""
    ids = sorted({*vocabulary.values(), *added})
    alone = library.decode_batch([[id] for id in ids], skip_special_tokens=False)
    before = next((id for id, text in zip(ids, alone) if text and id not in added), ids[0])
    base = library.decode([before], skip_special_tokens=False)
    tokens: List[Optional[bytes]] = [None] * (ids[-1] + 1)
    pairs = library.decode_batch([[before, id] for id in ids], skip_special_tokens=False)
    for id, pair, text in zip(ids, pairs, alone):
        tokens[id] = (pair[len(base) :] if pair.startswith(base) else text).encode()
    for token, id in vocabulary.items():
        if re.fullmatch("<0x[0-9A-F]{2}>", token):  # SentencePiece's bytes
            tokens[id] = bytes([int(token[3:5], 16)])
    return tokens


# Text to ids, and back.


def encode(tokenizer: Tokenizer, text: bytes) -> Ids:
    """The ids of a text, without special tokens around it. Bytes that are not UTF-8 become words of
    their own, or U+FFFD if tokens are not byte-level."""
    if not tokenizer.byte_level:
        return encode_text(tokenizer.library, text.decode("utf-8", "replace"))
    ids: Ids = array.array("I")
    for number, part in enumerate(BROKEN.split(text.decode("utf-8", "surrogateescape"))):
        if number % 2 == 0:
            ids.extend(encode_text(tokenizer.library, part))
            continue
        word = "".join(LETTERS[byte] for byte in part.encode("utf-8", "surrogateescape"))
        found = [token.id for token in tokenizer.library.model.tokenize(word)]
        if b"".join(tokenizer.tokens[id] or b"" for id in found) != from_letters(word):
            raise RingsideError(
                f"the tokenizer {tokenizer.name} has no token for a byte of the text that is not "
                "UTF-8"
            )
        ids.extend(found)
    return ids


def encode_text(library: Any, text: str) -> Ids:
    """The ids that library.encode(text) has. It needs 200 bytes for each character, so a long text
    is encoded in pieces. Where no place to cut is found, a piece grows."""
    ids: Ids = array.array("I")
    begin, margin = 0, MARGIN
    while True:
        piece = text[begin : begin + PIECE + margin]
        encoding = library.encode(piece, add_special_tokens=False)
        if begin + len(piece) == len(text):
            ids.extend(encoding.ids)
            return ids
        cut = cut_of(library, piece, encoding)
        if cut is None:
            margin *= 8
            continue
        ids.extend(encoding.ids[: cut[0]])
        begin, margin = begin + cut[1], MARGIN


def cut_of(library: Any, piece: str, encoding: Any) -> Optional[Tuple[int, int]]:
    """The first token of the next piece and the character where it begins: a word, after which the
    rest of this piece has the same ids if it is encoded alone."""
    words, offsets, tried = encoding.word_ids, encoding.offsets, 0
    for token in range(1, len(words)):
        begin = offsets[token][0]
        if begin < PIECE or words[token] == words[token - 1]:
            continue
        if library.encode(piece[begin:], add_special_tokens=False).ids == encoding.ids[token:]:
            return token, begin
        tried += 1
        if tried == CUTS:
            break
    return None


def with_special_tokens(tokenizer: Tokenizer, ids: Sequence[int]) -> Ids:
    """The ids with the special tokens that the post_processor puts around a text."""
    for probe in ("a", "1", " ", "\n"):
        plain = tokenizer.library.encode(probe, add_special_tokens=False).ids
        framed = tokenizer.library.encode(probe).ids
        for at in range(len(framed) - len(plain) + 1):
            if plain and framed[at : at + len(plain)] == plain:
                return array.array("I", [*framed[:at], *ids, *framed[at + len(plain) :]])
    return array.array("I", ids)


def decode(
    tokenizer: Tokenizer,
    ids: Sequence[int],
    skip_special: bool = False,
    unknown: Optional[bytes] = None,
) -> bytes:
    """The bytes that ids stand for, `unknown` for an id that is no token."""
    tokens = tokenizer.tokens
    for id in ids:
        if unknown is None and (not 0 <= id < len(tokens) or tokens[id] is None):
            raise RingsideError(
                f"there is no token with the id {id}: the tokenizer has "
                f"{len(tokens) - tokens.count(None)} tokens, and its largest id is "
                f"{len(tokens) - 1}"
            )
    if not tokenizer.byte_level:
        return tokenizer.library.decode(list(ids), skip_special_tokens=skip_special).encode()
    shown = [id for id in ids if not (skip_special and id in tokenizer.special)]
    known = (tokens[id] if 0 <= id < len(tokens) else None for id in shown)
    return b"".join((unknown or b"") if token is None else token for token in known)


# What a run keeps of a vocabulary.


def fingerprint(*parts: bytes) -> int:
    """FNV-1a, folded to 32 bits: transformer/data/fingerprint.hpp."""
    value = 0xCBF29CE484222325
    for part in parts:
        for byte in part:
            value = (value ^ byte) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
    return (value ^ value >> 32) & 0xFFFFFFFF


def canonical(tokenizer: Tokenizer) -> str:
    """The tokenizer.json in one layout, with every key that influences ids: what older versions of
    Ringside saved beside a model."""
    data = tokenizer.data
    added = [
        {
            "id": token["id"],
            "content": token["content"],
            **{key: bool(token.get(key)) for key in ADDED},
        }
        for token in data.get("added_tokens") or []
    ]
    model = data["model"]
    if model.get("type", "BPE") == "BPE" and isinstance(model.get("merges"), list):
        model = canonical_bpe(model, tokenizer.byte_level)
    parts = ("normalizer", "pre_tokenizer", "post_processor", "decoder")
    return json.dumps(
        {
            "version": "1.0",
            "truncation": None,
            "padding": None,
            "added_tokens": added,
            **{key: data.get(key) for key in parts},
            "model": model,
        },
        indent=2,
        ensure_ascii=False,
    )


def canonical_bpe(model: Dict[str, Any], byte_level: bool) -> Dict[str, Any]:
    merges = [
        each.split(" ") if isinstance(each, str) else each
        for each in model["merges"]
        if not (isinstance(each, str) and each.startswith("#version"))
    ]
    kept = {key: model.get(key) or default for key, default in BPE.items()}
    return {
        **kept,
        "fuse_unk": kept["fuse_unk"] and not byte_level,  # no byte is unknown
        "vocab": dict(sorted(model["vocab"].items(), key=lambda item: item[1])),
        "merges": merges,
    }


def vocabulary_of(tokenizer: Tokenizer) -> Dict[str, Any]:
    """What the core knows of a vocabulary: vocabulary.json. A sample continues `beginning`, an empty
    line."""
    beginning = with_special_tokens(tokenizer, encode(tokenizer, b"\n"))
    first = next(id for id, token in enumerate(tokenizer.tokens) if token is not None)
    return {
        "fingerprint": max(fingerprint(canonical(tokenizer).encode()), 1),
        "beginning": list(beginning) or [first],
        "byte_counts": [len(token or b"") for token in tokenizer.tokens],
    }


# Learning a vocabulary.


def lines_of(text: bytes) -> Iterator[str]:
    """The text in parts that end with a line, where the next one begins with no white space: words
    do not cross these ends. Without bytes that are not UTF-8."""
    for number, part in enumerate(BROKEN.split(text.decode("utf-8", "surrogateescape"))):
        if number % 2 == 0:
            yield from re.split(r"(?<=\S\n)(?=\S)", part)


def train(
    text: bytes, size: int, special: Sequence[str], min_frequency: int, pattern: Optional[str]
) -> Tokenizer:
    """Byte-level BPE: the special tokens have the ids from 0, then come the 256 bytes and the
    merges. `pattern` is a regular expression of a word [GPT-2's]."""
    library = import_tokenizers()
    if "" in special:
        raise RingsideError("a special token is empty")
    for token in special:
        if special.count(token) > 1:
            raise RingsideError(f'the special token "{token}" is given twice')
    if size < 256 + len(special):
        raise RingsideError(
            f"a vocabulary of {size} has no room for the 256 bytes and "
            f"{counted(len(special), 'special token')}: it needs at least {256 + len(special)}"
        )
    byte_level = library.pre_tokenizers.ByteLevel
    made = library.Tokenizer(library.models.BPE())
    made.pre_tokenizer = byte_level(add_prefix_space=False)
    made.decoder = library.decoders.ByteLevel()
    try:
        if pattern:
            words = library.pre_tokenizers.Split(library.Regex(pattern), "isolated")
            rest = byte_level(add_prefix_space=False, use_regex=False)
            made.pre_tokenizer = library.pre_tokenizers.Sequence([words, rest])
    except Exception as error:
        raise RingsideError(f"the regular expression {pattern} cannot be used: {error}") from None
    trainer = library.trainers.BpeTrainer(
        vocab_size=size,
        min_frequency=min_frequency,
        special_tokens=list(special),
        initial_alphabet=byte_level.alphabet(),
        show_progress=False,
    )
    made.train_from_iterator(lines_of(text), trainer)
    return parse(made.to_str(pretty=True), "that was learnt")
