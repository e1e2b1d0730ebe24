// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package load

// This file reads a rate that changes over time, as production's does over a day.

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"time"

	"github.com/moonloop/moonloop/internal/jsonrows"
)

// MaxRatePoints is the maximum number of points of a rate that changes over time.
const MaxRatePoints = 100_000

// RatePoint is the rate at one time. Between two points, it changes linearly.
type RatePoint struct {
	Seconds float64 `json:"time_s"` // since the beginning, or the end of the ramp-up; 0 or more
	Rate    float64 `json:"qps"`    // requests per second
}

// ParseSeries reads a rate that changes over time, in AIPerf's format: {"points": [{"time_s": 0, "qps": 5}, …]}, or only the array, of two
// points or more in order of time. Before the first point the rate is that of the first one; after the last point it is that of the last
// one.
func ParseSeries(text []byte) ([]RatePoint, error) {
	const form = `want {"points": [{"time_s": 0, "qps": 5}, {"time_s": 60, "qps": 20}]}`
	var file struct {
		Points []struct {
			Seconds *float64 `json:"time_s"`
			Rate    *float64 `json:"qps"`
		} `json:"points"`
	}
	to := any(&file)
	if bytes.HasPrefix(bytes.TrimSpace(text), []byte("[")) {
		to = &file.Points
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(to); err != nil {
		return nil, fmt.Errorf("%w; %s", jsonrows.Explain(err), form)
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("something follows the points; %s", form)
	}
	points := make([]RatePoint, len(file.Points))
	for i, p := range file.Points {
		if p.Seconds == nil || p.Rate == nil {
			return nil, fmt.Errorf("point %d: it lacks time_s or qps; %s", i+1, form)
		}
		points[i] = RatePoint{Seconds: *p.Seconds, Rate: *p.Rate}
	}
	return points, checkSeries(points)
}

// checkSeries returns an error if the points of a series are not valid.
func checkSeries(points []RatePoint) error {
	if len(points) < 2 || len(points) > MaxRatePoints {
		return fmt.Errorf("%d points: want 2 to %d", len(points), MaxRatePoints)
	}
	for i, p := range points {
		switch {
		case !(p.Seconds >= 0 && p.Seconds <= horizon.Seconds()):
			return fmt.Errorf("point %d: time_s %v: want a number of seconds from 0 to 100 years", i+1, p.Seconds)
		case i > 0 && p.Seconds <= points[i-1].Seconds:
			return fmt.Errorf("point %d: time_s %v: want more than the %v of the point before", i+1, p.Seconds, points[i-1].Seconds)
		case !(p.Rate >= MinRate && p.Rate <= MaxRate):
			return fmt.Errorf("point %d: qps %v: want a number of requests per second from %g to %g", i+1, p.Rate, MinRate, MaxRate)
		}
	}
	return nil
}

// ramps are the sections of a series, each with the number of requests that are due before it.
type ramps []ramp

type ramp struct {
	before     float64 // requests
	at, lasts  float64 // seconds; lasts is +Inf for the last one
	from, rise float64 // requests per second, and their increase per second
}

func newRamps(points []RatePoint) (all ramps) {
	if len(points) == 0 {
		return nil
	}
	before := 0.
	if first := points[0]; first.Seconds > 0 {
		points = slices.Insert(slices.Clone(points), 0, RatePoint{Rate: first.Rate})
	}
	for i, p := range points {
		r := ramp{before: before, at: p.Seconds, from: p.Rate, lasts: math.Inf(1)}
		if i+1 < len(points) {
			r.lasts = points[i+1].Seconds - p.Seconds
			r.rise = (points[i+1].Rate - p.Rate) / r.lasts
			before += (p.Rate + points[i+1].Rate) / 2 * r.lasts
		}
		all = append(all, r)
	}
	return all
}

// after returns when the n-th request is due, in seconds.
func (all ramps) after(n float64) float64 {
	i, exact := slices.BinarySearchFunc(all, n, func(r ramp, n float64) int {
		switch {
		case r.before < n:
			return -1
		case r.before > n:
			return 1
		}
		return 0
	})
	if !exact {
		i--
	}
	r := all[i]
	if n -= r.before; n == 0 {
		return r.at
	}
	return r.at + min(r.lasts, 2*n/(r.from+math.Sqrt(max(0, r.from*r.from+2*r.rise*n))))
}

// Times returns a function that returns the arrival times of a process, from its beginning, one after the other; the first is 0. They
// depend only on the configuration and the seed.
func (a Arrivals) Times(seed uint64) func() time.Duration { return newArrivals(a, seed).next }
