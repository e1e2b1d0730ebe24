// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

// Package blockhash turns the text or the tokens of a prompt into keyed values that say which prompts begin alike and
// nothing else. It does no I/O and keeps nothing from one prompt to the next.
//
// # Values
//
// A [Hasher] hashes the prompts of one domain under one key. Whatever it hands out, cell, end, tail or block id, is a value:
// 64 bits that depend on the prompt from its first byte to the place that the value stands for. Equal values mean equal
// beginnings, and so the values of a prompt form a chain although no value is computed from another. Values of two keys
// or of two domains never match, but for the one chance in 2^64 that any two values have.
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
// where hex is lower case, and domain, as an input, the eight ASCII bytes of its hex form. A hasher runs one XXH64 over
// the whole prompt and takes its sum at each border; AES is there because a seeded XXH64 is no secret. A border is where
// a cell, a message or a full block ends, an end is where the prompt does. The two never share a value, not even where they are the
// same place: a block that ends with its prompt is not the block that goes on.
//
//	text   x is the canonical prompt up to a place: for every message role 0A text 0A, in UTF-8 and as it came
//	       (what stands for tools, media and the like, annotate.Prompt says).
//	       cell j = border(the first 128(j+1) bytes), for every full cell, at most [MaxCells]
//	       End i  = border(all up to the end of message i), with the length up to there and the role, at most [MaxEnds]
//	                and none beyond [MaxEndBytes]; equal to a cell where one ends there. Of many short messages only some
//	                leave the process: see [Chain.KeptEnds]
//	       reply  = border(all of it ‖ "assistant" 0A reply 0A): the End that the reply has in the next prompt
//	       tail   = end(all of it)
//	tokens x is a number of token ids, each four bytes little-endian.
//	       id i   = border(the first B(i+1) tokens), for every full block
//	       last   = end(all of them), if a block is left that is not full
//	engine the hashes of an engine are chained already and take the place of XXH64:
//	       id i   = first half of AES-128(secret, LE64(hash) ‖ domain)
//	       last   = end(LE64(last hash) ‖ LE64(tokens of the prompt) ‖ span), if the engine did not hash it
//
// # Domains
//
// The ids of tokens and of engines depend on the model, which is part of their domain. Text has one domain for all
// models, that of [TextDomain]: it is the same text whether the client's span has it, the span of a gateway that spells the
// model in another way, or a log record that names none, and values of two domains could never be found equal.
// What follows is that equal cells do not mean equal tokens. Who lays blocks over cells has the model of the request for
// that, and must tell the blocks of two models apart by it: capture.Compile does.
//
// A chain is of a whole prompt. Of one that telemetry has cut off, the cells are values of a beginning, as they should be,
// but the tail is that of a prompt which was never sent: see capture.Prompt, which says so.
//
// testdata/vectors.json has examples of everything above, for those who want to agree.
//
// # What the values hide
//
// Who does not have the key cannot test a guess of a prompt, nor link the values of two domains or keys. What remains
// visible is what a trace needs: lengths, times, which prompts share how long a beginning, where messages of a prompt end, of
// not too short ones all, and whose they are. Who has the key, and nobody else, can test a guess: of 128 bytes at a time behind a beginning
// that he knows, and with the ends of a message at a time, also of a short one. Finding two texts of
// equal XXH64 on purpose is not ruled out; whoever does so bends the figures of his own prompts.
package blockhash
