// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

// Package blockhash hashes the text or the tokens of a prompt, with a key, to values that show which prompts have the same
// beginning. It does no I/O and stores nothing between two prompts.
//
// # Values
//
// A [Hasher] hashes the prompts of one domain under one key. Its results (cell, end, tail and block id) are values: 64 bits that
// depend on the prompt from its first byte to a position. Equal values mean equal beginnings. So the values of a prompt form a
// chain, although no value is computed from another. Values of two keys or of two domains do not match, except with the chance of
// one in 2^64 of any two values.
//
// With K the key (32 bytes or more), ‖ for concatenation, LE64 for eight bytes little-endian, a[i:j] for the bytes
// from i to before j, and text in quotes as its ASCII bytes:
//
//	derive(label, data) = HMAC-SHA256(K, label ‖ 00 ‖ data)
//	fingerprint         = hex(derive("moonloop fingerprint v1", "")[0:4])
//	session(id)         = hex(derive("moonloop session v1", id)[0:8])
//	seed                = derive("moonloop seed v1", domain)[0:8], read as LE64
//	secret              = derive("moonloop value v1", "")[0:16]
//	domain              = hex(SHA-256("moonloop domain v1" ‖ 00 ‖ LE64(len(kind)) ‖ kind ‖
//	                      LE64(len(part)) ‖ part ‖ ... for every part)[0:4])
//
//	block(x)            = AES-128(secret, LE64(XXH64(seed, x)) ‖ domain)
//	border(x)           = block(x)[0:8], read as LE64
//	end(x)              = block(x)[8:16], read as LE64
//
// where hex is lower case, and domain, as an input, the eight ASCII bytes of its hex form. A hasher runs one XXH64 over the whole
// prompt and takes its sum at each border; AES is needed because a seeded XXH64 is not secret. A border is where a cell, a
// message or a full block ends; an end is where the prompt ends. The two never have the same value, even at the same position: a
// block that ends with its prompt differs from a block that continues.
//
//	text   x is the canonical prompt up to a position: for every message role 0A text 0A, in UTF-8, unchanged
//	       (annotate.Prompt describes the text for tools, media and the like).
//	       cell j = border(the first 128(j+1) bytes), for every full cell, at most [MaxCells]
//	       End i  = border(everything up to the end of message i), with the length up to there and the role, at most [MaxEnds]
//	                and none beyond [MaxEndBytes]; equal to a cell where one ends there. Of many short messages only some
//	                leave the process: see [Chain.KeptEnds]
//	       reply  = border(all of it ‖ "assistant" 0A reply 0A): the End that the reply has in the next prompt
//	       tail   = end(all of it)
//	tokens x is a sequence of token ids, each four bytes little-endian.
//	       id i   = border(the first B(i+1) tokens), for every full block
//	       last   = end(all of them), if the last block is not full
//	engine the hashes of an engine are already chained, and replace XXH64:
//	       id i   = first half of AES-128(secret, LE64(hash) ‖ domain)
//	       last   = end(LE64(last hash) ‖ LE64(tokens of the prompt) ‖ span), if the engine did not hash it
//
// # Domains
//
// The ids of tokens and of engines depend on the model, which is part of their domain. Text has one domain for all models, that
// of [TextDomain]: the same text can be in the client's span, in the span of a gateway that spells the model differently, or in a
// log record without a model, and values of two domains never match. So equal cells do not mean equal tokens. Code that derives
// blocks from cells must keep the blocks of two models apart, by the request's model: capture.Compile does.
//
// A chain describes a whole prompt. If telemetry truncated the prompt, its cells are still correct values of a beginning, but its
// tail is that of a prompt that was never sent: see Prefix of journal.Prompt, in capture/journal.
//
// testdata/vectors.json has test vectors for all of the above, for other implementations.
//
// # What the values hide
//
// Without the key, nobody can test a guess of a prompt, or link the values of two domains or keys. What remains visible is what a
// trace needs: lengths, times, which prompts share a beginning and how long it is, where the messages of a prompt end (only some
// of many short ones), and their roles. With the key, a guess can be tested: 128 bytes at a time after a known beginning, and,
// with the message ends, one message at a time, however short. Texts with equal XXH64 can be constructed on purpose; that
// falsifies only the figures of their author's own prompts.
package blockhash
