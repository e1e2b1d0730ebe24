// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package stats

import (
	"cmp"
	"math"
	"slices"

	"github.com/moonloop/moonloop/mooncake"
)

// Arrivals measures the timestamps of a trace: their span and rate, whether they come from a coarse clock, and whether they are
// milliseconds at all. Rows are added in file order. It remembers up to 4 million timestamps (32 MiB), because they may be out of order.
// The zero value is ready to use.
type Arrivals struct {
	counted         ArrivalStats // what depends on the order of the rows
	times           []float64    // of all rows; nil if there are too many
	forgot          bool         // there are too many
	most            int          // maximum number to remember; 0 = maxTimes
	lowest, highest float64
	rows            int64
	fractional      bool  // a timestamp was not a whole number
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
	// Welford's running variance, because the squares of epoch milliseconds would use up all digits.
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

// maxTimes is the maximum number of timestamps that are remembered.
const maxTimes = 1 << 22

// ArrivalStats describes the timestamps of a trace. Times are in milliseconds. Except for First, Last, Equal and Backward, it does not
// depend on the order of the rows.
type ArrivalStats struct {
	First   float64 `json:"first_ms"`
	Last    float64 `json:"last_ms"`
	Span    float64 `json:"span_ms"` // highest minus lowest
	Missing int64   `json:"rows_without_timestamp"`
	// Rate is rows over the span, per second; undefined without a span. Rows without a timestamp, which wait for another row, count, too.
	Rate float64 `json:"rate_per_second"`
	// GapMean and GapCV are the mean and the coefficient of variation (population standard deviation over mean) of the gaps between
	// consecutive timestamps.
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
	// Seconds is true if the timestamps could be seconds: as milliseconds, there are more than 1,000 rows a second. Such a trace would
	// replay a thousand times too fast.
	Seconds bool `json:"looks_like_seconds"`

	Undefined UndefinedFigures `json:"undefined,omitempty"`
}

// MarshalJSON writes null for undefined figures.
func (s ArrivalStats) MarshalJSON() ([]byte, error) {
	type plain ArrivalStats
	return s.Undefined.marshal(plain(s))
}

// Grid describes the resolution of the clock that made the timestamps.
type Grid struct {
	// Coarse is true if a clock that ticks every Quantum milliseconds gave several rows the same timestamp. A replay then sends them in
	// bursts that production did not have.
	Coarse  bool    `json:"coarse"`
	Quantum float64 `json:"quantum_ms"` // 0 if no tick fits
	// Share is the share of the gaps between distinct timestamps that are whole ticks.
	Share        float64 `json:"share"`
	RowsPerStamp float64 `json:"rows_per_timestamp"`
}

const (
	gridTolerance = 5000 // microseconds that a timestamp may deviate from the tick, due to truncation
	gridSmallest  = 20e3 // microseconds: shorter ticks cause no bursts
	gridShare     = 0.95 // of the gaps
	gridCrowd     = 1.05 // rows per timestamp
	secondsRate   = 1000 // rows per second above which milliseconds are doubtful
	secondsRows   = 16   // fewer rows do not show the rate, unless their timestamps have fractions
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
		s.Rate = float64(a.rows+s.Missing) / s.Span * 1000
	} else {
		s.Undefined.add("all timestamps are equal, so there is no span", "rate_per_second", "gap_cv", "timestamp_gap_ms")
	}
	if a.rows > 1 {
		s.GapMean = s.Span / float64(a.rows-1)
	} else {
		s.Undefined.add("one row has no neighbour", "gap_mean_ms", "gap_cv")
	}
	s.Seconds = float64(a.rows)*1000 > secondsRate*s.Span && s.Span > 0 && (a.rows >= secondsRows || a.fractional)
	ordered := a
	switch {
	case s.Backward == 0:
	case a.forgot:
		s.Undefined.add("the rows are not in order of time, and there are more than can be sorted here: sort the trace by timestamp",
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

// neighbours computes the figures of consecutive timestamps.
func (a *Arrivals) neighbours(s *ArrivalStats) {
	runs := a.runs.with(a.run) // including the run that has not ended
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

// grid looks for a tick of which the gaps are multiples. The greatest common divisor fails for clocks that truncate (gaps of 2997 to 3003
// ms), so the candidates are the median gap, and a small gap for traces with less than a row per tick.
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
		// With a tolerance of 5 ms, any gap would fit a short tick.
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
