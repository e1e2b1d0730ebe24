// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

// Package load turns a trace into the stream of items that the schedule sends.
//
// A trace may be larger than memory, so it is read as it is sent. What must be known before the first request
// (does the trace have timestamps, in which unit, on how coarse a grid, what do its sessions mean) is
// decided from a look-ahead over the first rows and told in [Info]. The same look-ahead puts rows that are
// slightly out of time order into order; a row that is further out is an error.
//
// The way of a row:
//
//	read → window → predict → order by time → limit → spread → order by offset → shard → schedule
//
// Everything before the shard is computed from all rows, so that n shards of one trace, in n processes, agree on
// offsets, indices and predictions without talking to each other.
package load
