// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

// Package annotate turns anybody's GenAI telemetry into annotated inference spans, in place, and removes its text.
//
// # Annotation
//
// Every span passes. One that package genai takes for a request to a model gets mooncake.identity, which says what
// tells its prompt from others: the block hashes of the engine, token ids, the text as keyed cells, or nothing. With it
// come the ids or cells, where the messages of a text end and where the reply will in the next prompt, if it is known whole ([Prompt],
// [Reply]), who made them (domain and key fingerprint), and the standard gen_ai.* attributes of what the
// producer called otherwise, so that readers need no dialects. Name, kind, ids, times and status code stay as they are.
// Usage that a producer makes up is taken off, and estimates are not written. Every span that names a session gets its
// keyed twin.
//
// A span that has mooncake.identity or mooncake.row came from another receiver or from a replay. It is not read
// again, so that receivers can stand in a row: twice is the same as once, also under another key.
//
// Log records that hold a span's prompt become a span below it; those of Dynamo's request trace become a span each.
// They get mooncake.identity, too, by which the next receiver knows them.
//
// # Cleaning
//
// Text leaves in no form unless the configuration says so. Spans and logs of GenAI telemetry, wrappers and tools
// included, keep numbers, and short values under the names of an allow-list: ids, models, reasons, addresses. What the
// list has must also look like what it is: an id is one word, a count a number, nothing is a document. All other
// telemetry, metrics included, loses what a deny-table names and values above 1 KiB, nested ones together. Everywhere a
// URL loses its query, the type of an error is a word, and what is called mooncake.* is what is written here or by a
// replay. Names longer than 256 bytes and trace states longer than 512 are replaced, status messages and the messages
// of exceptions are removed, because an exception rises with what it quotes. A mooncake.token event keeps all that it
// should have. The rules that removed something are counted by name; names that no rule has are counted as one, because
// a name can be a text, too.
//
// # Bounds
//
// Nothing is kept from one call to the next but derived keys and buffers, and these are bounded. Time and memory of a
// call are linear in its telemetry, whatever that holds; there is no input on which it fails.
package annotate
