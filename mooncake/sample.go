// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package mooncake

// This file has the one rule by which Collectors and transformations of files sample requests, so that shared prefixes stay whole. A sample
// of single requests would lose most hits of a prefix cache.

import (
	"fmt"
	"strings"

	"github.com/cespare/xxhash/v2"

	"github.com/moonloop/moonloop/internal/splitmix"
)

// MinSampleRate is the minimum share of requests in a sample.
const MinSampleRate = 0.001

// Group is a unit of sampling: a sample has all of its requests or none. It is a session, or the requests that share their first block
// after the trunk.
type Group struct {
	block bool
	n     uint64
}

// SessionGroup returns the group of a session.
func SessionGroup(id string) Group { return Group{false, xxhash.Sum64String(id)} }

// BlockGroup returns the group of the requests that have a block, or another value that identifies a beginning of their prompts.
func BlockGroup(id uint64) Group { return Group{true, id} }

// Group returns the group of a prompt by its ids: that of the first id after the trunk, or of the last id if all belong to the trunk. ok is
// false for a prompt without ids. A nil trunk has no block.
func (t *Trunk) Group(ids []uint64) (g Group, ok bool) {
	if id, below := t.Below(ids); below {
		return BlockGroup(id), true
	}
	if n := len(ids); n > 0 {
		return BlockGroup(ids[n-1]), true
	}
	return Group{}, false
}

// Group returns the group that decides whether a sample has the row. block is the number of tokens per id. A row without ids and session is
// its own group, by its number.
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

// Sampler decides about groups, by a hash. Equal samplers decide alike on all machines, and the sample of a lower rate is a part of the
// sample of a higher rate. The zero Sampler keeps nothing.
type Sampler struct {
	Rate float64 // share of the groups that are kept, 0 to 1
	Seed uint64  // another seed keeps other groups
}

// Keeps reports whether a group belongs to the sample.
func (s Sampler) Keeps(g Group) bool {
	x := splitmix.Next(s.Seed)
	if g.block {
		x = splitmix.Next(x)
	}
	return splitmix.Uniform(splitmix.Next(x^g.n)) < s.Rate
}

// SampleOrder says which of a request's two groups decides.
type SampleOrder string

// The orders. The zero SampleOrder is SampleSession.
const (
	SampleSession SampleOrder = "session" // the session; the prompt for requests without a session
	SamplePrefix  SampleOrder = "prefix"  // the prompt; the session for requests whose prompt is unknown
)

// ParseSampleOrder reads the name of an order.
func ParseSampleOrder(name string) (SampleOrder, error) {
	switch o := SampleOrder(name); o {
	case SampleSession, SamplePrefix:
		return o, nil
	}
	return "", fmt.Errorf("%s: want session or prefix", word(name))
}

// Sampling says, in a sidecar, which part of production's requests is in the trace.
type Sampling struct {
	Rate float64 `json:"rate"` // share of the groups that were kept; 1 = all
	// TrunkList is the fingerprint of the trunk list, 8 hexadecimal digits; empty = none. Samples with one rate and two lists are two
	// samples.
	TrunkList string `json:"trunk_list,omitempty"`
	// By says which of a request's two groups decided; empty = [SampleSession], or unknown.
	By   SampleOrder `json:"by,omitempty"`
	Rows int64       `json:"rows"`
}

// check returns an error if the values are impossible.
func (s *Sampling) check() error {
	if !(s.Rate > 0 && s.Rate <= 1) || s.Rows < 0 {
		return fmt.Errorf("sidecar: sampling: rate %g, %d rows: want a rate above 0 and at most 1, and 0 or more rows; correct it, or leave it out", s.Rate, s.Rows)
	}
	return nil
}

// MixedSampling returns a sentence about a sidecar whose rows were sampled in several ways; "" if they were not.
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
	return "its rows are not one sample: " + strings.Join(parts, ", ") + "; load and hit rate do not describe any real traffic: compile journals of one rate and one list"
}
