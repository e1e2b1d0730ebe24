// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

// Package mooncake is the Mooncake trace: rows of request lengths, arrival times and block ids, as JSON lines.
//
// It reads traces ([Open], [Reader]) and writes them ([Create], [Writer]), together with the sidecar that says what the
// rows cannot ([Meta]). It checks a trace against the rules of the format ([Checker]), gives its ids canonical
// numbers ([Renumber]), reduces it to three digests that tell whether two traces are the same workload ([Digester]),
// and measures it ([Analyzer]): lengths, arrivals, prefix sharing, and what a prefix cache would have hit
// ([CacheSim], [Predictor]). It knows nothing of engines, prompts or telemetry.
//
// # Rows
//
// A row is one request, one JSON object on one line:
//
//	{"timestamp": 0, "input_length": 6758, "output_length": 500, "hash_ids": [0, 1, 2]}
//
// timestamp is in milliseconds. A hash id stands for one block of prompt tokens and for all blocks before it, so that
// equal leading ids of two rows mean an equal beginning of their prompts. Rows may give their prompt in other ways
// and carry extensions; see [Row] for all fields. A reader accepts every field of AIPerf's mooncake_trace and of
// Dynamo's Mooncake rows with its aliases (input_tokens, output_tokens, created_time, delay_ms), and null for an absent
// value.
//
// # Kindness and strictness
//
// A reader refuses what cannot be understood, and says where and why ([RowError]). What is odd and has one sensible
// reading is read that way, and counted ([Notice]): keys that nobody knows, fields of other tools without effect,
// more ids than the length has room for. [ReaderOptions].Strict makes the first and the last an error, and ids that
// have two parents or two fills as well.
//
// # Memory
//
// Everything here streams. What has to remember ids is bounded by an option and says what it could not tell beyond
// the bound; only [Renumber] grows with the ids of the trace.
package mooncake
