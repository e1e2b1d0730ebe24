// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

// Package mooncake implements the Mooncake trace format: rows of request lengths, arrival times and block ids, as JSON lines.
//
// It reads traces ([Open], [Reader]) and writes them ([Create], [Writer]), together with the metadata file, or sidecar, which has what rows
// cannot express ([Meta]). It checks a trace against the rules of the format ([Checker]), renumbers its ids canonically ([Renumber]), and
// computes digests that are equal for equal workloads ([Digester]). Package stats measures traces, and package transform makes traces from
// other traces. None of them depends on engines, prompts or telemetry.
//
// # Rows
//
// A row is one request, one JSON object on one line:
//
//	{"timestamp": 0, "input_length": 6758, "output_length": 500, "hash_ids": [0, 1, 2]}
//
// timestamp is in milliseconds. A hash id identifies one block of prompt tokens and all blocks before it, so two rows with equal leading
// ids have prompts with an equal beginning. Rows can describe their prompt in other ways, and have extensions; see [Row] for all fields. A
// reader accepts every field of AIPerf's mooncake_trace and of Dynamo's Mooncake rows with its aliases (input_tokens, output_tokens,
// created_time, delay_ms), and null for an absent value.
//
// A reader also reads rows as documentation prints them: over several lines, several on a line, as the elements of a JSON array, with
// comments (//, #, /* */) and with trailing commas. Timestamps are numbers, whose size shows their unit ([ReaderOptions].Unit), or RFC
// 3339 dates, with or without a zone; rows in memory have milliseconds. A [Mapping] reads fields from other keys. A [Writer] writes rows in
// the form of the line above.
//
// # Ranges and replies
//
// Blocks of 512 tokens are larger than those of any engine's cache, and an engine also caches the tokens that it generated. Two more fields
// describe shared prefixes more precisely. Tools that do not know these fields read the four fields as before.
//
//	{"timestamp": 9000, "input_length": 1300, "output_length": 9, "hash_ids": [0, 1, 3],
//	 "hash_ranges": [[0, 64], [65, 18]], "replies": [[1, 1030, 100]]}
//
// hash_ranges are the ids of the same prompt in blocks of fine_block_size tokens, a number that is in the sidecar (usually 16). A pair is a
// range of consecutive ids: the first id and the number of ids. There are ceil(input_length / fine_block_size) ids; the last block may be
// partial. As in hash_ids, an id identifies its block and all blocks before it, but the numbers of the two fields are unrelated. Both
// describe the same prefixes (rule V9): two rows have the same hash id at a block exactly when they have the same range id at its end.
// Canonical ids are 0, 1, 2, ... in order of first appearance. So a row has few ranges: one for each earlier row whose new blocks it
// shares, and one for its own new blocks.
//
// replies are triples [rows, offset, length]. The reply to the row that is this number of rows earlier in the file begins at this token
// offset of the prompt, and has this length in tokens. All replies of the conversation so far are listed, in order. A prompt begins before
// its first reply and continues after its last one. After a reply, an engine has the prompt and the reply's tokens, except the last one, in
// its cache.
//
// A turn of a conversation has the ranges and the replies of the turn before, and some more. It can be written with the additional ones
// only:
//
//	{"timestamp": 21000, "input_length": 1900, "output_length": 44, "hash_ids": [0, 1, 4, 5], "continues": 81,
//	 "hash_ranges": [[118, 38]], "replies": [[3, 1300, 9]]}
//
// continues is the number of leading ids that the row has in common with an earlier row: the row that its first reply answers. Here these
// are the first 81 ids of the row 3 rows earlier. The ranges in the row itself follow them, and its replies follow all replies of the
// earlier row. A reader remembers the ranges and the replies of the last 16,384 rows, or of fewer if those have more than 2^20 in all. If
// the earlier row is further back than that, a [Writer] writes the row in full. Rows in memory are always complete.
//
// # Lenient and strict reading
//
// A reader refuses rows that it cannot understand, and reports where and why ([RowError]). It reads and counts ([Notice]) unusual rows that
// have only one sensible meaning: unknown keys, fields of other tools without effect, more ids than the length has room for. With
// [ReaderOptions].Strict, these are errors: unknown keys, surplus ids, rows that are not on a line of their own, ids that follow two
// different ids or have two fills, and ids that disagree with ranges. A reader leaves out replies to rows that were left out, and counts
// them.
//
// # Memory
//
// Everything is streamed. Types that store ids have a limit as an option, and report what they could not decide beyond it. The memory of
// [Renumber] and [RenumberRanges] grows with the trace; no other type's does.
package mooncake
