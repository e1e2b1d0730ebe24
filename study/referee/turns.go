// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package referee

import (
	"fmt"
	"math"
	"slices"
)

// This file decides when rows were due that wait for a reply: the later turns of sessions, and rows with wait_for. Nobody can know that
// before the run, but the engine's record has the end of each reply.

// Turns says how rows that wait for a reply were judged.
type Turns struct {
	// Known is the number of those that arrived, and for which it is known when that reply had ended.
	Known int `json:"known"`
	// Unwaited is the number of these that did not wait, and are judged by their times: they arrived before that end or, with wait_for, where
	// the end may be long before the row's time, nearer to that time.
	Unwaited int `json:"did_not_wait"`
	// Waits says that the generator waits, because few of these, or none, did not. If it does not, all rows are judged by their times.
	Waits bool `json:"generator_waits"`
	// AtReply is the number of rows that were due at the end of a reply, because that came after their time, or because they have no other.
	AtReply int `json:"due_at_the_reply"`
}

// mostUnwaited is the maximum share of turns that did not wait, of a generator that waits. A generator that does not wait has more, unless
// all replies end before the next turn's time; then both rules are the same.
const mostUnwaited = 0.1

// turns decides whether the generator waits for replies. If so, it returns the time before which each row could not be sent, in ms on the
// engine's clock; NaN for a row that is due at its time. It returns nil if all rows are. known is false if it cannot be decided when rows
// were due: a wait changes the order of requests, so that those without a number of their own are paired with other rows and replies.
func (j *Judgement) turns(all []Request, arrived []float64) (until []float64, known bool) {
	if !slices.ContainsFunc(j.rows, func(r due) bool { return len(r.after) > 0 }) {
		return nil, true
	}
	ends, gone, timed := make([]float64, len(j.rows)), make([]bool, len(j.rows)), false
	for i, q := range j.paired {
		if ends[i] = math.NaN(); q >= 0 {
			ends[i], gone[i] = all[q].replied(), all[q].Outcome == "client_gone"
			timed = timed || !j.rows[i].untimed()
		}
	}
	if !timed { // nothing shows where the zero of the schedule is
		return nil, true
	}
	t := &Turns{}
	until = waits(j.rows, ends)
	_, _, zero := lateness(j.rows, until, arrived)
	for i, u := range until {
		if math.IsNaN(u) || math.IsNaN(arrived[i]) {
			continue
		}
		t.Known++
		switch {
		case slices.ContainsFunc(j.rows[i].after, func(p int) bool { return gone[p] }):
			until[i] = arrived[i] // only the generator knows when it left that reply
		case arrived[i] < u, j.rows[i].untimed() && math.Abs(arrived[i]-zero-j.rows[i].at) < arrived[i]-u:
			t.Unwaited++
			until[i] = math.NaN()
		}
	}
	if j.PairedBy == byLength || j.PairedBy == byOrder {
		_, at, _ := lateness(j.rows, until, arrived)
		known := t.Unwaited == 0
		for i, r := range j.rows {
			known = known && at[i] == r.at
		}
		if !known {
			return nil, false
		}
	}
	t.Waits = float64(t.Unwaited) <= mostUnwaited*float64(t.Known)
	if j.Turns = t; !t.Waits {
		return nil, true
	}
	return until, true
}

// waits returns the time before which each row cannot be sent, given the times at which the replies to all rows ended. NaN if the row waits
// for nothing, or if that is unknown.
func waits(rows []due, ends []float64) []float64 {
	until := make([]float64, len(rows))
	for i, r := range rows {
		until[i] = math.Inf(-1)
		for _, p := range r.after {
			until[i] = max(until[i], ends[p]) // NaN if one of them is
		}
		if until[i] += r.wait; math.IsInf(until[i], 0) {
			until[i] = math.NaN()
		}
	}
	return until
}

// lateness returns how late each request was, when each row was due, in ms since the zero of the schedule, and the zero, on the clock of the
// arrivals. until is what [Judgement.turns] returned: such a row was not due before that time.
func lateness(rows []due, until, arrived []float64) (late, at []float64, zero float64) {
	at = make([]float64, len(rows))
	for i, r := range rows {
		at[i] = r.at
	}
	if until == nil {
		late, zero = align(at, arrived)
		return late, at, zero
	}
	timed := slices.Clone(arrived)
	for i, r := range rows {
		if r.untimed() { // it may rightly come before its time
			timed[i] = math.NaN()
		}
	}
	if _, zero = align(at, timed); math.IsNaN(zero) {
		return nil, at, zero
	}
	late = make([]float64, len(rows))
	for i, r := range rows {
		if u := until[i] - zero; r.untimed() && !math.IsNaN(u) || u > r.at {
			at[i] = u
		}
		late[i] = arrived[i] - zero - at[i]
	}
	return late, at, zero
}

// ownLateness is the same by the generator's own times: its starts and the ends of its replies.
func (j *Judgement) ownLateness(started, ended []float64) []float64 {
	var until []float64
	if j.until != nil {
		until, started = waits(j.rows, ended), slices.Clone(started)
		for i, u := range j.until {
			switch {
			case math.IsNaN(u): // due at its time, in the generator's account, too
				until[i] = u
			case math.IsNaN(until[i]):
				started[i] = until[i] // unknown
			}
		}
	}
	late, _, _ := lateness(j.rows, until, started)
	own, _ := Known(late)
	return own
}

// String says how the rows were judged.
func (t *Turns) String() string {
	if !t.Waits {
		return fmt.Sprintf("all at their times: of the requests that could wait for a reply, %d of %d did not, so this generator does not wait", t.Unwaited, t.Known)
	}
	return fmt.Sprintf("%d when the reply had ended for which they wait (later turns of sessions, and rows with wait_for); the others at their times", t.AtReply)
}
