// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package transform

import (
	"fmt"
	"slices"

	"github.com/moonloop/moonloop/internal/splitmix"
)

// Spread says how rows that share a coarse timestamp are laid out over the step that it stands for.
//
// A trace whose clock ticks every 3 s holds bursts that production never saw: sent as they are, they overstate
// the median TTFT of a half-loaded engine several times over. Spreading is never silent: it is off unless asked for, and what it
// did is reported.
type Spread uint8

// The ways to spread.
const (
	SpreadNone    Spread = iota // as the timestamps say
	SpreadUniform               // each row at a seeded, uniformly drawn place in its step
	SpreadEven                  // row j of the k in a step at j/k of the step
)

var spreadNames = [...]string{"none", "uniform", "even"}

func (s Spread) String() string { return spreadNames[s] }

// ParseSpread reads the name of a way to spread.
func ParseSpread(name string) (Spread, error) {
	i := slices.Index(spreadNames[:], name)
	if i < 0 {
		return 0, fmt.Errorf("spread %q: want none, uniform or even", name)
	}
	return Spread(i), nil //nolint:gosec // an index of spreadNames
}

// Place puts a row, or all rows of a session, at a place within a step, from 0 to below 1: a pure function of the seed and of what the row is, so that
// every shard and every run agrees.
func Place(seed, row uint64) float64 {
	return splitmix.Uniform(splitmix.Mix(seed ^ row*splitmix.Golden))
}
