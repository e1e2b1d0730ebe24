// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

// Package tokenizer counts the tokens of a text with a model's tokenizer.json, like the tokenizers library of Hugging Face, which most
// engines use.
//
// It supports the models BPE (byte-level as in GPT-2, Llama 3 and Qwen, and SentencePiece's as in Llama 2 and Gemma), Unigram and
// WordPiece, with the normalizers and pre-tokenizers that such files have. It refuses everything else, and never guesses. For text whose
// characters are all in the version of Unicode that Go supports, its results equal those of the library.
//
// The time for a text of n bytes is O(n log n) for any text, even if the whole text is one piece.
package tokenizer
