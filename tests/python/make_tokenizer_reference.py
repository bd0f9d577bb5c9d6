#!/usr/bin/env python3
"""Writes the files in tokenizers/: tokenizers that Hugging Face's library trained, and the ids that they
give for texts that are hard to cut.

    python3 -m venv /tmp/reference && /tmp/reference/bin/pip install tokenizers==0.23.3
    /tmp/reference/bin/python make_tokenizer_reference.py

No test runs this script; the tests read its files.
"""

import json
import pathlib

from tokenizers import (
    AddedToken,
    Regex,
    Tokenizer,
    decoders,
    models,
    pre_tokenizers,
    processors,
    trainers,
)

HERE = pathlib.Path(__file__).parent / "tokenizers"

LEARN_FROM = """\
A ring all-reduce sends every chunk once round the ring, and what arrives is added. Then the sums go round once more.
It's the ranks' neighbours they've to trust: nobody waits for rank 0, and nobody'll be waited for by all the others.
for (int step = 0; step + 1 < size; ++step) {
    send(chunks[(rank - step + size) % size], right);
\treceive(chunks[(rank - step - 1 + size) % size], left);
}
Der Ring reicht Stück für Stück weiter; was ankommt, wird addiert. Überall größer, überall schöner, fünfzig, fünfundfünfzig.
1 2 3 12 123 1234 12345 2024 2025 2026 0x1F 3.14159 1e-6 100 % 1000 1001 1002
aaaa aaaaaaaa abababab bababa aabb abab ababab aaab baaa lower lowest newer newest wider widest the then they there
日本語のテキスト、日本語の文。 Ελληνικά κείμενα. Русский текст, русские буквы. 🙂🙂 🚀
"""

TEXTS = [
    "",
    " ",
    "  ",
    "\n",
    "\n\n",
    " \n ",
    "\t\t x",
    "a",
    "the",
    " the",
    "the ",
    "  the   ring  ",
    "rings\n\n\n  and\r\n\r\nranks \r\n",
    "I've they'll we're it's I'd I'm can't 'tis ranks' rock'n'roll",
    "I'VE THEY'LL WE'RE IT'S 'S'T'RE",
    "it’s ’tis",
    "'sK'ſ'LL",
    "1",
    "12",
    "1234567890",
    "3.14159e-10",
    "0x1F 1,000,000 ½ ²³ ٣٤٥ Ⅷ",
    "a1b22c333d4444",
    "for (int i = 0; i < n; ++i) { sum += a[i] * b[i]; }\n",
    "#include <vector>\n\nint main() {\n\treturn 0;\n}\n",
    "a->b::c<d>&&e||!f",
    "Überall größer, schöner, fünfzig",
    "naïve café, Ångström: A\u030angstro\u0308m",
    "ﬁ ﬂ ﬀ ß ẞ",
    "日本語のテキスト。中文，한국어 텍스트",
    "Русский текст и Ελληνικά",
    "עברית العربية हिन्दी ไทย",
    "🙂",
    "🙂🙂 🚀!",
    "👩‍👩‍👧‍👦 🇩🇪 👍🏽",
    "\u00a0\u00a0x\u2003y\u3000z\u180ew\u200bv\ufeffu",
    "a\u0085b\u2028c\u2029d",
    "\x00\x01\x7f\u0080\u009f",
    "\U0010ffff\ue000\ufffd",
    "<|endoftext|>",
    "a<|endoftext|>b",
    " <|endoftext|> the <|endoftext|><|endoftext|>",
    "<|endoftext|",
    "<|end",
    "<|endoftext|>\n\n",
    "the <mask> ring",
    "the<mask>ring",
    "  <mask>  <mask>\n\n<mask>",
    "<tool>x</tool>",
    "<tool><tools>",
    "ÄÖÜ-token äöü",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
    "ababababababababababab bababababab",
    "x" * 300,
    "a     b",
    "a \n b",
    "a\n \nb",
    "   \n",
    "\r",
    "\r\n\r\n x",
    "   1",
    " -- --",
    "--\n\n--",
    "... \n...",
    "\u00ad\u00a1\u00ff",
]

LLAMA_3 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"


def trained(pre_tokenizer, vocabulary, specials, **model):
    tokenizer = Tokenizer(models.BPE(**model))
    tokenizer.pre_tokenizer = pre_tokenizer
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator(
        [LEARN_FROM],
        trainers.BpeTrainer(
            vocab_size=vocabulary,
            min_frequency=2,
            special_tokens=specials,
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        ),
    )
    return tokenizer


def make_all():
    byte_level = pre_tokenizers.ByteLevel
    split = pre_tokenizers.Split(Regex(LLAMA_3), "isolated")

    yield "gpt2", trained(byte_level(add_prefix_space=False), 420, ["<|endoftext|>"])

    tokenizer = trained(
        pre_tokenizers.Sequence([split, byte_level(add_prefix_space=False, use_regex=False)]),
        400,
        ["<|endoftext|>", "<|begin|>"],
        ignore_merges=True,
    )
    tokenizer.add_tokens(
        [
            AddedToken("<mask>", lstrip=True, rstrip=True, special=True, normalized=False),
            AddedToken("<tool>", normalized=False),
            AddedToken("<tools>", normalized=False),
            AddedToken("ÄÖÜ-token", normalized=True),
        ]
    )
    tokenizer.post_processor = processors.Sequence(
        [
            processors.ByteLevel(trim_offsets=False),
            processors.TemplateProcessing(
                single="<|begin|> $A",
                pair="<|begin|> $A <|begin|> $B",
                special_tokens=[("<|begin|>", tokenizer.token_to_id("<|begin|>"))],
            ),
        ]
    )
    yield "llama3", tokenizer

    tokenizer = trained(
        pre_tokenizers.Sequence(
            [pre_tokenizers.Digits(individual_digits=True), byte_level(add_prefix_space=False)]
        ),
        380,
        ["<|endoftext|>"],
    )
    tokenizer.add_tokens([AddedToken("<mask>", lstrip=False, rstrip=True, normalized=True)])
    tokenizer.post_processor = processors.TemplateProcessing(
        single="$A <|endoftext|>", special_tokens=[("<|endoftext|>", 0)]
    )
    yield "digits", tokenizer

    yield "prefix_space", trained(byte_level(add_prefix_space=True), 340, ["<|endoftext|>"])

    for behavior in [
        "removed",
        "isolated",
        "merged_with_previous",
        "merged_with_next",
        "contiguous",
    ]:
        tokenizer = trained(
            pre_tokenizers.Sequence(
                [
                    pre_tokenizers.Split("a", behavior, invert=False),
                    pre_tokenizers.Digits(),
                    byte_level(add_prefix_space=False, use_regex=False),
                ]
            ),
            280,
            [],
        )
        yield "split_" + behavior, tokenizer


def main():
    HERE.mkdir(exist_ok=True)
    (HERE / "learn_from.txt").write_text(LEARN_FROM)
    (HERE / "texts.json").write_text(json.dumps(TEXTS, indent=0) + "\n")
    for name, tokenizer in make_all():
        tokenizer.save(str(HERE / f"{name}.json"), pretty=name in ("gpt2", "llama3"))
        rows = [
            {
                "ids": tokenizer.encode(text, add_special_tokens=False).ids,
                "framed": len(tokenizer.encode(text).ids),
            }
            for text in TEXTS
        ]
        (HERE / f"{name}.ids.json").write_text(
            "[\n" + ",\n".join(json.dumps(row) for row in rows) + "\n]\n"
        )


if __name__ == "__main__":
    main()
