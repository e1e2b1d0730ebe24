// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

// Package convert converts files of other formats to traces. [Convert] reads any number of files of one [Format], which it can [Detect].
//
// # Telemetry
//
// Two kinds of telemetry are processed by the code that a Collector would run: OTLP in JSON lines (traces and logs, as the Collector's file
// exporter writes them), and Dynamo's request trace. Package annotate annotates the spans, package decode converts them to records, which
// go to a temporary journal, and package capture compiles the journal. The result is what the Collector would have written. With another key
// only the session ids differ. No text gets into the journal, and none into errors.
//
// # Public traces
//
// Formats of lengths or block ids have no text, so nothing has to be hashed. The rows of all files are merged by time. Times are parsed as
// decimal text and kept in whole nanoseconds. The sidecar counts values for which a row has no field, and records that are not requests.
//
// A Mooncake id stands for a block and all blocks before it. Whether the ids of a Bailian file do, or stand for their block alone, is not
// documented. Here it does not matter: each pair (number of the block before, id) gets a number, which replaces the id. So two rows share
// as many leading numbers as they share leading ids, and no more. Larger blocks are numbered in the same way, from several ids each. A
// partial last block gets its own number, which depends on its length.
//
// # Formats
//
// A format is an entry of specs: how its records are divided, the fields by which its files are detected, and a decoder that reads fields of
// a record by name and returns requests. The record remembers the first invalid value, and counts values that were not read. Logs with
// prompts are such formats, too. Their requests become spans and are processed as telemetry; if the prompts are kept, the requests become
// rows directly.
//
// A [Target] is an entry of targets: the fields of a row that another tool reads, and how a row is written for it.
//
// # Memory
//
// For telemetry, memory is that of the longest line and of [capture.Compile]; the journal takes a fraction of the files' size on disk.
//
// Rows of public traces are sorted in a window of [Options].Lookahead rows for each file, and at most 64 MiB in all; a row that is further
// out of order is an error. For Bailian files, the numbers of all blocks stay in memory, about 50 bytes each, without a limit, and so do
// the sessions of the last four to eight million requests. [mooncake.DefaultMaxIDs] limits the memory for the sidecar's digests.
package convert
