// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package load

import (
	"math"
	"strings"
	"testing"
	"time"
)

// TestSeries: the number of rows until an instant is the integral of the rate, before the first point, between points, after the last one,
// and after a ramp-up.
func TestSeries(t *testing.T) {
	points, err := ParseSeries([]byte(`{"points": [{"time_s": 10, "qps": 20}, {"time_s": 20, "qps": 100}, {"time_s": 40, "qps": 5}, {"time_s": 41, "qps": 5}]}`))
	if err != nil {
		t.Fatal(err)
	}
	until := func(s float64) float64 { // rows
		switch {
		case s <= 10:
			return 20 * s
		case s <= 20:
			return 200 + 20*(s-10) + 4*(s-10)*(s-10)
		case s <= 40:
			return 800 + 100*(s-20) - 4.75/2*(s-20)*(s-20)
		}
		return 1850 + 5*(s-40)
	}
	for name, tc := range map[string]struct {
		a     Arrivals
		until func(s float64) float64
	}{
		"a series": {Arrivals{Rate: 20, Pattern: Constant, Series: points}, until},
		"behind a ramp": {Arrivals{Rate: 20, Pattern: Constant, Series: points, RampUp: 4 * time.Second}, func(s float64) float64 {
			if s <= 4 {
				return 20 * s * s / 8
			}
			return 40 + until(s-4)
		}},
	} {
		if err := tc.a.Validate(); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		next, last := tc.a.Times(1), time.Duration(-1)
		for n := range 2100 {
			at := next()
			if want := tc.until(at.Seconds()); at <= last || math.Abs(want-float64(n)) > 1e-4 {
				t.Fatalf("%s: row %d comes at %v, when %.4f are due; the one before at %v", name, n, at, want, last)
			}
			last = at
		}
		if at := tc.a.At(1000); math.Abs(tc.until(at.Seconds())-1000) > 1e-4 {
			t.Errorf("%s: row 1000 at %v", name, at)
		}
	}
	array, err := ParseSeries([]byte(` [{"time_s": 0, "qps": 1}, {"time_s": 0.5, "qps": 2}]`))
	if err != nil || len(array) != 2 || array[1] != (RatePoint{0.5, 2}) {
		t.Errorf("%v, %v", array, err)
	}
}

// TestSeriesErrors: errors about a file name the point.
func TestSeriesErrors(t *testing.T) {
	for text, want := range map[string]string{
		``:                                      "time_s",
		`{"points": [{"time_s": 0, "qps": 5}]}`: "1 points: want 2",
		`[{"time_s": 0, "qps": 5}, {"time_s": 0, "qps": 5}]`:     "point 2: time_s 0: want more than the 0",
		`[{"time_s": 0, "qps": 5}, {"time_s": 1, "qps": 0}]`:     "point 2: qps 0",
		`[{"time_s": -1, "qps": 5}, {"time_s": 1, "qps": 1}]`:    "point 1: time_s -1",
		`[{"time_s": 0, "qps": 5}, {"time_s": 1}]`:               "point 2: it lacks",
		`[{"time_s": 0, "qps": 5}, {"time_s": 1, "rate": 2}]`:    `unknown field "rate"`,
		`[{"time_s": 0, "qps": 5}, {"time_s": 1, "qps": 1}] [1]`: "something follows",
		`{"points": [], "name": "x"}`:                            `unknown field "name"`,
		`[{"time_s": 0, "qps": "5"}, {"time_s": 1, "qps": 1}]`:   "string",
	} {
		if _, err := ParseSeries([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
	points := []RatePoint{{0, 5}, {1, 6}}
	for _, a := range []Arrivals{{Rate: 7, Series: points}, {Rate: 5, Series: points, Users: 2}, {Rate: 5, Series: points[:1]}} {
		if err := a.Validate(); err == nil || !strings.Contains(err.Error(), "series") {
			t.Errorf("%+v: %v", a, err)
		}
	}
}
