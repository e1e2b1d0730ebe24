// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package referee

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"sort"
	"time"
)

// Judgement compares the requests that an engine received with the generator's task. Times are in ms. Unknown values are nil, except that of Asked.
type Judgement struct {
	Schedule string `json:"schedule"`
	Asked    int    `json:"asked"`    // requests that the generator was asked to send; 0 is unknown
	Requests int    `json:"requests"` // that arrived, without Skipped
	Skipped  int    `json:"skipped"`  // the first ones, which the caller left out
	Missing  int    `json:"missing"`  // requested, but never arrived
	Extra    int    `json:"extra"`    // arrived, but not requested
	// Reordered is the smallest number of requests that must be moved so that all arrive in the schedule's order; nil if requests were
	// paired by their order.
	Reordered *int `json:"reordered"`
	// PairedBy says by what requests were paired with the schedule. It is the name of a header (by the number at the end of its value),
	// "length" (by the length of the output, and for equal lengths by order) or "order".
	PairedBy string `json:"paired_by"`
	// Kernel is the number of requests whose arrival the kernel timestamped; for the others, the arrival is when the engine read them.
	Kernel int `json:"kernel_stamps"`

	RateAsked *float64 `json:"rate_asked"` // requests per second
	Rate      *float64 `json:"rate"`       // of the requested ones that arrived, from the first to the last
	// Zero is the start of the schedule, chosen so that the request with the smallest delay is not late: a delay that all requests share
	// does not count.
	Zero time.Time `json:"zero"`
	// Lateness is that of the arrivals; nil for random times.
	Lateness *Percentiles `json:"lateness"`
	// FromSchedule is the time from when a request was due until the engine wrote its last token: how long a user would have waited. A
	// generator that sends late and measures from its own start does not see all of it. A request that never came counts with a
	// wait like those of its neighbours in the schedule. nil for random times.
	FromSchedule *Percentiles `json:"latency_from_schedule"`
	// Gaps are those between arrivals at random times.
	Gaps *RandomGaps `json:"gaps"`
	// Client shows how far the generator's own figures are from the truth; nil without an export.
	Client *Client `json:"client"`
	// Notes has further remarks.
	Notes []string `json:"notes"`

	rows    []due
	paired  []int     // the request of each row, -1 without
	late    []float64 // of each row; NaN without a request
	arrived []float64 // of each request, since the zero, in the order of the record
}

// Percentiles are nearest ranks, in ms.
type Percentiles struct {
	P50  float64 `json:"p50"`
	P90  float64 `json:"p90"`
	P99  float64 `json:"p99"`
	P999 float64 `json:"p99.9"`
	Max  float64 `json:"max"`
}

func percentiles(v []float64) *Percentiles {
	sorted := slices.Sorted(slices.Values(v))
	if len(sorted) == 0 {
		return nil
	}
	at := func(q float64) float64 { return nearestRank(sorted, q) }
	return &Percentiles{at(0.5), at(0.9), at(0.99), at(0.999), at(1)}
}

// RandomGaps compares the gaps between arrivals with those of a Poisson process at the requested rate.
type RandomGaps struct {
	// Variation is the coefficient of variation, standard deviation / mean: 1 for a Poisson process, 0 for an even rate.
	Variation float64 `json:"variation"`
	// KS is Kolmogorov's and Smirnov's distance from the exponential distribution; a Poisson process exceeds Limit once in twenty.
	KS    float64 `json:"ks"`
	Limit float64 `json:"ks_limit"`
}

// Judge pairs an engine's record with a schedule. The first requests, as many as skip says, are left out: they may be warm-ups.
func Judge(s *Schedule, all []Request, skip int) (*Judgement, error) {
	if skip > 0 {
		var kept []Request
		for _, q := range byArrival(all)[min(skip, len(all)):] {
			kept = append(kept, all[q])
		}
		all = kept
	}
	if len(all) == 0 {
		return nil, ErrNoRequests
	}
	j := &Judgement{Schedule: s.Name, Asked: s.Count, Requests: len(all), Skipped: skip, arrived: arrivals(all)}
	var p pairing
	j.rows, p = s.pair(all)
	j.paired, j.PairedBy = p.request, p.by
	at, arrived := make([]float64, len(j.rows)), make([]float64, len(j.rows))
	paired := 0
	for i, q := range p.request {
		at[i], arrived[i] = j.rows[i].at, math.NaN()
		if q >= 0 {
			arrived[i] = j.arrived[q]
			paired++
		}
	}
	if paired == 0 {
		return nil, fmt.Errorf("none of the %d requests is one that %s asks for", len(all), s.Name)
	}
	j.Missing, j.Extra = len(j.rows)-paired, len(all)-paired
	for i := range all {
		if all[i].Received > 0 {
			j.Kernel++
		}
	}
	if r := s.rate(); !math.IsNaN(r) {
		j.RateAsked = &r
	}
	came, _ := Known(arrived)
	if span := slices.Max(came) - slices.Min(came); span > 0 {
		r := 1e3 * float64(paired-1) / span
		j.Rate = &r
	}
	var zero float64
	if s.Random {
		zero = slices.Min(j.arrived)
		j.Gaps = randomGaps(slices.Sorted(slices.Values(j.arrived)), s.Rate)
	} else {
		j.late, zero = align(at, arrived)
		late, _ := Known(j.late)
		j.Lateness = percentiles(late)
		waits := slices.Clone(j.late)
		for i, q := range p.request {
			if q >= 0 {
				waits[i] += all[q].Latency()
			}
		}
		j.FromSchedule = percentiles(between(at, waits))
		if p.by != byOrder {
			n := reordered(at, arrived)
			j.Reordered = &n
		}
	}
	first := &all[0]
	j.Zero = first.Time.Add(time.Duration(zero*1e6) - first.Headers)
	for i := range j.arrived {
		j.arrived[i] -= zero
	}
	j.note(s)
	return j, nil
}

// between replaces unknown values (NaN) of v by values on the line between the known neighbours, or by the nearest known value at either
// end. at has the time of each value, in ascending order. It returns nil if no value is known.
func between(at, v []float64) []float64 {
	last := -1
	for i := range v {
		if math.IsNaN(v[i]) {
			continue
		}
		for k := last + 1; k < i; k++ {
			v[k] = v[i]
			if last >= 0 && at[i] > at[last] {
				v[k] = v[last] + (v[i]-v[last])*(at[k]-at[last])/(at[i]-at[last])
			}
		}
		last = i
	}
	if last < 0 {
		return nil
	}
	for k := last + 1; k < len(v); k++ {
		v[k] = v[last]
	}
	return v
}

// Points calls yield with each request's instant in the schedule and its lateness, in ms, in the order of the schedule.
func (j *Judgement) Points(yield func(due, late float64)) {
	for i, l := range j.late {
		if !math.IsNaN(l) {
			yield(j.rows[i].at-j.rows[0].at, l)
		}
	}
}

// note adds what a reader should know.
func (j *Judgement) note(s *Schedule) {
	if n := j.Requests - j.Kernel; n > 0 {
		j.Notes = append(j.Notes, fmt.Sprintf("%d of the arrivals are the times at which the engine read the request, because the kernel did not timestamp them", n))
	}
	if j.PairedBy == byOrder && s.Count > 0 && j.Missing+j.Extra > 0 {
		j.Notes = append(j.Notes, "requests are paired by their order alone, and the ones that count as missing or extra are chosen so that the rest is most regular: the real lateness may be greater")
	}
	late, _ := Known(j.late)
	if len(late) < 20 {
		return
	}
	// A few requests far ahead of all others determine the zero.
	order := slices.Sorted(slices.Values(late))
	const few = 8
	for n := 1; n <= few; n++ {
		if ahead := order[n]; ahead > 10 && ahead > 0.5*nearestRank(order, 0.5) && ahead > 5*(order[len(order)/2]-ahead) {
			j.Notes = append(j.Notes, fmt.Sprintf("the earliest request is %.4g ms ahead of the schedule that the others keep, and sets the zero: if the first requests are warm-ups, leave them out with --skip %d", ahead, n))
			return
		}
	}
}

// reordered returns the smallest number of requests that must be moved so that all arrive in the order of their times.
func reordered(at, arrived []float64) int {
	var order []int
	for i, a := range arrived {
		if !math.IsNaN(a) {
			order = append(order, i)
		}
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Or(cmp.Compare(arrived[a], arrived[b]), cmp.Compare(at[a], at[b])) })
	var tails []float64 // tails[n] is the least value with which a non-decreasing sequence of n+1 arrivals can end
	for _, i := range order {
		n := sort.Search(len(tails), func(k int) bool { return tails[k] > at[i] })
		if n == len(tails) {
			tails = append(tails, 0)
		}
		tails[n] = at[i]
	}
	return len(order) - len(tails)
}

// randomGaps compares the gaps of sorted arrivals with those of a Poisson process; nil with fewer than two gaps.
func randomGaps(arrived []float64, rate float64) *RandomGaps {
	gaps := differences(arrived)
	n := float64(len(gaps))
	if n < 2 {
		return nil
	}
	slices.Sort(gaps)
	sum, squares, g := 0.0, 0.0, &RandomGaps{Limit: 1.36 / math.Sqrt(n)}
	for i, gap := range gaps {
		sum, squares = sum+gap, squares+gap*gap
		should := 1 - math.Exp(-gap*rate/1e3)
		g.KS = max(g.KS, math.Abs(float64(i+1)/n-should), math.Abs(float64(i)/n-should))
	}
	if sum > 0 {
		g.Variation = math.Sqrt(max(0, squares/n-(sum/n)*(sum/n))) / (sum / n)
	}
	return g
}
