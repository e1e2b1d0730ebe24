// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

// Package transform makes a Mooncake trace of other ones: a part of it, more or less load, other times, lengths or prefixes.
//
// [Open] reads the sources as a stream; [Stream.Next] returns rows that keep all rules of the format, in canonical ids, and
// [Stream.Report] says what each step did. The steps of one stream are always done in this order; who wants another one
// pipes one transformation into the next:
//
//	join → window, filters, first → scale → lengths → roots → block size → longest gap → spread → time scale
//
// # Scaling
//
// A trace is scaled by its clusters. The trunk are the blocks that a large share of the rows begins with; a cluster are the rows
// that share a block below the trunk, a session_id, or a reply. Clusters are kept or left out whole, since the hits of a prefix cache
// below the trunk are hits within a cluster: a random sample of rows loses them.
//
// Down, clusters are drawn at random, and then exchanged until the rows of each minute, the input, output and hit tokens are as
// close to their share as they come (balanced sampling; Deville and Tillé, Biometrika 91(4), 2004, state the aim). Up, copies of
// the trace are laid over it. Each cluster of a copy is moved in time by its own random shift, and its blocks below the trunk get new
// ids. A part of a copy is a sample of it.
//
// # Memory
//
// Everything but the figures streams. Rows that are fewer, more or in another order than those of the source cost 4 bytes each (and
// each copy), ids that are not canonical then 30 bytes for each run of consecutive ids, usually one for a row. Scaling, roots and
// the prefix scale read the source twice, and keep some 60 bytes for each of its rows in between.
package transform
