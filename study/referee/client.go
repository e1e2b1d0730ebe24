// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package referee

import (
	"cmp"
	"fmt"
	"math"
	"slices"
)

// Client shows how far a generator's own figures are from the truth.
type Client struct {
	Tool string `json:"tool"`
	// PairedBy says how the generator's requests were found in the engine's record: by the name of a header, "start" (the generator's own
	// start times) or "order".
	PairedBy string  `json:"paired_by"`
	Claims   int     `json:"requests"` // in the export
	Failed   int     `json:"failed"`   // failed, according to the generator; they have no times
	Unknown  int     `json:"unknown"`  // not in the record
	Untold   int     `json:"untold"`   // in the record, but not in the export
	Errors   []Error `json:"errors"`   // of the measures in the export
	// OtherGaps is the number of requests for which the export has a different number of gaps than the engine wrote, so that the gaps cannot
	// be compared one by one. One more gap at the end is allowed: it leads to the chunk with the finish reason.
	OtherGaps int `json:"other_gaps"`
	// Lateness is computed from the generator's own start times, with the start of the schedule as for the arrivals, and, for a request that
	// waits for a reply, from its own end of that reply; nil if the export has no start times.
	Lateness *Percentiles `json:"own_lateness"`
	// Before is the time from the generator's own start times to the arrivals; nil if the export has no start times, or if the two clocks
	// differ.
	Before *Percentiles `json:"start_to_arrival"`
}

// Error is the error of one measure, in ms: the generator's value minus the engine's, request by request.
type Error struct {
	Name string  `json:"name"` // ttft, ttft from the wire, itl, gap or latency
	N    int     `json:"n"`    // requests, or gaps
	P1   float64 `json:"p1"`
	P50  float64 `json:"p50"`
	P99  float64 `json:"p99"`
	Max  float64 `json:"max"` // the one that is furthest from 0
	// Claimed and True are the measure's percentiles, according to the generator and to the engine.
	Claimed *Percentiles `json:"claimed"`
	True    *Percentiles `json:"true"`

	claimed, is []float64
}

// Against compares a generator's export with the record, and adds the result to the judgement of the same record and schedule.
func (j *Judgement) Against(e *Export, all []Request, skip int) {
	c := &Client{Tool: e.Tool, Claims: len(e.Claims)}
	j.Client = c
	found, by := e.find(all)
	c.PairedBy = by
	rowOf := make(map[int]int, len(j.paired)) // by request of the record, without skipped ones
	for row, q := range j.paired {
		rowOf[q] = row
	}
	kept := keptOf(all, skip)
	names := []string{"ttft", "ttft from the wire", "itl", "gap", "latency"}
	claimed, is := map[string][]float64{}, map[string][]float64{}
	add := func(name string, says, truth float64) {
		if !math.IsNaN(says) && !math.IsNaN(truth) {
			claimed[name], is[name] = append(claimed[name], says), append(is[name], truth)
		}
	}
	var before []float64
	started, ended := make([]float64, len(j.rows)), make([]float64, len(j.rows))
	for i := range started {
		started[i], ended[i] = math.NaN(), math.NaN()
	}
	told := 0
	for i := range e.Claims {
		q, says := found[i], &e.Claims[i]
		if says.Failed {
			c.Failed++
		}
		if q < 0 {
			c.Unknown++
			continue
		}
		told++
		r := &all[q]
		if row, ok := rowOf[kept[q]]; ok && kept[q] >= 0 {
			started[row], ended[row] = says.Start, says.Start+says.Latency
		}
		if e.wall && !math.IsNaN(says.Start) {
			before = append(before, r.wall(r.Arrived())-says.Start)
		}
		if says.Failed {
			continue
		}
		truth := r.TTFT()
		add("ttft", says.TTFT, truth)
		add("ttft from the wire", says.FromWire, truth)
		add("itl", says.ITL, r.ITL())
		add("latency", says.Latency, r.Latency())
		// A tool that counts the chunk with the finish reason has one gap more, at the end.
		if gaps := r.Gaps(); len(says.Gaps) == len(gaps) || len(says.Gaps) == len(gaps)+1 && len(gaps) > 0 {
			for k := range gaps {
				add("gap", says.Gaps[k], gaps[k])
			}
		} else if len(says.Gaps) > 0 {
			c.OtherGaps++
		}
	}
	c.Untold = len(all) - told
	for _, name := range names {
		if len(is[name]) > 0 {
			c.Errors = append(c.Errors, newError(name, claimed[name], is[name]))
		}
	}
	c.Before = percentiles(before)
	if j.late != nil {
		c.Lateness = percentiles(j.ownLateness(started, ended))
	}
	if e.first != "" {
		j.Notes = append(j.Notes, fmt.Sprintf("%s's time to first token ends at %s", e.Tool, e.first))
	}
	if by == pairedByStart && c.Unknown+c.Untold > 0 || by == byOrder {
		j.Notes = append(j.Notes, e.Tool+"'s requests have no name that the engine saw: a request may be compared with a neighbour")
	}
}

// keptOf returns the index that each request has after the first arrivals, as many as skip says, are left out; -1 for these.
func keptOf(all []Request, skip int) []int {
	kept := make([]int, len(all))
	if skip <= 0 {
		for i := range kept {
			kept[i] = i
		}
		return kept
	}
	for i, q := range byArrival(all) {
		kept[q] = max(-1, i-skip)
	}
	return kept
}

func newError(name string, claimed, is []float64) Error {
	off := make([]float64, len(is))
	worst := 0.0
	for i := range is {
		off[i] = claimed[i] - is[i]
		if math.Abs(off[i]) > math.Abs(worst) {
			worst = off[i]
		}
	}
	slices.Sort(off)
	return Error{
		Name: name, N: len(is), P1: nearestRank(off, 0.01), P50: nearestRank(off, 0.5), P99: nearestRank(off, 0.99), Max: worst,
		Claimed: percentiles(claimed), True: percentiles(is), claimed: claimed, is: is,
	}
}

const pairedByStart = "start"

// find finds the request of each claim: by its id, by its number, or in order of the starts, among those with the same number of tokens.
func (e *Export) find(all []Request) (found []int, by string) {
	found = none(len(e.Claims))
	byID := map[string]int{}
	for q := range all {
		if id := all[q].Header.Get(requestID); id != "" {
			byID[id] = q
		}
	}
	ids := 0
	for i := range e.Claims {
		if q, ok := byID[e.Claims[i].ID]; ok && e.Claims[i].ID != "" {
			found[i] = q
			ids++
		}
	}
	if 2*ids >= len(e.Claims) {
		return found, requestID
	}
	if name, numbers := numbering(all, 0); name != "" && !slices.ContainsFunc(e.Claims, func(c Claim) bool { return c.Number < 0 }) {
		of := make(map[int]int, len(numbers))
		for q, n := range numbers {
			if n >= 0 {
				of[n] = q
			}
		}
		for i := range e.Claims {
			found[i] = -1
			if q, ok := of[e.Claims[i].Number]; ok {
				found[i] = q
			}
		}
		return found, name
	}
	rows, at, by := make([]due, len(e.Claims)), make([]float64, len(e.Claims)), pairedByStart
	for i := range e.Claims {
		rows[i].output = e.Claims[i].Tokens
		if at[i] = e.Claims[i].Start; math.IsNaN(at[i]) {
			by = byOrder
		}
	}
	order, arrived := make([]int, len(at)), arrivals(all)
	span := slices.Max(arrived) - slices.Min(arrived)
	for i := range order {
		order[i] = i
		if by == byOrder { // spread over the times of the arrivals
			at[i] = float64(i) * span / float64(len(at))
		}
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(at[a], at[b]) })
	sorted, instants := make([]due, len(at)), make([]float64, len(at))
	for k, i := range order {
		sorted[k], instants[k] = rows[i], at[i]
	}
	groups, _ := lengths(sorted, all, byArrival(all), func(r *Request) int64 { return r.Output })
	request := pairInOrder(instants, arrived, groups)
	for k, i := range order {
		found[i] = request[k]
	}
	return found, by
}

// Ranks returns the percentiles 1 to 99 of the measure, according to the generator and to the engine.
func (e *Error) Ranks() (claimed, is []float64) {
	a, b := slices.Sorted(slices.Values(e.claimed)), slices.Sorted(slices.Values(e.is))
	for p := 1; p < 100; p++ {
		claimed, is = append(claimed, nearestRank(a, float64(p)/100)), append(is, nearestRank(b, float64(p)/100))
	}
	return claimed, is
}
