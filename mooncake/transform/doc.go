// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

// Package transform makes a Mooncake trace from one or more others: a part of them, more or less load, other times, lengths or prefixes.
//
// [Open] reads the sources as a stream. [Stream.Next] returns rows that follow all rules of the format, with canonical ids, and
// [Stream.Report] describes what each step did. The steps of a stream always have this order; for another order, pipe one transformation
// into the next:
//
//	join → window, sample, filters, first → draw → scale → roots → lengths → block size → longest gap → spread → delays of turns → models → time scale
//
// # Scaling
//
// A trace is scaled by clusters. The trunk is the set of blocks that a large share of the rows begin with. A cluster is the set of
// rows that share a block after the trunk, a session_id, or a reply, or wait for each other (wait_for). Clusters are kept or dropped whole,
// because after the trunk a prefix cache hits only within a cluster, and because a row cannot wait for one that is gone. A random sample of
// rows would lose those hits and waits.
//
// To scale down, clusters are drawn at random, and then exchanged until the rows of each minute and the input, output and hit tokens are as
// close to their share as possible (balanced sampling; Deville and Tillé, Biometrika 91(4), 2004, state the aim). To scale up, copies of
// the trace are overlaid. Each cluster of a copy is shifted in time by its own random amount, and its blocks after the trunk get new ids. A
// fraction of a copy is a sample of it.
//
// Sampling is another way to reduce a trace: it keeps or drops groups (sessions, or the rows that share their first block after the trunk)
// by a hash, one row at a time, as Collectors do. Its figures deviate by chance.
//
// # Memory
//
// Everything is streamed, except for some indexes. If there are fewer or more rows than in the source, or in another order, each row (of
// each copy) needs 4 bytes. Ids that are not canonical also need 30 bytes for each run of consecutive ids, usually one for a row. Lengths
// of prompts and block sizes need 40 bytes for each row, delays of turns about 100 bytes for each session, and the names of models some
// bytes for each conversation. Scaling, roots and the prefix scale must read all rows before they make the first one: they need about 60
// bytes for each, 30 more for each row with a request_id, and keep the rows, packed, in a temporary file ([Config.TempDir]).
package transform
