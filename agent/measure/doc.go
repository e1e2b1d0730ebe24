// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

// Package measure computes the figures of a run from the outcome of each row.
//
// A [Record] has the instants and counts of one row. The methods of Record are the formulas, one for each figure, with the tool
// that it comes from; [Aggregate] feeds them into histograms and sums; [Figures] is the result.
//
// # Where a latency starts and ends
//
// Every latency names its two ends. It ends at a content chunk's arrival, and starts at one of three instants:
//
//   - start: the request was handed to the transport. This is where AIPerf, vLLM and GuideLLM start, so the
//     figures with their names start here too. It contains the wait for a connection and the connection's set-up.
//   - wire: the last byte of the request was given to the kernel. The time of the engine and the network.
//   - intended: the scheduled time of the row. What a user of the traced system would have waited, the client's own lateness
//     included. A latency from here shows a client that fell behind (coordinated omission).
//
// # What counts
//
// Warm-up rows are counted and otherwise ignored. Latencies come from served rows that were sent once: the instants of a retried
// request are those of its last attempt, and too good. Tokens and throughputs come from all served rows. Lateness comes from all
// rows that were dispatched, served or not.
//
// # Memory
//
// An Aggregate uses at most 20 MiB, whatever the number of rows: HdrHistograms of three significant digits, with exact average,
// minimum, maximum, sum and standard deviation, and time series that double their bin width when a run outgrows them.
package measure
