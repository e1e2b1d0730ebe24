// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

// Package agent replays a Mooncake trace against an OpenAI-compatible engine.
//
// [Run] does everything, in five steps:
//
//	validate  the configuration is checked without touching anything
//	preflight the output directory is locked, the trace opened, the engine asked for what a replay must know about it
//	plan      all of that becomes one value, which says everything that the run will do; nothing changes it
//	run       each part is given what it needs of the plan; the schedule runs to its end
//	conclude  the telemetry is flushed, the figures are judged and reported
//
// A row passes through the sub-packages in one direction:
//
//	load      the trace becomes a stream of items with offsets
//	schedule  one goroutine dispatches each item at its scheduled time
//	carry     live replies are stored for the rows whose prompts contain them
//	prompt    the row becomes the bytes of a request, while they are written to the socket
//	send      the request is sent; arrivals are timestamped
//	measure   the outcome becomes one record, the records become figures
//	telemetry the record becomes a span with its children and events, and metrics
//	judge     the records become a verdict on how faithful the run was
//	report    everything becomes a table and files
//
// Besides these, preflight queries the engine, observe watches the machine, and clock is the clock that all of them use.
//
// This package connects them: it decides what may stop the run, what waits for what at its end, and what a session passes from turn to
// turn.
//
// # The path of a row
//
// One type crosses each border. A mooncake.Row enters load and leaves it as a schedule.Item, with its offset and its prediction. The
// scheduler calls the dispatcher with the item, on its own goroutine; from there on, each request has its own goroutine. The sender makes a
// measure.Record from the item: prompt fills in what was requested, send what was received, the predictor what a cache should have had. The
// scheduler is told that the request is done. The recorder gets the record through a channel; it alone adds it to the figures, completes its
// span, writes its line, and counts it.
//
// A span begins with its item, as a telemetry.Span, so that its context can be sent with the request. It goes to the recorder with the
// record, and ends there. A session's root span begins with the session's first request, and ends with its first record.
//
// # Memory
//
// A replay's memory depends on the requests in flight and on its configuration, not on the length of the trace. In addition to
// the program itself and some MiB of histograms, it has at most:
//
//	per open stream    about 35 KiB, most of it net/http's, and 12 bytes per token of the reply until its record is written
//	look-ahead         4,096 rows (Trace.Lookahead), and 320 rows between goroutines
//	delayed rows       65,536 that wait for their session or for a slot; at the limit, reading of the trace pauses
//	sessions           16,384 open ones; the last timestamp of 131,072; the prompt kind of 262,144 (10 MiB); if rows are
//	                   new turns, also a million that were closed to make room (40 MiB)
//	prediction         16 bytes for each row with new blocks while block ids are canonical, as moonloop writes them, for 16
//	                   million of them; else 4 million prefixes (200 MB); beyond, rows are counted as unpredicted
//	live replies       64 MiB (Prompt.CarryBytes) if rows need them, and 262,144 rows whose reply is needed
//	requests.jsonl     64 KiB of unwritten lines; at the end 16 MiB of lines that wait for an earlier row; beyond,
//	                   lines are written out of order, and counted
//	spans              64 MiB of encoded OTLP (telemetry.Config.QueueBytes); beyond, spans are lost, and counted
//	garbage            as the process's GOGC says, which Run does not set; `moonloop replay` allows as much as it allocates in
//	                   a second, 8 to 64 MiB, and at least a quarter of the live memory
//
// The first request is sent when the look-ahead has been read, however long the trace is.
package agent
