// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package judge

import "math"

// Fact is a value that may be unknown. The zero Fact is unknown.
type Fact struct {
	V     float64
	Known bool
}

// Know returns a known value. NaN is unknown; a negative value becomes 0, because 0 is the best value of every fact.
func Know(v float64) Fact {
	if math.IsNaN(v) {
		return Fact{}
	}
	return Fact{max(0, min(v, math.MaxFloat64)), true} // JSON has no infinity
}

// KnowIf returns a known value if ok is true, else an unknown fact. It takes the two results of functions that return a value and whether
// it is known.
func KnowIf(v float64, ok bool) Fact {
	if !ok {
		return Fact{}
	}
	return Know(v)
}

// Facts has everything on which the verdict of a run depends. Facts that are left out are unknown and not judged. Durations are in ms,
// shares from 0 to 1.
type Facts struct {
	Served  int64 // rows served, without the warm-up
	Rows    int64 // rows that the run read from the trace
	Records int64 // records that came back

	// The amounts of evidence for the facts below; see the column needs of the table.
	Scheduled int64   // requests with their own scheduled time
	Wired     int64   // requests that reached the wire
	Streams   int64   // replies with known gaps between chunks; the gaps are not counted, because those of one reply are not independent
	Elapsed   float64 // observed time in s

	RejectedShare Fact // unusable rows of the trace that were left out ÷ rows of the trace, as far as it was read

	// LatenessP50, P99 and Max are percentiles and the maximum of the lateness that the machine's hiccups do not explain.
	LatenessP50, LatenessP99, LatenessMax Fact
	// LatenessExplained is the part of the 99th percentile that hiccups explain: the 99th percentile of the whole lateness minus LatenessP99.
	LatenessExplained Fact
	// Drift is the statistically certain growth of lateness, in µs per second of the run (measure.Drift.Sure); 0 if it adds up to at
	// most 1 ms between the first and the last row, because a slope over a short time means nothing.
	Drift           Fact
	HiccupShare     Fact // time in hiccups ÷ time of the run
	WireLagP99      Fact
	CapWaitShare    Fact // requests that waited for the concurrency cap for more than 1 ms ÷ requests
	LookAheadStalls Fact // number of times at which so many rows were held back that reading ahead stopped

	CoalescedShare Fact // gaps between chunks that were sent separately but arrived in one read ÷ gaps
	UnstampedShare Fact // streams whose chunks the kernel did not timestamp ÷ streams
	ClockStep      Fact // change of the wall clock against the monotonic clock over the run; it affects kernel timestamps

	CPUShare       Fact // own CPU time ÷ (time × processors)
	GCPauseMax     Fact
	GCPauseShare   Fact // time in pauses ÷ time
	ThrottledShare Fact // time in which a cgroup's quota held the process back ÷ time

	PromptDifferent Fact // served rows whose prompt tokens differ from the row ÷ those for which the server counted them
	PromptUnknown   Fact // served rows for which the row or the server gives no number of prompt tokens ÷ served rows
	OutputShort     Fact // served rows with fewer output tokens than asked ÷ served rows
	EstimatedTokens Fact // served rows whose output tokens are counted in chunks ÷ served rows
	UncountedTokens Fact // served rows whose number of output tokens is not known ÷ served rows
	RetriedShare    Fact // rows that the engine may have had more than once (measure.Record.Resent) ÷ rows sent
	Reconnected     Fact // rows that took several attempts because there was no connection (measure.Rows.Reconnected) ÷ rows sent
	FailedShare     Fact // rows that failed ÷ rows served or failed
	CutOffShare     Fact // rows whose requests the end of the run cut off ÷ these and the rows served or failed

	// Steady says that the steady state was requested. SteadyRequests is the number of requests that began in it. SteadyLatency is the 90th
	// percentile of their latency ÷ the length of the steady state.
	Steady         bool
	SteadyRequests int64
	SteadyLatency  Fact

	// Shards says that the run had several processes. ClocksApart is the maximum difference between two of their clocks: relative to
	// another shard, requests may have been late by this much.
	Shards      bool
	ClocksApart Fact

	Breaks int // times that the run was cut short and continued

	SpansLost           Fact // spans not accepted ÷ spans ended; unknown without telemetry
	MetricExportsFailed Fact // number of metric exports that failed
}
