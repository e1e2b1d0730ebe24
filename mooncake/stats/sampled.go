// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package stats

// This file estimates how far the hit rate of a sample may be from that of the whole traffic.

import (
	"math"

	"github.com/moonloop/moonloop/mooncake"
)

// maxSampled is the number of groups, of 50 bytes each, beyond which the error of a sample is not estimated.
const maxSampled = 1 << 21

// SampleOptions describes how the rows were sampled.
type SampleOptions struct {
	Rate  float64         // share of the groups that were kept
	Trunk *mooncake.Trunk // of the rows' ids
	// Order says which group of a row decided about it.
	Order mooncake.SampleOrder
}

// SampleStats describes how exactly a sample shows the hit rate of its traffic, in an infinite cache.
type SampleStats struct {
	Rate float64 `json:"rate"`
	// Groups is the number of sessions, and of sets of rows that share their first block after the trunk. Each was kept or left out as a
	// whole.
	Groups int64 `json:"groups"`
	// StandardError is the standard error of the share of hit tokens: two of three samples of this rate are off by at most this, and 19 of
	// 20 by at most twice as much. It is computed as for a quotient of sums over groups that are drawn independently (Cochran, Sampling
	// Techniques, 1977, ch. 6).
	StandardError float64 `json:"token_hit_rate_standard_error"`

	Undefined UndefinedFigures `json:"undefined,omitempty"`
}

// MarshalJSON writes null for undefined figures.
func (s SampleStats) MarshalJSON() ([]byte, error) {
	type plain SampleStats
	return s.Undefined.marshal(plain(s))
}

// sampled sums up the tokens of each group.
type sampled struct {
	opt    SampleOptions
	block  int
	rows   uint64
	groups map[mooncake.Group]*groupSum
	full   bool
}

type groupSum struct{ hit, in float64 } // tokens

func newSampled(opt SampleOptions, block int) *sampled {
	return &sampled{opt: opt, block: block, groups: map[mooncake.Group]*groupSum{}}
}

// add adds a row and its hit tokens.
func (s *sampled) add(row *mooncake.Row, hit int64) {
	s.rows++
	if s.full || !row.InputLength.Set {
		return
	}
	key := row.Group(s.opt.Trunk, s.opt.Order, s.block, s.rows)
	g := s.groups[key]
	if g == nil {
		if s.full = len(s.groups) == maxSampled; s.full {
			s.groups = nil
			return
		}
		g = new(groupSum)
		s.groups[key] = g
	}
	g.hit += float64(hit)
	g.in += float64(row.InputLength.V)
}

func (s *sampled) stats() *SampleStats {
	out := &SampleStats{Rate: s.opt.Rate, Groups: int64(len(s.groups))}
	var hit, in, squares float64
	for _, g := range s.groups {
		hit += g.hit
		in += g.in
	}
	switch {
	case s.full:
		out.Undefined.add("too many groups", "groups", "token_hit_rate_standard_error")
		return out
	case len(s.groups) < 2:
		out.Undefined.add("fewer than two groups", "token_hit_rate_standard_error")
		return out
	}
	for _, g := range s.groups {
		off := g.hit - hit/in*g.in
		squares += off * off
	}
	n := float64(len(s.groups))
	out.StandardError = math.Sqrt((1-s.opt.Rate)*squares*n/(n-1)) / in
	return out
}
