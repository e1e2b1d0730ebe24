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

// Join says how several sources become one trace. Their ids are never the same.
type Join string

// The ways to join.
const (
	JoinNone   Join = ""
	JoinAppend Join = "append" // one after the other
	JoinMerge  Join = "merge"  // at the same time: their first rows come together
)

// Config says what to do. The zero value does nothing; a zero field is a step that is left out.
type Config struct {
	Seed uint64 // of everything random
	// TempDir is the folder for rows of which all must be known before the first one is made, packed; "" is the system's.
	TempDir string
	Join    Join // of two sources or more

	// Start and End keep the rows with first + Start ≤ timestamp ≤ first + End, as those of a replay do.
	Start, End time.Duration
	// Models, Classes and Sessions keep the rows that name one of them.
	Models, Classes, Sessions []string
	// The lengths keep the rows within them, in tokens, bounds included; 0 is no bound. Rows without the length are left out.
	MinInput, MaxInput, MinOutput, MaxOutput int64
	// MaxContext keeps the rows whose prompt and reply are at most so many tokens together; 0 is no bound.
	MaxContext int64
	// Conversations keeps so many of those that are left, in the order of their first rows: the rows of a session, and of those whose
	// names go on with a slash after its own, as those of its agents do. A row without a session is one of its own.
	Conversations int64
	// First keeps so many of the rows that are left.
	First int64
	// Draw has another conversation begin where each began, after all that is left out.
	Draw Draw
	// Sample keeps this share of the groups that rows belong to, by the rule that Collectors sample requests by ([mooncake.Sampler]): from
	// [mooncake.MinSampleRate] to 1; 0 is 1. SampleBy says which group of a row decides. Scale keeps its figures better.
	Sample   float64
	SampleBy mooncake.SampleOrder

	// Scale multiplies the load, at the same speed: below 1 it samples clusters, above 1 it overlays copies.
	Scale float64
	// Shift is the most by which a cluster of a copy is moved in time, in both directions; 0 is [DefaultShift].
	Shift time.Duration

	// InputScale multiplies input lengths; PrefixScale those parts of a prompt that another row shares, and leaves the rest.
	InputScale, PrefixScale float64
	// OutputScale multiplies output lengths. Replies in later prompts then have other lengths than what is generated, and are left out.
	OutputScale float64
	// Roots distributes the clusters over so many prefix trees that share nothing.
	Roots int
	// BlockSize is the number of tokens per hash id, a multiple of the source's.
	BlockSize int

	// MaxGap shortens longer gaps between neighbours in time.
	MaxGap time.Duration
	// Spread lays rows of a coarse clock out over its steps.
	Spread Spread
	// Turns gives later turns of a session a delay in place of their timestamp, and MaxDelay shortens longer delays.
	Turns    TurnDelay
	MaxDelay time.Duration
	// ToModels replaces the models: of each conversation, the first that it names by the first of these, and so on, from the beginning again
	// where it has more. Rows that have no model, or no session, get these in turn.
	ToModels []string
	// TimeScale multiplies times, delays included: 0.5 is twice as fast.
	TimeScale float64
}

// TurnDelay says what the delay of a later turn of a session is made of.
type TurnDelay string

// The delays of turns.
const (
	TurnsAsTimed   TurnDelay = ""      // they keep their timestamps
	TurnsFromStart TurnDelay = "start" // the time since the turn before was sent
	TurnsFromEnd   TurnDelay = "end"   // the time since the reply of the turn before was complete, as far as it was observed
	TurnsAtOnce    TurnDelay = "none"  // no delay
)

// DefaultShift keeps the rows of a copy about in their minute.
const DefaultShift = 15 * time.Second

// Bounds of a configuration.
const (
	MaxScale = 1000
	MinScale = 1e-6
	MaxRoots = 1 << 20
)

// Validate reports everything that is out of range, by the names of the fields in lower case.
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
	require(c.Start >= 0 && c.Shift >= 0 && c.MaxGap >= 0, "start, shift and max-gap: must not be negative")
	require(c.MaxInput == 0 || c.MaxInput >= c.MinInput, "max-input %d: must not be below min-input %d", c.MaxInput, c.MinInput)
	require(c.MaxOutput == 0 || c.MaxOutput >= c.MinOutput, "max-output %d: must not be below min-output %d", c.MaxOutput, c.MinOutput)
	require(c.First >= 0, "first %d: must be 0 or more", c.First)
	require(c.MaxContext >= 0 && c.Conversations >= 0, "max-context %d, first-conversations %d: must be 0 or more", c.MaxContext, c.Conversations)
	require(slices.Contains([]TurnDelay{TurnsAsTimed, TurnsFromStart, TurnsFromEnd, TurnsAtOnce}, c.Turns), "turn-delay %q: must be start, end or none", c.Turns)
	require(slices.Contains([]Draw{DrawNone, DrawShuffle, DrawRandom}, c.Draw), "draw %q: must be shuffle or random", c.Draw)
	require(c.MaxDelay >= 0, "max-delay %s: must not be negative", c.MaxDelay)
	require(!slices.Contains(c.ToModels, ""), "to-model: must not be empty")
	require(c.Roots >= 0 && c.Roots <= MaxRoots, "roots %d: must be from 1 to %d", c.Roots, MaxRoots)
	require(c.BlockSize >= 0 && c.BlockSize <= mooncake.MaxBlockSize, "new block size %d: must be from 1 to %d", c.BlockSize, mooncake.MaxBlockSize)
	require(c.InputScale == 0 || c.PrefixScale == 0, "prefix-scale: cannot be given with input-scale, which scales the prefix, too")
	return errors.Join(errs...)
}

// twoPasses reports whether all rows must be known before the first one is made.
func (c *Config) twoPasses() bool {
	return changes(c.Scale) || c.Roots > 1 || changes(c.PrefixScale)
}

// ordered returns the step that needs the rows in order of time, or "".
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

// changes reports whether a factor is one that does something.
func changes(f float64) bool { return f != 0 && f != 1 }

// millis is a duration in milliseconds.
func millis(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// tidy rounds milliseconds to the nanosecond, which is what an arrival digest tells.
func tidy(ms float64) float64 { return math.Round(ms*1e6) / 1e6 }
