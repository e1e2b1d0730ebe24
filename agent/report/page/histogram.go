// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package page

import (
	"math"
	"slices"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// Durations are recorded in µs, up to an hour; token counts unchanged.
const (
	perMilli     = 1000
	longestMicro = 3_600_000_000
)

// exact, in place of a number of digits, makes a histogram store every value. With few values, it then uses a hundredth of the memory.
const exact = 0

// histogram holds durations in µs, or counts. The zero value is empty and takes no memory.
type histogram struct {
	h      *hdrhistogram.Histogram
	values []float32 // of an exact histogram, in any order
}

// add records a value. digits is the number of significant digits, or exact; the first value decides.
func (h *histogram) add(micro float64, digits int) {
	if digits == exact {
		h.values = append(h.values, float32(micro))
		return
	}
	if h.h == nil {
		h.h = hdrhistogram.New(1, longestMicro, digits)
	}
	_ = h.h.RecordValue(int64(min(max(micro, 0), longestMicro))) // within bounds it cannot fail
}

func (h *histogram) merge(o histogram) {
	h.values = append(h.values, o.values...)
	switch {
	case o.h == nil:
	case h.h == nil:
		h.h = o.h
	default:
		h.h.Merge(o.h)
	}
}

func (h *histogram) empty() bool { return h.h == nil && len(h.values) == 0 }

// quantile returns the value at q, 0 to 1, by nearest rank.
func (h *histogram) quantile(q float64) float64 { return h.quantiles(q)[0] }

// quantiles returns the values at shares of 0 to 1, in ascending order, by nearest rank. It reads all counts once.
func (h *histogram) quantiles(shares ...float64) []float64 {
	found := make([]float64, len(shares))
	if n := len(h.values); n > 0 {
		slices.Sort(h.values)
		for i, q := range shares {
			found[i] = float64(h.values[max(int(math.Ceil(q*float64(n)-1e-9)), 1)-1])
		}
	} else if h.h != nil {
		percent := make([]float64, len(shares))
		for i, q := range shares {
			percent[i] = 100 * q
		}
		for i, v := range h.h.ValueAtPercentilesSlice(percent) {
			found[i] = float64(v)
		}
	}
	return found
}

// millis returns a quantile of durations, in ms.
func (h *histogram) millis(q float64) float64 { return h.quantile(q) / perMilli }

// curve is an empirical distribution function: the share of values that are at most X.
type curve struct {
	X []float64 `json:"x"` // ms, ascending
	Y []float64 `json:"y"` // 0 to 1
}

// curve returns the distribution of durations, finer at its upper end, where users look.
func (h *histogram) curve() *curve {
	if h.empty() {
		return nil
	}
	var c curve
	for i := range 198 {
		c.Y = append(c.Y, float64(i)/200)
	}
	for i := range 20 {
		c.Y = append(c.Y, 0.99+float64(i)/2000)
	}
	c.Y = append(c.Y, 0.9995, 0.9999, 1)
	for _, micro := range h.quantiles(c.Y...) {
		c.X = append(c.X, round(max(micro/perMilli, 0.001))) // the axis is logarithmic
	}
	return &c
}
