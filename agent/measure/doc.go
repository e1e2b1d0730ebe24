// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

// Package measure computes the figures of a run from the result of each row.
//
// A [Record] has the times and counts of one row. Each method of Record is the formula of one figure, and its comment names the tool that
// the formula comes from. [Aggregate] adds the figures of all records to histograms and sums. [Figures] is the result.
//
// # Where a latency starts and ends
//
// Every latency names its two ends. It ends at a content chunk's arrival, and starts at one of three times:
//
//   - start: the request was handed to the transport. This is where AIPerf, vLLM and GuideLLM start, so the
//     figures with their names start here too. Such a latency includes the wait for a connection and its set-up.
//   - wire: the last byte of the request was given to the kernel. Such a latency is the time that the engine and the network took.
//   - intended: the scheduled time of the row. Such a latency is how long a user of the traced system would have waited, and includes
//     the client's own lateness, so it shows when the client fell behind (coordinated omission).
//
// # What counts
//
// The records of warm-up requests are not added, so no figure includes them. Latencies come from served rows that were sent once: the
// instants of a retried request are those of its last attempt, so its latencies would look too short. Tokens and throughputs come from all
// served rows. Lateness comes from all rows that were dispatched, served or not.
//
// # Memory
//
// An Aggregate uses at most 20 MiB, whatever the number of rows: histograms with three significant digits, with exact average, minimum,
// maximum, sum and standard deviation, and time series whose bin width doubles when a run outgrows them.
package measure
