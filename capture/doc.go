// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

// Package capture compiles the journals of one or more collectors into traces.
//
// [Compile] writes canonical traces: one for production, and one for each replay. It is a pure function of the set of records. The
// same records give the same bytes, whatever journals they are in, whatever the order of the journals, and however often a record
// occurs. Its steps:
//
//  1. Partition by run. A span without a run id belongs to the run of its nearest ancestor that has one, so an engine's own spans
//     below a replayed request belong to that replay. If an ancestor is missing, the run is that of the OTel trace, provided that
//     all its spans with a run id name the same one.
//  2. Remove duplicates by (trace id, span id). An annotated record wins over a raw one, then the one with more fields, then the
//     one whose bytes come first.
//  3. Group. Inference spans that are connected directly, or through links only, form a tree. The spans of tools and of agents
//     separate trees. A server's span without a parent belongs below the span that its link names, if it begins during that
//     span. Each successful leaf becomes a row. A field that the leaf lacks comes from its nearest ancestor. Tokens and the
//     response id come from an ancestor only if it has no other successful leaf, because otherwise they count several requests.
//     Leaves of different trees with the same response id and overlapping times are one request, and the shortest of them is the
//     nearest to the engine, unless a server gives that id to several requests: see response.go. A request that does not begin within
//     its parent was timed by another clock: it gets the parent's beginning, and rows that only such a clock saw are counted. In a tree
//     with a row index, each span with an index is a row of a replay, and the other spans give no rows. Spans of production with the
//     response id and the time of a replay's request belong to the replay: a gateway that does not pass the trace context on starts new
//     OTel traces.
//  4. Assign ids. The tokens of texts are located for each (domain, model), sessions without content get ids by turn, other rows
//     get only their length. Shared prefixes are known in blocks of [FineBlockSize] tokens, and so are the parts of a prompt that
//     were replies to earlier rows.
//  5. Order. Replays are ordered by row, production by (start, trace id, span id). Ids are numbered by first appearance.
//
// # Text
//
// All texts that were hashed with one key have one domain, whatever the model (blockhash.TextDomain). So the prompt of a row may
// come from its own span, from an ancestor that calls the model by another name, or from a log record that names no model. Equal
// text to different models has different ids. The model of a row is the one that answered, else the one that was requested,
// according to the leaf or its nearest ancestor. Two names count as one model only with proof, over all records; see models.go.
//
// The prompts of a trace are located together. The marks of a text are the ends of its cells and of its messages. Each stretch of
// marks gets its position, in bytes and tokens, from the shortest prompt that contains it and whose end is an anchor. A reply is
// found in a later prompt by the value of the text up to the reply's end. That end is also an anchor, because the tokens of the
// prompt and of the reply are counted. For conversations generated with a known tokenisation, an engine that caches single tokens
// had 94 % of the prompt tokens, and the trace predicted that within 0.05 points; 94 to 97 of 100 requests were within 16 tokens,
// and no prediction was more than 65 tokens too high. Without the ends of messages, as in older journals, rows share 0.15 to 0.35 points
// less in blocks of 512.
//
// The number of tokens of an image, audio or a file is unknown. The text before the last one is located by other prompts whose
// end is known, else by the mean rate of the prompts without media (a token for 4 bytes if there are none). The other tokens are the medium's.
//
// Of some prompts only the beginning is known: the telemetry truncated it ([journal.Prompt].Prefix), or several [journal.Content]s
// hold parts of it, of which the earliest begins where the prompt does. Such a beginning has an unknown number of tokens, so it is
// no anchor. Its blocks are known as far as whole prompts have the same text; its other blocks are unique. The later parts are
// left out, and if none is the earliest, all are. A single Content counts as the whole prompt.
//
// # What the engine had cached
//
// If production reported how much of a prompt the engine had cached, that is used. It can extend what a row shares, from the last
// known equal text to the next mark (the end of a cell or of a message), and never reduces it. It also reveals templates that render
// a prompt in a different order than the telemetry shows: see follow.go.
//
// # Memory
//
// Sorting, grouping and locating use temporary files beyond [Options].Memory. So do the ids of blocks, what rows share, and the prefix tree
// of digests and trunk. Memory holds the parts that were used last (internal/ondisk), so a trace whose rows share with much earlier rows is
// slower to write. Also in memory:
//
//   - for each of two cores, the ids and the ancestry of one OTel trace (up to [Options].MaxTraceSpans spans, about 200 bytes each), one
//     path of marks, and the counts of each run;
//   - 2 KiB for each pair of service and model whose spans report cached tokens, at most 32 MiB for each core, and twice that for a moment;
//   - the predicted cache, if engines reported cached tokens and the block ids came from them: up to 4 million ids, 200 MB;
//   - 40 bytes for each prompt that is the beginning of an earlier one and ends within one of its blocks, and 8 bytes for each cell that
//     prompts with many short messages have in several places.
//
// The garbage collector adds what GOGC allows: a quarter with GOGC=25, which moonloop compile sets, and as much again with Go's default
// of 100, which a Collector uses. Compile changes no setting of the process. Temporary files need up to twice the size of the journals, and
// three times if another order of prompts is tried.
//
// # Shards
//
// [CompileShard] does a part of a compile, in parallel with other processes. [Compile] is divided in the same way between two cores. See
// shard.go.
package capture
