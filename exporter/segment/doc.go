// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

// Package segment writes a journal in segments, files that are limited in size and time, and a trace next to each complete
// segment.
//
//	<directory>/<name>-20261121T170501Z-000001.journal          a segment; the last one is open
//	<directory>/<name>-20261121T170501Z-000001.jsonl            its trace, with .meta.json
//	<directory>/<name>-20261121T170501Z-000001.run-ID.jsonl     that of a replay, by [capture.RunFile]
//	<directory>/<name>-20261121T170501Z-000001.pending          its trace is not compiled yet
//	<directory>/<name>.lock                                     locked by the process that writes
//	<directory>/.<name>.tmp                                     temporary files
//
// Times are UTC, numbers are never reused, and only the owner can read the files. A segment without a record is replaced by one
// with a later time, so that a name shows when the first record arrived, to within Options.MaxAge.
//
// # The cut
//
// An OTel trace (one trace id) can continue across the end of a segment. If it were cut there, its requests would lack what their
// ancestors know. So at the cut, the records of each OTel trace with a record in the last grace period are copied to the new
// segment, and the old segment's own trace leaves them out. Each OTel trace is then complete in exactly one segment's trace: the
// first at whose cut it had no record for the grace period, to 1/64 of that, however many cuts there were. An OTel trace that
// never pauses is copied [Options.MaxCarries] times, and the number of copied OTel traces is bounded; both are counted. Later
// records of an OTel trace that is no longer copied are in the trace of the segment in which they arrived.
//
// Each cut copies what is open. So a segment is not closed for its size while most of it arrived in the last grace period: if
// segments filled faster than that, each record would be copied many times.
//
// The new segment gets its name when its copies, and the old segment's .pending with the OTel traces to leave out, are durable.
// So after a crash at any point, either the old segment is open, or the cut is done. Copying takes a second or a few for a
// segment of 256 MiB. Records that arrive meanwhile go to the old segment, and are copied last, so that Append waits only for
// these, some milliseconds. They belong to the new segment: .pending has the old segment's size at the cut, and its own trace
// stops there. Only if a segment cannot be written any more does Append wait for the whole cut.
//
// A simpler design would copy nothing: a segment is closed, and its trace is compiled a grace period later from its own journal and
// those of its neighbours, with the traces that have a record in this segment and none in the next. Copies, .pending and [Options.MaxCarries]
// would go, and Append would never wait for a cut. It needs three things that are not here: Compile would have to select by what the next
// journal holds, which is still being written, and so up to a snapshot of its size; retention would have to keep the neighbours of each
// segment whose trace is not there yet; and a segment without rows would need another sign that its trace is done. Each trace would
// come a grace period later, and a compile would read two to three times the bytes. Until that is built and its crash points are
// tested as those of the cut are, segments copy.
//
// The traces of segments are a convenience. Never concatenate them. The journals of all segments, with the copies in them,
// compile to the same trace as one journal without cuts, because [capture.Compile] uses each span once.
//
// # What is durable when
//
// Append returns when its records are on disk, with one sync for all waiting calls. With [Options.NoSync] it returns when the
// operating system has them, and they survive a crash of the process but not of the machine. A full disk is an error of Append.
// If a sync fails, all calls that waited for it fail, and the segment is not written again, because later syncs could succeed
// although records are lost.
//
// Somebody may remove, rename or replace the open journal, the lock, or the whole directory. After each sync, the journal's name
// is checked, so that Append never returns nil for a record that could not be found by then; with NoSync, it is checked once a
// second. A journal that is gone is not written again: calls that wait for its sync get an error, and the next Append begins a
// segment in a new directory, without copies. The records of the journal are lost, and counted ([Cut].Lost). While another
// process uses the name, Append fails.
//
// The next process continues the open segment of the previous one, however that process ended, and compiles what is pending.
package segment
