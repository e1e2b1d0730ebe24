// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package transform

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/moonloop/moonloop/mooncake"
)

// Join says how several sources become one trace. Their ids are always distinct.
type Join string

// The ways to join.
const (
	JoinNone   Join = ""
	JoinAppend Join = "append" // one after the other
	JoinMerge  Join = "merge"  // at the same time: their first rows coincide
)

// Config describes a transformation. The zero value changes nothing; a zero field means that its step is left out.
type Config struct {
	Seed uint64 // of everything random
	// TempDir is the folder for rows that steps must read twice, in packed form; "" = the system's.
	TempDir string
	Join    Join // of two sources or more

	// Start and End keep the rows with first + Start ≤ timestamp ≤ first + End, as in a replay; End 0 = no end.
	Start, End time.Duration
	// Models keeps the rows with one of these models; Classes and Sessions do the same for classes and sessions.
	Models, Classes, Sessions []string
	// The lengths keep the rows within these bounds, in tokens, inclusive; 0 = no bound. Rows without the length are left out.
	MinInput, MaxInput, MinOutput, MaxOutput int64
	// MaxContext keeps the rows whose prompt and reply together have at most this many tokens; 0 = no bound.
	MaxContext int64
	// Conversations keeps this many conversations of the remaining rows, in the order of their first rows. A conversation is the rows of a
	// session, and of sessions whose names continue its name after a slash, such as those of its agents. A row without a session is a
	// conversation by itself.
	Conversations int64
	// First keeps the first of the remaining rows, at most this many.
	First int64
	// Draw has a different conversation begin at each time at which one began, after rows have been left out.
	Draw Draw
	// Sample keeps this share of the groups that rows belong to, by the rule by which Collectors sample requests ([mooncake.Sampler]): from
	// [mooncake.MinSampleRate] to 1; 0 means 1. SampleBy says which group of a row decides. Scale preserves the trace's figures better.
	Sample   float64
	SampleBy mooncake.SampleOrder

	// Scale multiplies the load, at the same speed: below 1 it samples clusters, above 1 it overlays copies.
	Scale float64
	// Shift is the maximum shift in time of a cluster of a copy, in both directions; 0 = [DefaultShift].
	Shift time.Duration

	// InputScale multiplies input lengths. PrefixScale multiplies only the part of a prompt that another row shares.
	InputScale, PrefixScale float64
	// OutputScale multiplies output lengths. Rows then no longer say which parts of their prompts are replies (field replies), because
	// the lengths of the generated replies would differ.
	OutputScale float64
	// Roots distributes the clusters over this many prefix trees that share nothing.
	Roots int
	// BlockSize is the number of tokens per hash id, a multiple of the source's.
	BlockSize int

	// MaxGap shortens longer gaps between consecutive rows.
	MaxGap time.Duration
	// Spread spreads rows with timestamps of a coarse clock over its ticks.
	Spread Spread
	// Turns replaces the timestamps of later turns of a session by delays. MaxDelay shortens longer delays.
	Turns    TurnDelay
	MaxDelay time.Duration
	// ToModels renames the models of each conversation: the first one that appears gets the first of these names, and so on, cyclically.
	// Rows without a model or session get the names in turn.
	ToModels []string
	// TimeScale multiplies times, delays included: 0.5 is twice as fast.
	TimeScale float64
}

// TurnDelay says how the delay of a later turn of a session is computed.
type TurnDelay string

// The kinds of delays.
const (
	TurnsAsTimed   TurnDelay = ""      // later turns keep their timestamps
	TurnsFromStart TurnDelay = "start" // the time since the turn before was sent
	TurnsFromEnd   TurnDelay = "end"   // the time since the reply of the turn before was complete, if it was observed
	TurnsAtOnce    TurnDelay = "none"  // no delay
)

// DefaultShift is small enough that the rows of a copy stay roughly within their minute.
const DefaultShift = 15 * time.Second

// The limits of a configuration.
const (
	MaxScale = 1000
	MinScale = 1e-6
	MaxRoots = 1 << 20
)

// Validate returns an error for every value out of range, with the names of the fields in lower case, such as max-input; BlockSize is the
// new block size.
func (c *Config) Validate() error {
	var errs []error
	require := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	for _, s := range []struct {
		name string
		v    float64
	}{
		{"scale", c.Scale}, {"input-scale", c.InputScale}, {"prefix-scale", c.PrefixScale}, {"output-scale", c.OutputScale}, {"time-scale", c.TimeScale},
	} {
		require(s.v == 0 || s.v >= MinScale && s.v <= MaxScale, "%s %g: must be from %g to %g", s.name, s.v, MinScale, float64(MaxScale))
	}
	require(c.Sample == 0 || c.Sample >= mooncake.MinSampleRate && c.Sample <= 1, "sample %g: must be from %g to 1", c.Sample, mooncake.MinSampleRate)
	require(c.Join == JoinNone || c.Join == JoinAppend || c.Join == JoinMerge, "join %q: must be append or merge", c.Join)
	require(c.End == 0 || c.End >= c.Start, "end %s: must not be before start %s", c.End, c.Start)
	for _, d := range []struct {
		name string
		v    time.Duration
	}{{"start", c.Start}, {"shift", c.Shift}, {"max-gap", c.MaxGap}, {"max-delay", c.MaxDelay}} {
		require(d.v >= 0, "%s %s: must be 0 or more", d.name, d.v)
	}
	for _, n := range []struct {
		name string
		v    int64
	}{
		{"min-input", c.MinInput},
		{"max-input", c.MaxInput},
		{"min-output", c.MinOutput},
		{"max-output", c.MaxOutput},
		{"max-context", c.MaxContext},
		{"conversations", c.Conversations},
		{"first", c.First},
	} {
		require(n.v >= 0, "%s %d: must be 0 or more", n.name, n.v)
	}
	require(c.MaxInput <= 0 || c.MaxInput >= c.MinInput, "max-input %d: must not be below min-input %d", c.MaxInput, c.MinInput)
	require(c.MaxOutput <= 0 || c.MaxOutput >= c.MinOutput, "max-output %d: must not be below min-output %d", c.MaxOutput, c.MinOutput)
	require(slices.Contains([]mooncake.SampleOrder{"", mooncake.SampleSession, mooncake.SamplePrefix}, c.SampleBy), "sample-by %q: must be session or prefix", c.SampleBy)
	require(c.Spread <= SpreadEven, "spread %d: must be none, uniform or even", uint8(c.Spread))
	require(slices.Contains([]TurnDelay{TurnsAsTimed, TurnsFromStart, TurnsFromEnd, TurnsAtOnce}, c.Turns), "turns %q: must be start, end or none", c.Turns)
	require(slices.Contains([]Draw{DrawNone, DrawShuffle, DrawRandom}, c.Draw), "draw %q: must be shuffle or random", c.Draw)
	require(!slices.Contains(c.ToModels, ""), "to-models %q: no name must be empty", c.ToModels)
	require(c.Roots >= 0 && c.Roots <= MaxRoots, "roots %d: must be from 1 to %d, or 0", c.Roots, MaxRoots)
	require(c.BlockSize >= 0 && c.BlockSize <= mooncake.MaxBlockSize, "new block size %d: must be from 1 to %d, or 0", c.BlockSize, mooncake.MaxBlockSize)
	require(c.InputScale == 0 || c.PrefixScale == 0, "prefix-scale: cannot be given with input-scale, which scales the prefix, too")
	return errors.Join(errs...)
}

// twoPasses reports whether a step needs all rows before it makes the first one.
func (c *Config) twoPasses() bool {
	return changes(c.Scale) || c.Roots > 1 || changes(c.PrefixScale)
}

// ordered returns the name of the step that needs the rows in order of time, or "".
func (c *Config) ordered(sources int) string {
	switch {
	case c.Join == JoinMerge && sources > 1:
		return "merge"
	case c.Scale > 1:
		return "scale"
	case c.MaxGap > 0:
		return "max-gap"
	case c.Spread != SpreadNone:
		return "spread"
	}
	return ""
}

// changes reports whether a factor has an effect.
func changes(f float64) bool { return f != 0 && f != 1 }

// millis returns a duration in milliseconds.
func millis(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// tidy rounds milliseconds to the nanosecond, the resolution of an arrival digest.
func tidy(ms float64) float64 { return math.Round(ms*1e6) / 1e6 }
