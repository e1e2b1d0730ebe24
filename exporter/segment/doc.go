// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

// Package segment writes a journal in segments, files that are limited in size and time, and a trace next to each complete
// segment.
//
//	<directory>/<name>-20261121T170501Z-000001.journal          a segment; the last one is open
//	<directory>/<name>-20261121T170501Z-000001.jsonl            its trace, with .meta.json
//	<directory>/<name>-20261121T170501Z-000001.run-ID.jsonl     the trace of a replay, named by [capture.RunFile]
//	<directory>/<name>-20261121T170501Z-000001.pending          its trace is not compiled yet
//	<directory>/<name>.lock                                     locked by the process that writes
//	<directory>/.<name>.tmp                                     temporary files
//
// Times are UTC, numbers are never reused, and only the owner can read the files. A segment without a record is replaced by one
// with a later time, so that a name shows when the first record arrived, to within Options.MaxAge.
//
// # The cut
//
// At a cut, the open segment is synced, a .pending file is written, and the next segment gets its name. After a crash at any point, either
// the old segment is the last one, and continues, or the cut is complete. Append waits for the cut, some milliseconds.
//
// The records of a request can be on both sides of a cut. So the trace of a segment is compiled a grace period later, from its own journal
// and from those that were written within the grace period before and after it, including the open one ([capture.Options].Before and
// After). Its rows are the requests whose record nearest to the engine is in the segment, completed by their other records. So each request
// is a row of exactly one segment, unless its records came more than a grace period apart: then the record farther from the engine may be a
// row of its own, and the other row lacks its values. Sessions begin anew with each segment.
//
// The times of segments are those of their names. A segment that will be compiled is not closed for its size before it is a grace period
// old, so that the neighbouring segments are enough. If these are younger, up to 16 before and after it are read.
//
// The traces of segments are a convenience. Never concatenate them. The journals of all segments compile to the same trace as one journal
// without cuts.
//
// # What is durable when
//
// Append returns when its records are on disk, with one sync for all waiting calls. With [Options.NoSync] it returns when the
// operating system has them, and they survive a crash of the process but not of the machine. A full disk is an error of Append.
// If a sync fails, all calls that waited for it fail, and the segment is not written again, because later syncs could succeed
// although records are lost.
//
// Somebody may remove, rename or replace the open journal, the lock, or the whole directory. After each sync, the journal's name is
// checked, so that Append never returns nil for a record that could not be found by then; with NoSync, it is checked once a second. A
// journal that is gone is not written again: calls that wait for its sync get an error, and the next Append begins a segment in a new
// directory. The records of the journal are lost, and counted ([Cut].Lost). While another process uses the name, Append fails.
//
// The next process continues the open segment of the previous process, however that ended, and compiles pending segments.
package segment
