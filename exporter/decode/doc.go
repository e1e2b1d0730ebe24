// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

// Package decode turns spans into records of a journal. It is the other side of the contract in package semconv: what an agent
// or a receiver wrote on a span becomes the fields of a record.
//
// Every span is exactly one record, or counted as dropped because it has no id:
//
//	mooncake.content, with a prompt          [journal.Content]
//	mooncake.identity or mooncake.row        [journal.Inference]
//	a request to a model, by package genai   [journal.Inference] without identity and session, counted as unannotated
//	anything else                            [journal.Link]
//
// Spans come from the network. An attribute that is not what the contract says (another type, a negative count, a million
// ids, cells that no hasher made) is left out and counted, and costs the record nothing else. No text gets through: a
// record's only strings are names without spaces, of models and runs.
package decode
