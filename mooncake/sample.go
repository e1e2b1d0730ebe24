// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package mooncake

// This file is the one rule by which requests are sampled, by Collectors and from files, so that what prompts share stays whole. A
// sample of single requests would lose most of the hits of a prefix cache.

import (
	"fmt"
	"strings"

	"github.com/cespare/xxhash/v2"

	"github.com/moonloop/moonloop/internal/splitmix"
)

// MinSampleRate is the least share of requests that a sample may have.
const MinSampleRate = 0.001

// Group is what a sample has all of or nothing of: a session, or the requests that share their first block below the trunk.
type Group struct {
	block bool
	n     uint64
}

// SessionGroup returns the group of a session.
func SessionGroup(id string) Group { return Group{false, xxhash.Sum64String(id)} }

// BlockGroup returns the group of the requests that have a block, or whatever else identifies a beginning of their prompts.
func BlockGroup(id uint64) Group { return Group{true, id} }

// Group returns the group of a prompt by its ids: that of the first one below the trunk, and of the last one where all are of the trunk. ok
// is false for a prompt without ids. A trunk of nil has no block.
func (t *Trunk) Group(ids []uint64) (g Group, ok bool) {
	if id, below := t.Below(ids); below {
		return BlockGroup(id), true
	}
	if n := len(ids); n > 0 {
		return BlockGroup(ids[n-1]), true
	}
	return Group{}, false
}

// Group returns the group of a row that decides whether a sample has it. block is the number of tokens per id; a row without ids and session is a
// group of its own, by its number.
func (r *Row) Group(t *Trunk, order SampleOrder, block int, number uint64) Group {
	g, ok := t.Group(r.Blocks(block))
	switch {
	case r.SessionID != "" && (!ok || order != SamplePrefix):
		return SessionGroup(r.SessionID)
	case !ok:
		return BlockGroup(number)
	}
	return g
}

// Sampler decides about groups, by a hash: equal samplers decide alike wherever they are, and a sampler of a lower rate keeps a part of
// what one of a higher rate keeps. The zero Sampler keeps nothing.
type Sampler struct {
	Rate float64 // share of the groups that is kept, 0 to 1
	Seed uint64  // another one keeps other groups
}

// Keeps reports whether a group belongs to the sample.
func (s Sampler) Keeps(g Group) bool {
	x := splitmix.Next(s.Seed)
	if g.block {
		x = splitmix.Next(x)
	}
	return splitmix.Uniform(splitmix.Next(x^g.n)) < s.Rate
}

// SampleOrder says which of the two groups that a request belongs to decides.
type SampleOrder string

// The orders. The zero SampleOrder is SampleSession.
const (
	SampleSession SampleOrder = "session" // the session, and the prompt of requests that name none
	SamplePrefix  SampleOrder = "prefix"  // the prompt, and the session of requests whose prompt is not known
)

// ParseSampleOrder reads the name of an order.
func ParseSampleOrder(name string) (SampleOrder, error) {
	switch o := SampleOrder(name); o {
	case SampleSession, SamplePrefix:
		return o, nil
	}
	return "", fmt.Errorf("%s: want session or prefix", word(name))
}

// Sampling says of which part of the requests of production rows were made, in a sidecar.
type Sampling struct {
	Rate float64 `json:"rate"` // share of the groups that was kept; 1 is all of them
	// TrunkList is the fingerprint of the list by which prompts were told apart, 8 hexadecimal digits; empty is none. Samples of one rate by two
	// lists are two samples.
	TrunkList string `json:"trunk_list,omitempty"`
	// By is the group that decided about a request; empty is [SampleSession], or not known.
	By   SampleOrder `json:"by,omitempty"`
	Rows int64       `json:"rows"`
}

// check reports what no sampling can be.
func (s *Sampling) check() error {
	if !(s.Rate > 0 && s.Rate <= 1) || s.Rows < 0 {
		return fmt.Errorf("sidecar: sampling: rate %g, %d rows: want a rate above 0 and at most 1, and 0 or more rows; correct it, or leave it out", s.Rate, s.Rows)
	}
	return nil
}

// MixedSampling says what is wrong with the rows of a sidecar that were sampled in several ways, in a sentence; "" where nothing is.
func (m *Meta) MixedSampling() string {
	if m == nil || len(m.Sampling) < 2 {
		return ""
	}
	parts := make([]string, len(m.Sampling))
	for i, s := range m.Sampling {
		if parts[i] = fmt.Sprintf("%d at a rate of %g", s.Rows, s.Rate); s.TrunkList != "" {
			parts[i] += " by trunk list " + s.TrunkList
		}
	}
	return "its rows are not one sample: " + strings.Join(parts, ", ") + "; load and hit rate are those of no traffic: compile journals of one rate and one list"
}
