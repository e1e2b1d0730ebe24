// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package measure

import "math"

// Stat describes the values of one figure. The names are AIPerf's, except for p999 (the 99.9th percentile).
//
// Avg, Min, Max, Std and Sum are exact; Std is the population's (divided by n), as in numpy, AIPerf and vLLM. Percentiles are nearest rank
// and within 0.05 % of the true value. A figure that is one number has it in Avg, and Count 0.
type Stat struct {
	Unit  string  `json:"unit"`
	Avg   float64 `json:"avg"`
	Min   float64 `json:"min"`
	Max   float64 `json:"max"`
	P1    float64 `json:"p1"`
	P5    float64 `json:"p5"`
	P10   float64 `json:"p10"`
	P25   float64 `json:"p25"`
	P50   float64 `json:"p50"`
	P75   float64 `json:"p75"`
	P90   float64 `json:"p90"`
	P95   float64 `json:"p95"`
	P99   float64 `json:"p99"`
	P999  float64 `json:"p999"`
	Std   float64 `json:"std"`
	Count int64   `json:"count"`
	Sum   float64 `json:"sum"`
	// Clamped counts the values outside the histogram's range. They are exact in Avg, Min, Max, Std and Sum; in the percentiles they count
	// as the end of the range (0, or the greatest value).
	Clamped int64 `json:"clamped,omitempty"`
}

// scale is the range and resolution of a histogram.
type scale struct {
	ticks float64 // ticks of the histogram per reported unit
	limit int64   // greatest tick
}

// The scales of the figures.
var (
	scaleMillis = scale{ticks: 1e6, limit: 24 * 3600 * 1e9} // ms in ns, up to a day
	scaleCount  = scale{ticks: 1, limit: 1e9}               // tokens
	scaleBytes  = scale{ticks: 1, limit: 1e12}
	scaleRate   = scale{ticks: 1e3, limit: 1e12} // per second in thousandths

	scales = map[string]scale{"ms": scaleMillis, "tokens": scaleCount, "B": scaleBytes, "tokens/sec/user": scaleRate} // by unit
)

// histogram collects values of 0 and above.
type histogram struct {
	scale
	buckets                 buckets
	n, clamped              int64
	mean, m2, sum, min, max float64
}

func newHistogram(s scale) histogram {
	return histogram{scale: s, buckets: newBuckets(s.limit), min: math.Inf(1), max: math.Inf(-1)}
}

// record adds a value in the reported unit. NaN is counted as clamped, and not added.
func (h *histogram) record(v float64) {
	if math.IsNaN(v) {
		h.clamped++
		return
	}
	h.n++
	d := v - h.mean // Welford: exact where a sum of squares would cancel
	h.mean += d / float64(h.n)
	h.m2 += d * (v - h.mean)
	h.sum += v
	h.min, h.max = min(h.min, v), max(h.max, v)

	tick := math.Round(v * h.ticks)
	if tick < 0 || tick > float64(h.limit) {
		h.clamped++
		tick = max(0, min(tick, float64(h.limit)))
	}
	h.buckets.add(int64(tick))
}

// percentile returns the value at nearest rank: of n values ascending, number ceil(q/100·n).
func (h *histogram) percentile(q float64) float64 {
	if h.n == 0 {
		return 0
	}
	rank := max(1, math.Ceil(q/100*float64(h.n)-1e-9)) // the small term undoes 0.1·30 = 3.0000000000000004
	from, to := rangeOf(h.buckets.at(int64(rank)))
	v := float64(from+(to-from+1)/2) / h.ticks
	return max(h.min, min(v, h.max))
}

func (h *histogram) stat(unit string) Stat {
	if h.n == 0 {
		return Stat{Unit: unit, Clamped: h.clamped}
	}
	p := h.percentile
	return Stat{
		Unit: unit, Avg: h.mean, Min: h.min, Max: h.max,
		P1: p(1), P5: p(5), P10: p(10), P25: p(25), P50: p(50), P75: p(75), P90: p(90), P95: p(95), P99: p(99), P999: p(99.9),
		Std: math.Sqrt(h.m2 / float64(h.n)), Count: h.n, Sum: h.sum, Clamped: h.clamped,
	}
}
