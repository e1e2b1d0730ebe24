// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package measure

import "math"

// Drift is the slope of lateness over the run: a client that cannot keep up falls further and further behind.
type Drift struct {
	// Slope is the ordinary least-squares slope in µs of lateness per second of run; StdErr its standard error.
	Slope  float64 `json:"slope_us_per_s"`
	StdErr float64 `json:"std_err_us_per_s"`
	// Span is the time in seconds from the first to the last row's scheduled time.
	Span  float64 `json:"span_s"`
	Count int64   `json:"count"`
}

// Sure returns the part of a growing lateness that chance does not explain: the slope minus twice its standard error, at least 0. NaN for
// fewer than ten rows, from which nothing can be concluded.
func (d Drift) Sure() float64 {
	if d.Count < 10 || math.IsNaN(d.StdErr) {
		return math.NaN()
	}
	return max(0, d.Slope-2*d.StdErr)
}

// Growth returns the growth of lateness over the run, in ms: Sure · Span. NaN if Sure is NaN.
func (d Drift) Growth() float64 { return d.Sure() * d.Span / 1000 }

// ols fits an ordinary least-squares line to points that are added one at a time.
type ols struct {
	n                  int64
	first, last        float64 // extremes of x
	x, y               float64 // means
	sumXX, sumXY, sumY float64 // centred sums
}

func (o *ols) add(x, y float64) {
	if o.n == 0 {
		o.first, o.last = x, x
	}
	o.first, o.last = min(o.first, x), max(o.last, x)
	o.n++
	dx, dy := x-o.x, y-o.y
	o.x += dx / float64(o.n)
	o.y += dy / float64(o.n)
	o.sumXX += dx * (x - o.x)
	o.sumXY += dx * (y - o.y)
	o.sumY += dy * (y - o.y)
}

func (o *ols) drift() Drift {
	d := Drift{Count: o.n, Span: o.last - o.first}
	if o.n < 3 || o.sumXX == 0 {
		return d
	}
	d.Slope = o.sumXY / o.sumXX
	rest := max(0, o.sumY-d.Slope*o.sumXY) // residual sum of squares
	d.StdErr = math.Sqrt(rest / float64(o.n-2) / o.sumXX)
	return d
}
