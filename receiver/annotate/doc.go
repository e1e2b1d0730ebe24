// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

// Package annotate annotates the inference spans in GenAI telemetry of any producer, in place, and removes its text.
//
// # Annotation
//
// Every span passes. A span that package genai recognises as a request to a model gets mooncake.identity, which says what
// identifies its prompt: the engine's block hashes, token ids, the text as keyed cells, or nothing. It also gets the ids or
// cells; where the messages of a text end, and where the reply will end in the next prompt, if it is complete ([Prompt],
// [Reply]); the domain and key fingerprint; and the standard gen_ai.* attributes for values under other names, so that readers
// need no dialects. Name, kind, ids, times and status code do not change. Usage that a producer makes up is removed, and
// estimates are not written. Every span that names a session gets the keyed hash of the session.
//
// A span that has mooncake.identity or mooncake.row came from another receiver or from a replay. It is not annotated again, so
// that receivers can be chained: a second one changes nothing, even with another key.
//
// Log records with a span's prompt become a child span of that span; those of Dynamo's request trace become a span each. The
// records themselves get mooncake.identity, by which the next receiver recognises them.
//
// # Cleaning
//
// All text is removed unless the configuration says otherwise. Of spans and logs of GenAI telemetry, wrappers and tools included, only
// numbers remain, and short values under the names of an allow-list: ids, models, reasons, addresses. Such values must also have the right
// form: an id is one word, a count a number, nothing is a document. From all other telemetry, metrics included, values that a deny-table
// names and values above 1 KiB (a nested value counts as a whole) are removed. Everywhere, the query of a URL is removed, the type of an
// error must be a word, and mooncake.* must be what this package or a replay writes. Names longer than 256 bytes and trace states longer
// than 512 are replaced or removed. Status messages and messages of exceptions are removed, because an exception propagates with what it
// quotes. A mooncake.token event keeps its known attributes. Removals are counted by the name of the rule; names without a rule are counted
// together, because a name can contain text, too.
//
// # Bounds
//
// Between two calls, only derived keys and buffers remain, and these are bounded. Time and memory of a call are linear in its
// telemetry, whatever that contains. No input makes it fail.
package annotate
