// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

// Package segment keeps a journal in segments: files that are begun by size and by time, and a trace beside each one
// that is complete.
//
//	<directory>/<name>-20261121T170501Z-000001.journal          a segment; the last one is open
//	<directory>/<name>-20261121T170501Z-000001.jsonl            its trace, with .meta.json
//	<directory>/<name>-20261121T170501Z-000001.run-ID.jsonl     that of a replay, by [capture.RunFile]
//	<directory>/<name>-20261121T170501Z-000001.pending          its trace is not there yet
//	<directory>/<name>.lock                                     held by whoever writes
//	<directory>/.<name>.tmp                                     temporary files
//
// Times are UTC, numbers never come back, files can be read by their owner only. A segment without a record gives way to one of a
// later time, so that a name tells when the first record came, to Options.MaxAge.
//
// # The cut
//
// A trace (one trace id) that goes on across the end of a segment would be torn by it: its requests would miss what their
// ancestors know. So at the cut the records of each trace that had one within the grace period before it are copied to
// the new segment, and the old segment's own trace leaves them out. Each of them is then whole in the trace of exactly
// one segment: the first at whose cut it had been quiet for the grace period, to 1/64 of that, however many cuts there were
// meanwhile. One that is never quiet is not carried on for ever ([Options.MaxCarries]), nor are more than a bound; both are
// counted. What comes for a trace that has been left behind is in the trace of the segment that it came into.
//
// Each cut copies what is open. So a segment is not closed for its size as long as most of it came within the grace period:
// at a rate that fills segments faster than that each record would be copied many times.
//
// The new segment gets its name when the copies in it are durable and the old one's .pending, with the traces to leave
// out, is too. So a crash at any point leaves either the old segment open, or the cut done. Copying takes a second or a few
// for a segment of 256 MiB. What comes meanwhile goes to the old segment and is copied after the rest, so that Append waits only
// for the last of it, some milliseconds. It belongs to the new segment: .pending has the size of the old one at the cut, and
// its own trace ends there. Only a segment that cannot be written any more is cut while Append waits.
//
// A simpler design would copy nothing: a segment is closed, and its trace is compiled a grace period later from its own journal and
// those of its neighbours, with the traces that have a record in this segment and none in the next. Copies, .pending and [Options.MaxCarries]
// would go, and Append would never wait for a cut. It needs three things that are not here: Compile would have to select by what the next
// journal holds, which is still being written, and so up to a snapshot of its size; retention would have to keep the neighbours of each
// segment whose trace is not there yet; and a segment without rows would need another sign that its trace is done. Each trace would
// come a grace period later, and a compile would read two to three times the bytes. Until that is built and its crash points are
// tested as those of the cut are, segments copy.
//
// The traces of segments are a convenience, never to be concatenated: the journals of all segments, with the copies in
// them, compile to the same trace as one journal that had never been cut, because [capture.Compile] takes each span once.
//
// # What is durable when
//
// Append returns when its records are on the disk, with one sync for all who wait at the time; with [Options.NoSync] it
// returns when the operating system has them, and they survive the end of the process but not of the machine. A disk that
// is full is an error of Append. A sync that fails fails all that waited for it, and the segment is not written again,
// because later syncs could succeed without what was lost.
//
// Somebody may remove, rename or replace the open journal, the lock, or the whole folder. Each sync looks afterwards
// whether the journal still has its name, so that Append never returns nil for a record that was not to be found by then; with
// NoSync that is looked at once a second. A journal that is gone is not written again: who waits for a sync of it gets an error, the
// next Append begins a segment in a folder that is made anew, and nothing is carried into it. What was in the journal is gone with
// it, and counted ([Cut].Lost). While another process has taken the name meanwhile, Append fails.
//
// The next process goes on with the open segment of the one before, however that one ended, and compiles what was
// pending.
package segment
