// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package judge

import "math"

// Fact is a value that may be unknown. The zero Fact is unknown.
type Fact struct {
	V     float64
	Known bool
}

// Know returns a known value. NaN is unknown; a negative value is 0, because every fact is a distance from good.
func Know(v float64) Fact {
	if math.IsNaN(v) {
		return Fact{}
	}
	return Fact{max(0, min(v, math.MaxFloat64)), true} // JSON has no infinity
}

// KnowIf returns the value where ok holds, else an unknown one: for functions that return both.
func KnowIf(v float64, ok bool) Fact {
	if !ok {
		return Fact{}
	}
	return Know(v)
}

// Facts is everything about a run that its verdict depends on. What is left out is unknown and judged neither way.
// Durations are in ms, shares from 0 to 1.
type Facts struct {
	Served  int64 // rows served, warm-up left out
	Rows    int64 // rows that the run took from the trace
	Records int64 // records that came back

	// What the values below rest on; see the column needs of the table.
	Scheduled int64   // requests with an intended instant of their own
	Wired     int64   // requests that reached the wire
	Streams   int64   // replies whose gaps between chunks are known: those of one reply are no evidence of the others'
	Elapsed   float64 // observed time in s

	RejectedShare Fact // rows of the trace that could not be used and were left out ÷ rows of the trace, as far as it was read

	// LatenessP50, P99 and Max are of the lateness that the machine's hiccups do not explain.
	LatenessP50, LatenessP99, LatenessMax Fact
	// LatenessExplained is what the hiccups explain of the 99th percentile: the whole lateness's less LatenessP99.
	LatenessExplained Fact
	// Drift is the growth of lateness in µs per second of run, beyond doubt (measure.Drift.Sure); 0 where that adds up
	// to no more than 1 ms between the first and the last row, because a slope over an instant says nothing.
	Drift           Fact
	HiccupShare     Fact // time in hiccups ÷ time of the run
	WireLagP99      Fact
	CapWaitShare    Fact // requests that waited for the concurrency cap for more than 1 ms ÷ requests
	LookAheadStalls Fact // number of times at which too many rows were held back at once for the trace to be read on

	CoalescedShare Fact // gaps between chunks that came in one read although sent apart ÷ gaps
	UnstampedShare Fact // streams whose chunks the kernel did not stamp ÷ streams
	ClockStep      Fact // change of the wall clock against the monotonic clock over the run; matters to kernel stamps

	CPUShare       Fact // own CPU time ÷ (time × processors)
	GCPauseMax     Fact
	GCPauseShare   Fact // time in pauses ÷ time
	ThrottledShare Fact // time in which a cgroup's quota held the process back ÷ time

	PromptDifferent Fact // served rows whose prompt tokens differ from the row ÷ those where the server said
	PromptUnknown   Fact // served rows where it did not say ÷ served rows
	OutputShort     Fact // served rows with fewer output tokens than asked ÷ served rows
	EstimatedTokens Fact // served rows whose output tokens are counted in chunks ÷ served rows
	RetriedShare    Fact // rows that the engine may have had more than once (measure.Record.Resent) ÷ rows sent
	FailedShare     Fact // rows that failed ÷ rows served or failed

	// Steady says that the steady state was asked for. SteadyRequests are the requests that began in it; SteadyLatency is the 90th
	// percentile of their latency ÷ the length of the steady state.
	Steady         bool
	SteadyRequests int64
	SteadyLatency  Fact

	// Shards says that the run was of several processes. ClocksApart is the most by which the clocks of two of them may differ: the
	// requests of one were late by this much beside those of another.
	Shards      bool
	ClocksApart Fact

	Breaks int // times that the run was broken off and continued

	SpansLost           Fact // spans not accepted ÷ spans ended; unknown without telemetry
	MetricExportsFailed Fact // number of metric exports that failed
}
