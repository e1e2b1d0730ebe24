// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

// Package convert makes traces of files of other formats. [Convert] takes any number of files of one [Format], which it can [Detect].
//
// # Telemetry
//
// OTLP in JSON lines, as the Collector's file exporter writes traces and logs, and the request trace of Dynamo are processed by the
// code that a Collector would run: package annotate turns them into annotated spans, package decode turns these into records, which
// go to a temporary journal, and package capture compiles the journal. The result is what the Collector would have written. With
// another key only the session ids differ. No text gets into the journal, and none into errors.
//
// # Public traces
//
// Formats of lengths or block ids hold no text, so that nothing has to be hashed. The rows of all files are merged by time. Times are read as the decimal text that they are and kept in whole nanoseconds. The sidecar counts
// values that a row has no field for, and rows that are not requests.
//
// A Mooncake id stands for a block and all blocks before it. Whether the ids of a Bailian file do, or stand for their block alone,
// is not documented. Here it does not matter: each id becomes the number of (number of the block before, id), so that two rows
// share as many leading numbers as they share leading ids, and no more. Larger blocks are numbered in the same way, from several
// ids each. A last block that is not full gets its own number, which depends on its length.
//
// # Formats
//
// A format is an entry of specs, in a file of its own: how its records are divided, which fields tell its files, and a decoder that asks a
// record for fields by name and gives requests. The record remembers the first value that is not what was asked for, and counts those
// that nobody asked for. Logs with prompts are such formats, too. Their requests become spans and are processed as telemetry, unless the
// prompts are kept; then they become rows.
//
// A [Target] is an entry of targets: what another tool reads of a row, and how a row is written for it.
//
// # Memory
//
// For telemetry it is that of the longest line and of [capture.Compile]; the journal takes a fraction of the files' size on the disk.
//
// Rows of public traces are put into order in a window of [Options].Lookahead rows for each file, and at most 64 MiB in all; a row
// that is further out of order is an error. For Bailian files, the numbers of all blocks stay in memory, about 50 bytes each,
// without a limit, and so do the sessions of the last four to eight million requests. What the digests need is bounded by
// [mooncake.DefaultMaxIDs].
package convert
