// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

// Package foreign turns public traces of other formats into Mooncake rows: Alibaba Bailian, BurstGPT, and the Azure LLM
// inference traces. None of them holds text, so that nothing has to be hashed.
//
// [Convert] reads any number of files of one [Format], merges their rows by time, and gives each row its timestamp
// relative to the first. Times are read as the decimal text that they are and kept in whole nanoseconds. What a row cannot
// hold, and rows that are no requests, are counted in the sidecar.
//
// # Block ids
//
// A Mooncake id stands for a block and all blocks before it. Whether the ids of a Bailian file do, or stand for their block
// alone, is not documented. Here it does not matter: each id becomes the number of (number of the block before, id), so that two
// rows share as many leading numbers as they share leading ids, and no more. Blocks of a larger size are made the same way, of
// several ids each; a last block that is not full gets a number of its own, which depends on its length.
//
// # Memory
//
// Rows are put into order in a window of [Options].Lookahead rows for each file, and at most 64 MiB in all; a row that
// is further out of order is an error. Of Bailian files the numbers of the blocks stay in memory, some 50 bytes each,
// without bound, and the sessions of the last four to eight million requests. What the digests need is bounded by
// [mooncake.DefaultMaxIDs].
package foreign
