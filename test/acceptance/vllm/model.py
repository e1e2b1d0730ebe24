# Copyright The moonloop authors
# SPDX-License-Identifier: Apache-2.0
"""model.py DIR: a Llama of two layers with random weights, and a real tokenizer of 131,072 entries.

What it says makes no sense, but its server counts, caches and streams tokens as one with a real model does. The vocabulary is the
one that mistral_common, a dependency of vLLM, brings along; nothing is downloaded.
"""
import importlib.resources
import shutil
import sys

import torch
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
from transformers.integrations.mistral.tokenizer import MistralConverter

out = sys.argv[1]
with importlib.resources.path("mistral_common.data", "tekken_240911.json") as vocabulary:
    shutil.copy(vocabulary, "tekken.json")  # the converter looks for that name
tokenizer = PreTrainedTokenizerFast(
    tokenizer_object=MistralConverter("./tekken.json").converted(),
    bos_token="<s>", eos_token="</s>", unk_token="<unk>", model_max_length=32768,
)
tokenizer.chat_template = (
    "{{ bos_token }}{% for m in messages %}{{ '<SPECIAL_20>' + m['role'] + '\n' + m['content'] + '<SPECIAL_21>\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<SPECIAL_20>assistant\n' }}{% endif %}"
)
tokenizer.save_pretrained(out)

torch.manual_seed(0)
config = LlamaConfig(
    vocab_size=len(tokenizer), hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4,
    num_key_value_heads=2, head_dim=32, max_position_embeddings=32768, bos_token_id=1, eos_token_id=2,
    tie_word_embeddings=True, rope_theta=500000.0,
)
LlamaForCausalLM(config).to(torch.bfloat16).save_pretrained(out)
