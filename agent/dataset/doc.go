// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

// Package dataset reads real text for prompts, and cuts it where the tokens of a piece do not depend on its neighbours.
//
// Tokenizers merge across almost any place of a text, so a cut there changes the number of tokens: of windows of real text that
// are decoded and joined, only about half have the tokens that they should. There is one kind of place that the common ones do
// not merge across: before a space that follows something visible and comes before a letter. In byte-level BPE a pre-token
// begins there; SentencePiece has no piece with its word mark inside; WordPiece splits at white space. So a text is a list of
// such [Corpus.Segments], " word," for example, and its tokens are the sum of theirs, whatever their order. They have to be
// counted only once, by the engine or by a tokenizer file, and the sum is checked on the engine.
//
// What has no such places, as text in scripts without spaces, makes segments that are too long, and is left out and counted.
// So are segments with what special tokens begin with, as a prompt must not end the template's message.
package dataset
