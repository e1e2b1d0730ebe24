// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

// Package dataset reads real text for prompts, and splits it at positions where the tokens of a piece do not depend on its neighbours.
//
// Tokenizers merge characters across almost every position of a text, so a cut changes the number of tokens: when windows of real
// text are decoded and joined, only about half have the right number. The common tokenizers never merge across one kind of position:
// before a space that follows a visible character and precedes a letter. In byte-level BPE, a pre-token begins there; no SentencePiece
// piece has the word mark inside; WordPiece splits at white space. So a text is a list of [Corpus.Segments], such as " word,". The number
// of tokens of a text is the sum of those of its segments, whatever their order. The engine or a tokenizer file counts the tokens of each
// segment once, and the sum is checked on the engine.
//
// Text without such positions, for example in scripts without spaces, makes segments that are too long. These are left out and
// counted. So are segments that contain the beginning of a special token, because a prompt must not end the template's message.
package dataset
