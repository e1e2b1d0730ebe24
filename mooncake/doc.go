// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

// Package mooncake is the Mooncake trace: rows of request lengths, arrival times and block ids, as JSON lines.
//
// It reads traces ([Open], [Reader]) and writes them ([Create], [Writer]), together with the sidecar that says what the
// rows cannot ([Meta]). It checks a trace against the rules of the format ([Checker]), gives its ids canonical
// numbers ([Renumber]), and reduces it to digests that tell whether two traces are the same workload ([Digester]). Package
// stats measures traces. Both know nothing of engines, prompts or telemetry.
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
// # Sharing as fine as a real cache's
//
// Blocks of 512 tokens are coarser than those of any engine's cache, and an engine has what it generated in its cache, too. Two
// fields say what rows share more finely. Tools that do not know them read the four fields as ever.
//
//	{"timestamp": 9000, "input_length": 1300, "output_length": 9, "hash_ids": [0, 1, 3],
//	 "hash_ranges": [[0, 64], [65, 18]], "replies": [[1, 1030, 100]]}
//
// hash_ranges are the ids of the same prompt in blocks of fine_block_size tokens, which the sidecar gives (16 as a rule), as
// pairs of the first id and the number of ids: ids that follow one another are one range. They are ceil(input_length /
// fine_block_size) in all, the last block may be partial. Such an id stands for its block and all blocks before it, too; its number
// has nothing to do with those of hash_ids. Both tell the same prefixes (rule V9): two rows have the same hash id at a block
// exactly when they have the same id of ranges at its end. Canonical ids are 0, 1, 2, ... in order of first appearance, so that a
// row is a handful of ranges: one for each row before of whose new blocks it has some, and its own.
//
// replies are triples: the reply to the row so many rows before in the file is, behind so many tokens of this prompt, so
// many tokens of it. All replies of the conversation so far are listed, in order. A prompt begins before its first reply and goes on
// after its last one. An engine has the tokens of a reply in its cache, but for the last one, behind the prompt that it was the
// reply to.
//
// # Kindness and strictness
//
// A reader refuses what cannot be understood, and says where and why ([RowError]). What is odd and has one sensible
// reading is read that way, and counted ([Notice]): keys that nobody knows, fields of other tools without effect,
// more ids than the length has room for. [ReaderOptions].Strict makes the first and the last an error, and ids that
// have two parents or two fills, or disagree with ranges, as well. Replies to rows that were left out are left out, and counted.
//
// # Memory
//
// Everything here streams. What has to remember ids is bounded by an option and says what it could not tell beyond
// the bound; only [Renumber] and [RenumberRanges] grow with the trace.
package mooncake
