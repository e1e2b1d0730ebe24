// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

// Package tokenizer counts the tokens of a text by a model's tokenizer.json, as the tokenizers library of Hugging Face does, which
// most engines use.
//
// It knows the models BPE (byte-level as of GPT-2, Llama 3 and Qwen, and SentencePiece's as of Llama 2 and Gemma), Unigram and
// WordPiece, with the normalizers and pre-tokenizers that such files have. What it does not know is refused, never guessed. Its
// results are those of the library for text within the Unicode version of Go.
//
// The time for a text of n bytes is O(n log n), whatever the text: a piece may be a whole text.
package tokenizer
