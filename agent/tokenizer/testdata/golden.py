# Copyright The moonloop authors
# SPDX-License-Identifier: Apache-2.0
"""Asks the tokenizers library of Hugging Face for the ids of golden.json.

usage: pip install tokenizers==0.23.3, then: python golden.py [NAME...]

Each text gets the ids that each tokenizer here gives it. A tokenizer that is named is trained anew before, on the repository's
documentation, and so is one of TRAINED that has no file yet. So to add a family, add it to TRAINED; to add a text, add it to golden.json.
"""

import json
import pathlib
import re
import sys

from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers, trainers

HERE = pathlib.Path(__file__).parent
ROOT = HERE.parents[2]


def paragraphs():
    """The documentation, and some texts in other scripts."""
    for page in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]:
        yield from re.split(r"\n\n+", page.read_text(encoding="utf-8"))
    yield from json.loads((HERE / "golden.json").read_text(encoding="utf-8"))["texts"]


def byte_level(splitters, normalizer=None, **model):
    """Byte-level BPE, as most families have it."""
    t = Tokenizer(models.BPE(**model))
    if normalizer is not None:
        t.normalizer = normalizer
    t.pre_tokenizer = pre_tokenizers.Sequence(splitters)
    t.train_from_iterator(
        paragraphs(),
        trainers.BpeTrainer(
            vocab_size=450, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), special_tokens=["<|begin|>"], show_progress=False
        ),
    )
    return t


def kimi():
    """Kimi-K2: Han by itself, which its other words leave out by an intersection of classes."""
    upper = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]"
    lower = r"[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]"
    short = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    pattern = "|".join(
        [
            r"[\p{Han}]+",
            r"[^\r\n\p{L}\p{N}]?" + upper + "*" + lower + "+" + short,
            r"[^\r\n\p{L}\p{N}]?" + upper + "+" + lower + "*" + short,
            r"\p{N}{1,3}",
            r" ?[^\s\p{L}\p{N}]+[\r\n]*",
            r"\s*[\r\n]+",
            r"\s+(?!\S)",
            r"\s+",
        ]
    )
    return byte_level(
        [pre_tokenizers.Split(Regex(pattern), "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)],
        ignore_merges=True,
    )


def cohere():
    """Cohere's Command, and StarCoder: each digit by itself, then GPT-2's pattern."""
    return byte_level(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)], normalizers.NFC()
    )


def albert():
    """ALBERT and T5: words apart at space, marked; letters without accents and capitals."""
    t = Tokenizer(models.Unigram())
    t.normalizer = normalizers.Sequence(
        [normalizers.Replace("``", '"'), normalizers.NFKD(), normalizers.StripAccents(), normalizers.Lowercase(), normalizers.Strip()]
    )
    t.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()])
    t.train_from_iterator(
        paragraphs(), trainers.UnigramTrainer(vocab_size=450, unk_token="<unk>", special_tokens=["<unk>"], show_progress=False)
    )
    return t


def words():
    """Words and punctuation apart, numbers in one piece: what smaller models are trained with."""
    t = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True))
    t.normalizer = normalizers.NFKC()
    t.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Whitespace(), pre_tokenizers.Punctuation(), pre_tokenizers.Digits(individual_digits=False)]
    )
    t.train_from_iterator(paragraphs(), trainers.BpeTrainer(vocab_size=450, special_tokens=["<unk>"], show_progress=False))
    return t


TRAINED = {"kimi": kimi, "cohere": cohere, "albert": albert, "words": words}


def main():
    golden = json.loads((HERE / "golden.json").read_text(encoding="utf-8"))
    for name, train in TRAINED.items():
        file = HERE / f"{name}.json"
        if name in sys.argv[1:] or not file.exists():
            train().save(str(file), pretty=False)
    for name in dict.fromkeys([*golden["ids"], *TRAINED]):
        t = Tokenizer.from_file(str(HERE / f"{name}.json"))
        golden["ids"][name] = [t.encode(text, add_special_tokens=False).ids for text in golden["texts"]]
    (HERE / "golden.json").write_text(json.dumps(golden, ensure_ascii=False), encoding="utf-8")


main()
