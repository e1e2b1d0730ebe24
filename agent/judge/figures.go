// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package judge

import "github.com/moonloop/moonloop/agent/measure"

// FromFigures returns the facts that follow from figures: all except Rows, Elapsed, RejectedShare, LookAheadStalls, HiccupShare, ClockStep,
// Breaks, the process's own consumption, the steady state, the shards and the telemetry.
func FromFigures(f *measure.Figures) Facts {
	late, scheduled := f.Stat(measure.Lateness)
	own, _ := f.Stat(measure.LatenessUnexplained)
	wire, sent := f.Stat(measure.WireLag)
	drift := f.Schedule.Drift.Sure() // NaN, and so unknown, for fewer than ten rows
	if f.Schedule.Drift.Growth() <= driftFloor {
		drift = 0
	}
	share := func(part, whole int64) Fact { return KnowIf(float64(part)/float64(whole), whole > 0) }
	return Facts{
		Served:  f.Rows.Served,
		Records: f.Rows.Total,

		Scheduled: late.Count,
		Wired:     wire.Count,
		Streams:   f.Chunks.Streams,

		LatenessP50:       KnowIf(own.P50, scheduled),
		LatenessP99:       KnowIf(own.P99, scheduled),
		LatenessMax:       KnowIf(own.Max, scheduled),
		LatenessExplained: KnowIf(late.P99-own.P99, scheduled),
		Drift:             KnowIf(drift, scheduled),
		WireLagP99:        KnowIf(wire.P99, sent),
		CapWaitShare:      KnowIf(f.Schedule.CapWaitShare()),

		CoalescedShare: KnowIf(f.Chunks.CoalescedShare()),
		UnstampedShare: share(f.Chunks.Streams-f.Chunks.KernelStamps, f.Chunks.Streams),

		PromptDifferent: KnowIf(f.Tokens.Prompt.DifferentShare()),
		PromptUnknown:   KnowIf(f.Tokens.Prompt.UnknownShare()),
		OutputShort:     share(f.Tokens.OutputShort, f.Rows.Served),
		EstimatedTokens: share(f.Tokens.Estimated, f.Rows.Served),
		UncountedTokens: share(f.Tokens.Uncounted, f.Rows.Served),
		RetriedShare:    share(f.Rows.Retried, f.Schedule.Dispatched),
		Reconnected:     share(f.Rows.Reconnected, f.Schedule.Dispatched),
		FailedShare:     share(f.Rows.Failed, f.Rows.Served+f.Rows.Failed),
		CutOffShare:     share(f.Rows.CutOff, f.Rows.Served+f.Rows.Failed+f.Rows.CutOff),
	}
}

// driftFloor is the growth over a whole run, in ms, up to which drift counts as 0: a single late start can cause this much.
const driftFloor = 1
