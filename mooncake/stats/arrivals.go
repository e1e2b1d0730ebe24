// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package stats

import (
	"cmp"
	"math"
	"slices"

	"github.com/moonloop/moonloop/mooncake"
)

// Arrivals watches the timestamps of a trace: its span and rate, whether they come from a coarse clock, and
// whether they are milliseconds at all. It takes the rows in file order, and remembers up to 4 million timestamps (32 MiB)
// for the case that this is not the order of time. The zero value is ready to use.
type Arrivals struct {
	counted         ArrivalStats // what depends on the order of the rows
	times           []float64    // of all rows; nil where there are too many
	forgot          bool         // there are too many
	most            int          // how many may be remembered; 0 is maxTimes
	lowest, highest float64
	rows            int64
	fractional      bool  // a timestamp was no whole number
	run             int64 // rows with the current timestamp
	runs            tally // rows per timestamp
	gaps            tally // between distinct timestamps, microseconds
	mean, m2        float64
}

// Add adds the next row in file order.
func (a *Arrivals) Add(row *mooncake.Row) {
	if !row.Timestamp.Set {
		a.counted.Missing++
		return
	}
	t := row.Timestamp.V
	if a.forgot = a.forgot || len(a.times) == cmp.Or(a.most, maxTimes); a.forgot {
		a.times = nil
	} else {
		a.times = append(a.times, t)
	}
	a.add(t)
}

// add adds the next timestamp.
func (a *Arrivals) add(t float64) {
	a.rows++
	a.fractional = a.fractional || t != math.Trunc(t)
	gap := t - a.counted.Last
	a.counted.Last = t
	if a.rows == 1 {
		a.counted.First, a.lowest, a.highest, a.run = t, t, t, 1
		return
	}
	a.lowest, a.highest = min(a.lowest, t), max(a.highest, t)
	// Welford's running variance: the squares of epoch milliseconds would not leave digits for it.
	delta := gap - a.mean
	a.mean += delta / float64(a.rows-1)
	a.m2 += delta * (gap - a.mean)
	switch {
	case gap == 0:
		a.counted.Equal++
		a.run++
		return
	case gap < 0:
		a.counted.Backward++
	default:
		a.gaps.add(int64(math.Round(gap * 1000)))
	}
	a.runs.add(a.run)
	a.run = 1
}

// maxTimes is how many timestamps are remembered.
const maxTimes = 1 << 22

// ArrivalStats describes the timestamps of a trace. Times are in milliseconds. But for First, Last, Equal and Backward it does
// not depend on the order of the rows.
type ArrivalStats struct {
	First   float64 `json:"first_ms"`
	Last    float64 `json:"last_ms"`
	Span    float64 `json:"span_ms"` // highest less lowest
	Missing int64   `json:"rows_without_timestamp"`
	// Rate is rows over the span, per second; undefined without a span.
	Rate float64 `json:"rate_per_second"`
	// GapMean and GapCV are the mean and the coefficient of variation (population standard deviation over mean) of
	// the differences between neighbours in time.
	GapMean  float64 `json:"gap_mean_ms"`
	GapCV    float64 `json:"gap_cv"`
	Distinct int64   `json:"distinct_timestamps"`
	Equal    int64   `json:"rows_at_the_timestamp_before"`
	Backward int64   `json:"rows_before_the_row_before"`
	// RowsPerStamp describes how many rows share a timestamp.
	RowsPerStamp struct {
		Mean float64 `json:"mean"`
		Min  int64   `json:"min"`
		P50  int64   `json:"p50"`
		P99  int64   `json:"p99"`
		Max  int64   `json:"max"`
	} `json:"rows_per_timestamp"`
	// StampGap is the nearest-rank minimum, median and maximum difference of successive distinct timestamps.
	StampGap [3]float64 `json:"timestamp_gap_ms"`
	Grid     Grid       `json:"grid"`
	// Seconds says that the timestamps could be seconds: as milliseconds they are more than 1,000 rows a second. Such a
	// trace would replay a thousand times too fast.
	Seconds bool `json:"looks_like_seconds"`

	Undefined UndefinedFigures `json:"undefined,omitempty"`
}

// MarshalJSON writes null for what is undefined.
func (s ArrivalStats) MarshalJSON() ([]byte, error) {
	type plain ArrivalStats
	return s.Undefined.marshal(plain(s))
}

// Grid is the clock tick that the timestamps of a trace come from.
type Grid struct {
	// Coarse says that rows were given the same timestamp by a clock that ticks every Quantum milliseconds, so that
	// a replay sends them in bursts that the production system did not see.
	Coarse  bool    `json:"coarse"`
	Quantum float64 `json:"quantum_ms"` // 0 when no tick fits
	// Share is the part of the gaps between distinct timestamps that are whole ticks.
	Share        float64 `json:"share"`
	RowsPerStamp float64 `json:"rows_per_timestamp"`
}

const (
	gridTolerance = 5000 // microseconds that a stamp may lie off the tick, from truncating
	gridSmallest  = 20e3 // microseconds: ticks this short make no bursts
	gridShare     = 0.95 // of the gaps
	gridCrowd     = 1.05 // rows per timestamp
	secondsRate   = 1000 // rows per second that make milliseconds doubtful
	secondsRows   = 16   // fewer rows say nothing about the rate, unless their timestamps have fractions
)

// Stats describes the timestamps so far.
func (a *Arrivals) Stats() ArrivalStats {
	s := a.counted
	s.Span = a.highest - a.lowest
	if a.rows == 0 {
		s.Undefined.add("no row has a timestamp", "first_ms", "last_ms", "span_ms", "rate_per_second", "gap_mean_ms", "gap_cv", "distinct_timestamps",
			"rows_at_the_timestamp_before", "rows_before_the_row_before", "rows_per_timestamp", "timestamp_gap_ms", "grid", "looks_like_seconds")
		return s
	}
	if s.Span > 0 {
		s.Rate = float64(a.rows) / s.Span * 1000
	} else {
		s.Undefined.add("all timestamps are equal, so that there is no span", "rate_per_second", "gap_cv", "timestamp_gap_ms")
	}
	if a.rows > 1 {
		s.GapMean = s.Span / float64(a.rows-1)
	} else {
		s.Undefined.add("one row has no neighbour", "gap_mean_ms", "gap_cv")
	}
	s.Seconds = s.Rate > secondsRate && (a.rows >= secondsRows || a.fractional)
	ordered := a
	switch {
	case s.Backward == 0:
	case a.forgot:
		s.Undefined.add("the rows are not in order of time, and more than can be sorted here: sort the trace by timestamp",
			"gap_cv", "distinct_timestamps", "rows_per_timestamp", "timestamp_gap_ms", "grid")
		return s
	default:
		ordered = new(Arrivals)
		for _, t := range slices.Sorted(slices.Values(a.times)) {
			ordered.add(t)
		}
	}
	ordered.neighbours(&s)
	return s
}

// neighbours fills in what depends on which timestamp comes next.
func (a *Arrivals) neighbours(s *ArrivalStats) {
	runs := a.runs.with(a.run) // the run that has not ended
	s.Distinct = runs.n
	if a.mean > 0 {
		s.GapCV = math.Sqrt(a.m2/float64(a.rows-1)) / a.mean
	}
	q := runs.quantiles(0, 50, 99, 100)
	s.RowsPerStamp.Mean = runs.mean()
	s.RowsPerStamp.Min, s.RowsPerStamp.P50, s.RowsPerStamp.P99, s.RowsPerStamp.Max = q[0], q[1], q[2], q[3]
	for i, v := range a.gaps.quantiles(0, 50, 100) {
		s.StampGap[i] = float64(v) / 1000
	}
	s.Grid = a.grid(runs.mean())
}

// grid looks for a tick of which the gaps are multiples. The greatest common divisor fails on clocks that truncate (gaps of
// 2997 to 3003 ms), so the candidates are the median gap, and a small gap for traces with less than a row a tick.
func (a *Arrivals) grid(perStamp float64) Grid {
	g := Grid{RowsPerStamp: perStamp}
	if a.gaps.n < 2 {
		return g
	}
	candidates := a.gaps.quantiles(1, 50)
	for _, q := range [...]int64{candidates[1], candidates[0]} {
		if q < gridSmallest {
			continue
		}
		// A tolerance of 5 ms on a short tick would find any gap on it.
		tolerance := min(gridTolerance, q/50)
		share := a.gaps.share(func(gap int64) bool {
			off := gap % q
			return min(off, q-off) <= tolerance
		})
		if share >= gridShare {
			g.Quantum, g.Share = float64(q)/1000, share
			g.Coarse = perStamp >= gridCrowd
			return g
		}
	}
	return g
}
