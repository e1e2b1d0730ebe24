// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

// Package capture keeps what was captured from telemetry, and makes traces of it.
//
// A collector appends records to a journal: an [Inference] for each annotated (or raw) inference span, a [Content] for
// each span that only carries the cells of another one's prompt, and a [Link] for every other span, because sessions
// and ancestry live on those. A record holds ids, numbers, hashes and enumerations; no field can hold a text.
//
// [Compile] turns the journals of one or many collectors into canonical traces, one for production and one for each
// replay. It is a pure function of the records: however they are dealt to journals and in whatever order these are
// given, the bytes written are the same. Its steps:
//
//  1. Partition by run. A span without a run id belongs to the run of its nearest ancestor that has one: an engine's
//     own spans below a replayed request are of that replay. Where the way up breaks off at a span that nobody sent,
//     the run is that of the trace, if all of the trace's spans that name a run name the same one.
//  2. Dedupe by (trace id, span id): annotated before raw, then more fields, then smaller bytes.
//  3. Group. Inference spans with only links between form a tree; each successful leaf is one row, whose gaps are filled
//     from the nearest ancestor that has the field. Tokens and response id come from an ancestor only when the leaf
//     is its one successful leaf, since they would count for several requests otherwise. Then leaves of different trees
//     with the same response id and overlapping times are one request, and the shortest is the nearest to the engine.
//     In a tree with a row index, each span that has one is a row of a replay and nothing else is taken from the tree.
//  4. Borders of blocks over the cells, in row order; ids by structure for sessions without content; lengths for
//     the rest.
//  5. Order: replays by row, production by (start, trace id, span id). Ids are renumbered by first appearance.
//
// # Memory
//
// Whatever is sorted or grouped goes to temporary files beyond [Options].Memory. In memory stay: the ids and ancestry
// of one trace (up to [Options].MaxTraceSpans spans, some 200 bytes each), the counts of each run, the positions of cells
// (up to blockhash.DefaultBorderLimit), the digester's tree (up to mooncake.DefaultMaxIDs ids) with some bytes a row,
// and, without a bound, the numbers of the block ids.
package capture
