// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

// Package load converts a trace to the stream of items that package schedule sends.
//
// A trace can be larger than memory, so it is read while it is sent. Some facts are needed before the first request: whether the
// trace has timestamps, their unit and resolution, and what the rows of a session contain ([mooncake.SessionMode]). They come from a
// look-ahead over the first rows, and are in [Info]. The look-ahead also sorts rows that are slightly out of time order; a row that
// is further out of order is an error.
//
// The path of a row:
//
//	read → window → predict → order by time → limit → spread → order by offset → shard → schedule
//
// With [Arrivals], an arrival process sets the offsets of rows, instead of spreading.
//
// A row that waits for others (wait_for) has the position of the latest of them, whatever its timestamp, so that the schedule has the row
// when they end. If the row is further behind them in the file than the look-ahead reaches, it may be read, and sent, too late.
//
// Everything before the shard is computed from all rows, so that n shards of one trace, in n processes, agree on offsets, indices
// and predictions without communication.
package load
