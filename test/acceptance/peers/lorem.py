# Copyright The moonloop authors
# SPDX-License-Identifier: Apache-2.0
"""Writes a tokenizer for which each word of the texts that GuideLLM makes up is one token.

GuideLLM makes tokens of a random text, and sends the text of these. The simulated engine counts words. So both count the same.

usage: python lorem.py DIR
"""

import pathlib
import sys

from faker.providers.lorem.en_US import Provider
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

directory = pathlib.Path(sys.argv[1])
forms = {
    form + end
    for word in Provider.word_list
    for form in (word, word[:1].upper() + word[1:], word.capitalize())
    for end in ("", Provider.sentence_punctuation)
}
vocabulary = {token: number for number, token in enumerate(["<unk>", "<s>", "</s>", *sorted(forms)])}

tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
tokenizer.decoder = decoders.WordPiece(prefix="##", cleanup=False)
PreTrainedTokenizerFast(
    tokenizer_object=tokenizer, unk_token="<unk>", bos_token="<s>", eos_token="</s>"
).save_pretrained(directory)
(directory / "config.json").write_text("{}\n", encoding="ascii")
