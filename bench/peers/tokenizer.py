# Copyright The moonloop authors
# SPDX-License-Identifier: Apache-2.0
"""Writes a tokenizer, as moonloop/words, into a model hub's cache: peers want one where no hub can be reached.

It is a byte-level BPE that knows the agent's own words and any other text in pieces. What the peers count with it is in
no figure of the bench: replies are counted by the engine.

usage: python tokenizer.py WORDS HF_HOME
"""

import pathlib
import sys

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

words, home = sys.argv[1:]
with open(words, encoding="utf-8") as file:
    text = file.read().split()

tokenizer = Tokenizer(models.BPE())
tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
tokenizer.decoder = decoders.ByteLevel()
trainer = trainers.BpeTrainer(
    vocab_size=8192,
    show_progress=False,
    special_tokens=["<s>", "</s>"],
    initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
)
tokenizer.train_from_iterator([f"{word} {word}" for word in text] * 4, trainer)

# The layout of a cache that a download would have left: a name for a revision, and the revision's files.
cache = pathlib.Path(home, "hub", "models--moonloop--words")
revision = "0" * 40
(cache / "refs").mkdir(parents=True, exist_ok=True)
(cache / "refs" / "main").write_text(revision, encoding="ascii")
snapshot = cache / "snapshots" / revision
PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>").save_pretrained(snapshot)
(snapshot / "config.json").write_text("{}\n", encoding="ascii")
