// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package transform

import (
	"fmt"
	"slices"

	"github.com/moonloop/moonloop/internal/splitmix"
)

// Spread says how rows that share a coarse timestamp are spread over the tick that it stands for.
//
// A trace whose clock ticks every 3 s has bursts that production never had. Sent as they are, they overstate the median TTFT of a
// half-loaded engine several times over. Spreading never happens silently: it is off unless asked for, and its effect is reported.
type Spread uint8

// The ways to spread.
const (
	SpreadNone    Spread = iota // unchanged
	SpreadUniform               // each row at a random, uniformly distributed time in its tick
	SpreadEven                  // row j of k in a tick at j/k of the tick
)

var spreadNames = [...]string{"none", "uniform", "even"}

// String returns the name of the kind of spreading.
func (s Spread) String() string {
	if int(s) >= len(spreadNames) {
		return fmt.Sprintf("spread %d", uint8(s))
	}
	return spreadNames[s]
}

// ParseSpread reads the name of a kind of spreading.
func ParseSpread(name string) (Spread, error) {
	i := slices.Index(spreadNames[:], name)
	if i < 0 {
		return 0, fmt.Errorf("spread %q: want none, uniform or even", name)
	}
	return Spread(i), nil //nolint:gosec // an index of spreadNames
}

// Place returns the position of a row, or of all rows of a session, within a tick, from 0 to below 1. It depends only on the seed and the
// row's identity, so that all shards and runs agree.
func Place(seed, row uint64) float64 {
	return splitmix.Uniform(splitmix.Mix(seed ^ row*splitmix.Golden))
}
