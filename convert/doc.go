// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

// Package convert makes traces of files of other formats. [Convert] takes any number of files of one [Format], which it can [Detect].
//
// # Telemetry
//
// OTLP in JSON lines, as the Collector's file exporter writes traces and logs, and the request trace of Dynamo take the way that they
// would have taken through a Collector, by the same code: package annotate turns them into annotated spans, package decode turns
// these into records, which go to a temporary journal, and package capture compiles the journal. What comes out is what the Collector
// would have written, but for the key: under another one the session ids differ, and nothing else. No text gets into the journal, and
// none into errors.
//
// # Public traces
//
// Alibaba Bailian, BurstGPT and the Azure LLM inference traces hold no text, so that nothing has to be hashed. The rows of all files are
// merged by time. Times are read as the decimal text that they are and kept in whole nanoseconds. What a row cannot hold, and rows
// that are no requests, are counted in the sidecar.
//
// A Mooncake id stands for a block and all blocks before it. Whether the ids of a Bailian file do, or stand for their block
// alone, is not documented. Here it does not matter: each id becomes the number of (number of the block before, id), so that two
// rows share as many leading numbers as they share leading ids, and no more. Blocks of a larger size are made the same way, of
// several ids each; a last block that is not full gets a number of its own, which depends on its length.
//
// # Memory
//
// For telemetry it is that of the longest line and of [capture.Compile]; the journal takes a fraction of the files' size on the disk.
//
// Rows of public traces are put into order in a window of [Options].Lookahead rows for each file, and at most 64 MiB in all; a row
// that is further out of order is an error. Of Bailian files the numbers of the blocks stay in memory, some 50 bytes each,
// without bound, and the sessions of the last four to eight million requests. What the digests need is bounded by
// [mooncake.DefaultMaxIDs].
package convert
