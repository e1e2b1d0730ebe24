// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package load

// This file replaces the timestamps of a trace by an arrival process: the rows keep their order and arrive at a given rate.

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"time"
)

// Arrivals is the arrival process that replaces the timestamps of the rows. The zero value keeps the timestamps.
//
// A process has gaps of mean 1 in operational time, Λ(t) = ∫ rate, and the k-th row after the first arrives at Λ⁻¹ of the sum of the first
// k gaps. Without a ramp, this is a renewal process: Poisson with exponential gaps.
type Arrivals struct {
	// Rate is the number of requests per second; +Inf = all at once; 0 = by timestamps.
	Rate float64
	// Series is a rate that changes over time, from the end of the ramp-up on; Rate must then be the rate of its first point. Nil = the rate
	// does not change.
	Series []RatePoint
	// Pattern is the distribution of the gaps; zero = Poisson.
	Pattern Pattern
	// Burstiness is the shape of gamma gaps, with vLLM's meaning (get_request in vllm/benchmarks/serve.py: gaps are gamma with this
	// shape and the scale 1 ÷ (rate × burstiness)): their coefficient of variation is 1/√Burstiness. Below 1 requests come in
	// bursts, 1 is Poisson, above 1 they are more even. 0 = 1.
	Burstiness float64
	// RampUp is the time over which the rate changes from RampFrom to Rate; 0 = no ramp.
	RampUp    time.Duration
	RampFrom  float64 // requests per second
	RampShape RampShape
	// Users is the number of users who send the requests in turn. Each user sends the turns of one session, one every Users ÷ Rate
	// seconds, and then those of the next session. The gaps are constant. 0 = rows are sent in the order of the trace.
	Users int
}

// Pattern is a distribution of the gaps between arrivals.
type Pattern string

// The patterns.
const (
	Constant Pattern = "constant"
	Poisson  Pattern = "poisson"
	Gamma    Pattern = "gamma"
)

// RampShape is the curve of the rate between two values; zero = RampLinear.
type RampShape string

// The shapes of a ramp.
const (
	RampLinear      RampShape = "linear"
	RampExponential RampShape = "exponential" // by equal factors in equal times
)

// The bounds of the rate, in requests per second, and of the burstiness.
const (
	MinRate       = 1e-6
	MaxRate       = 1e6
	MinBurstiness = 0.01
	MaxBurstiness = 10_000
)

// Any reports whether there is a rate.
func (a Arrivals) Any() bool { return a.Rate != 0 }

// AtOnce reports whether all rows are sent at once.
func (a Arrivals) AtOnce() bool { return math.IsInf(a.Rate, 1) }

// Validate reports everything that is wrong.
func (a Arrivals) Validate() error {
	var errs []error
	require := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	inside := func(v, least, most float64) bool { return v >= least && v <= most } // NaN is never inside
	require(!a.Any() || a.AtOnce() || inside(a.Rate, MinRate, MaxRate),
		"request rate %v: want a number of requests per second from %g to %g, or infinity for all at once", a.Rate, MinRate, MaxRate)
	switch a.Pattern {
	case "", Constant, Poisson, Gamma:
	default:
		require(false, "arrival %q: want %s, %s or %s", a.Pattern, Constant, Poisson, Gamma)
	}
	require(a.Burstiness == 0 || inside(a.Burstiness, MinBurstiness, MaxBurstiness),
		"burstiness %v: want a number from %g to %g", a.Burstiness, MinBurstiness, float64(MaxBurstiness))
	require(a.Burstiness == 0 || a.Burstiness == 1 || a.Pattern == Gamma, "burstiness %v: only gamma arrivals have a burstiness", a.Burstiness)
	require(a.RampUp >= 0 && a.RampUp <= horizon, "ramp-up %v: want a duration from 0 to 100 years", a.RampUp)
	require(a.RampFrom == 0 || inside(a.RampFrom, MinRate, MaxRate), "ramp-up from %v: want a number of requests per second from %g to %g, or 0", a.RampFrom, MinRate, MaxRate)
	switch a.RampShape {
	case "", RampLinear:
	case RampExponential:
		require(a.RampFrom > 0, "ramp-up from 0: an exponential ramp never leaves 0; want a number of requests per second above 0")
	default:
		require(false, "ramp-up shape %q: want %s or %s", a.RampShape, RampLinear, RampExponential)
	}
	if a.Series != nil {
		err := checkSeries(a.Series)
		require(err == nil, "request rate series: %w", err)
		require(err != nil || a.Rate == a.Series[0].Rate, "request rate %v: a series has its own, which begins with %v", a.Rate, a.Series[0].Rate)
		require(a.Users == 0, "users %d: they send at equal intervals, so their rate cannot change; leave out the request rate series", a.Users)
	}
	require(a.RampUp == 0 || a.Any() && !a.AtOnce(), "ramp-up %v: it needs a request rate", a.RampUp)
	require(a.Users >= 0 && a.Users <= MaxUsers, "users %d: want 0 to %d", a.Users, MaxUsers)
	require(a.Users == 0 || a.Any() && !a.AtOnce(), "users %d: they need a request rate, the rate of all users together", a.Users)
	require(a.Users == 0 || a.Pattern == "" || a.Pattern == Constant, "users %d: each sends at equal intervals; leave out arrival %q", a.Users, a.Pattern)
	return errors.Join(errs...)
}

// At returns the mean arrival time of the n-th row after the first: Λ⁻¹(n). It is at most 100 years and a nanosecond.
func (a Arrivals) At(n float64) time.Duration { return a.at(n, newRamps(a.Series)) }

// at computes At from a series that newRamps has prepared.
func (a Arrivals) at(n float64, series ramps) time.Duration {
	seconds := a.after(n, series)
	if seconds > horizon.Seconds() {
		return horizon + 1
	}
	return time.Duration(math.Round(seconds * float64(time.Second)))
}

// after returns Λ⁻¹(n), in seconds.
func (a Arrivals) after(n float64, series ramps) float64 {
	over := a.RampUp.Seconds()
	steady := func(n float64) float64 { // after the ramp-up
		if series == nil {
			return n / a.Rate
		}
		return series.after(n)
	}
	switch {
	case a.AtOnce():
		return 0
	case over == 0:
		return steady(n)
	case a.RampShape == RampExponential && a.RampFrom != a.Rate:
		growth := math.Log(a.Rate/a.RampFrom) / over
		if ramp := (a.Rate - a.RampFrom) / growth; n >= ramp {
			return over + steady(n-ramp)
		}
		return math.Log1p(n*growth/a.RampFrom) / growth
	}
	if ramp := (a.RampFrom + a.Rate) / 2 * over; n >= ramp {
		return over + steady(n-ramp)
	}
	if n == 0 {
		return 0
	}
	slope := (a.Rate - a.RampFrom) / over
	return 2 * n / (a.RampFrom + math.Sqrt(a.RampFrom*a.RampFrom+2*slope*n))
}

// arrivals is the state of a process. It depends on the seed and the number of rows only, so all shards of a trace compute the same times.
type arrivals struct {
	Arrivals
	rng    *rand.Rand
	series ramps
	begun  bool
	sum    float64 // of the gaps so far
	last   time.Duration
}

func newArrivals(a Arrivals, seed uint64) *arrivals {
	const stream = 0x6172726976616c73                                                                   // "arrivals", so that this stream is independent of all others with the same seed
	return &arrivals{Arrivals: a, series: newRamps(a.Series), rng: rand.New(rand.NewPCG(seed, stream))} //nolint:gosec // a schedule must be repeatable
}

// next returns the offset of the next row. The first one is at 0.
func (a *arrivals) next() time.Duration {
	if a.begun {
		a.sum += a.gap()
	}
	a.begun = true
	a.last = a.at(a.sum, a.series)
	return a.last
}

// gap draws a gap of mean 1.
func (a *arrivals) gap() float64 {
	switch {
	case a.Pattern == Constant || a.Users > 0:
		return 1
	case a.Pattern == Gamma && a.Burstiness != 0:
		return gamma(a.rng, a.Burstiness) / a.Burstiness
	}
	return a.rng.ExpFloat64()
}

// gamma draws from the gamma distribution with this shape, above 0, and scale 1: Marsaglia and Tsang, "A Simple Method for Generating
// Gamma Variables", ACM TOMS 26(3), 2000.
func gamma(rng *rand.Rand, shape float64) float64 {
	factor := 1.
	if shape < 1 { // their section 6
		factor = math.Pow(1-rng.Float64(), 1/shape)
		shape++
	}
	d := shape - 1./3
	for {
		x := rng.NormFloat64()
		v := 1 + x/math.Sqrt(9*d)
		if v <= 0 {
			continue
		}
		v = v * v * v
		if math.Log(1-rng.Float64()) < x*x/2+d-d*v+d*math.Log(v) {
			return factor * d * v
		}
	}
}

// arrive sets the arrival time of a row. A turn with a delay instead of a timestamp has none: it is sent after the previous turn. A row
// that waits for others has none either.
func (s *Stream) arrive(e *entry) error {
	if e.after != nil || e.turn && e.Delay.Set && !e.Timestamp.Set && !s.opt.OpenSessions {
		e.offset = s.arrivals.last
		return nil
	}
	e.offset, e.placed = s.arrivals.next(), true
	return s.reachable(*e)
}

// reachable returns an error if the process would never reach the row.
func (s *Stream) reachable(e entry) error {
	if e.offset <= horizon {
		return nil
	}
	return fmt.Errorf("line %d: at %g requests per second the row is due more than 100 years after the first; raise the rate", e.line, s.opt.Arrivals.Rate)
}
