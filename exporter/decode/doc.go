// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

// Package decode converts spans to records of a journal. It reads the contract of package semconv: the attributes that a replay or a
// receiver wrote on a span become the fields of a record.
//
// Every span is exactly one record, or counted as dropped because it has no id:
//
//	mooncake.record                          the record that the span carries, see [Carry]
//	mooncake.content, with a prompt          [journal.Content]
//	mooncake.identity or mooncake.row        [journal.Inference]
//	a request to a model, by package genai   [journal.Inference] without identity and session, counted as unannotated
//	anything else                            [journal.Link]
//
// Spans come from the network. An attribute that violates the contract (another type, a negative count, a million ids, cells of
// impossible length) is left out and counted; the rest of the record stays. No text gets through: a record's only strings are
// names of models and runs, without spaces.
package decode
