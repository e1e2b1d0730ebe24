// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package telemetry

import (
	"time"

	"github.com/moonloop/moonloop/agent/clock"
	"github.com/moonloop/moonloop/agent/measure"
	"github.com/moonloop/moonloop/semconv"
)

// phase is one part of a request.
type phase struct {
	name     string
	from, to time.Duration
}

// phases divides a request into consecutive parts from the scheduled time to its end, and returns the end. If a time is before the part's
// start (an engine that answers before it has read everything), the part is empty, never negative.
func phases(r *measure.Record) (parts []phase, end time.Duration) {
	if r.Outcome == measure.Skipped {
		return nil, r.Intended
	}
	x := &r.Exchange
	wire, first, end := clock.Never, clock.Never, r.Dispatched
	if r.Sent {
		wire, first, end = x.Wire, r.FirstToken(), x.End
	}
	if r.Sent && r.Outcome == measure.Served {
		end = r.LastToken()
	}
	end = max(end, r.Intended)

	at := r.Intended
	part := func(name string, to time.Duration) {
		to = min(max(to, at), end)
		parts = append(parts, phase{name, at, to})
		at = to
	}
	if wire == clock.Never {
		part(semconv.PhaseQueue, end)
		return parts, end
	}
	part(semconv.PhaseQueue, wire)
	switch {
	case first != clock.Never:
		part(semconv.PhasePrefill, first)
		part(semconv.PhaseDecode, end)
	case x.Whole:
		part(semconv.PhaseReply, end)
	default:
		part(semconv.PhasePrefill, end)
	}
	return parts, end
}
