// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package mooncake

// This file computes the trunk: the blocks that are too common at the beginning of rows to tell conversations apart.

import (
	"cmp"
	"fmt"
	"slices"
)

// TrunkShare is the share of the rows above which a block belongs to the trunk.
const TrunkShare = 0.01

const (
	// trunkRows is the minimum number of rows above which a block belongs to the trunk, even in a short trace: one conversation may have
	// this many turns.
	trunkRows = 10
	// maxTrunk is the maximum number of ranges of a trunk. A larger trunk is reduced by a higher share.
	maxTrunk = 4096
)

// Trunk is the top of the prefix forest of a trace: the blocks that more than a share of its rows have, such as a system prompt at the
// beginning of all conversations. The first block after the trunk tells rows apart.
type Trunk struct {
	Share  float64     `json:"share"`  // of the rows; see [TrunkShare]
	Rows   int64       `json:"rows"`   // rows from which it was computed
	Blocks [][2]uint64 `json:"blocks"` // first id and number of ids of each range, ascending
}

// check returns an error if the trunk is invalid.
func (t *Trunk) check() error {
	if t == nil {
		return nil
	}
	next, full := uint64(0), false
	for _, r := range t.Blocks {
		if full || r[0] < next || r[1] == 0 || r[0]+r[1]-1 < r[0] {
			return fmt.Errorf("sidecar: trunk: %d blocks from id %d: want ranges of 1 or more ids that ascend; correct it, or leave it out", r[1], r[0])
		}
		next = r[0] + r[1]
		full = next == 0 // the highest possible id
	}
	return nil
}

// Has reports whether a block belongs to the trunk. A nil trunk has no block.
func (t *Trunk) Has(id uint64) bool {
	if t == nil {
		return false
	}
	at, found := slices.BinarySearchFunc(t.Blocks, id, func(r [2]uint64, id uint64) int { return cmp.Compare(r[0], id) })
	return found || at > 0 && id-t.Blocks[at-1][0] < t.Blocks[at-1][1]
}

// Below returns the first of a row's ids that does not belong to the trunk; false if there is none.
func (t *Trunk) Below(ids []uint64) (id uint64, ok bool) {
	for _, id := range ids {
		if !t.Has(id) {
			return id, true
		}
	}
	return 0, false
}

// Of returns the trunk of rows, given their ids: the blocks of t (nil: none), and the blocks that are in more rows than a threshold:
// [TrunkShare] of the rows, but at least 10, and at most limit.
func (t *Trunk) Of(rows [][]uint64, limit float64) *Trunk {
	out := &Trunk{Share: TrunkShare, Rows: int64(len(rows))}
	ids := trunkIDs(rows, t, min(max(TrunkShare*float64(len(rows)), trunkRows), limit))
	if t != nil {
		out.Share, out.Rows, out.Blocks = t.Share, t.Rows, slices.Clone(t.Blocks)
		ids = slices.DeleteFunc(ids, t.Has)
	}
	out.add(ids)
	return out
}

// trunkIDs returns the ids at the beginning of more than a number of rows, and those of an existing trunk (nil: none), in any order.
func trunkIDs(rows [][]uint64, t *Trunk, limit float64) (ids []uint64) {
	under := slices.Clone(rows)
	for depth := 0; len(under) > 0; depth++ { // below a block that does not belong to the trunk, no block does
		counts := make(map[uint64]int)
		under = slices.DeleteFunc(under, func(row []uint64) bool { return len(row) <= depth })
		for _, row := range under {
			counts[row[depth]]++
		}
		trunk := func(id uint64) bool { return t.Has(id) || float64(counts[id]) > limit }
		for id := range counts {
			if trunk(id) {
				ids = append(ids, id)
			}
		}
		under = slices.DeleteFunc(under, func(row []uint64) bool { return !trunk(row[depth]) })
	}
	return ids
}

// add adds blocks to the trunk.
func (t *Trunk) add(ids []uint64) {
	slices.Sort(ids)
	for _, id := range ids {
		if n := len(t.Blocks); n > 0 && t.Blocks[n-1][0]+t.Blocks[n-1][1] == id {
			t.Blocks[n-1][1]++
		} else {
			t.Blocks = append(t.Blocks, [2]uint64{id, 1})
		}
	}
	slices.SortFunc(t.Blocks, func(a, b [2]uint64) int { return cmp.Compare(a[0], b[0]) })
}

// Trunk returns the trunk of the rows so far; nil if it has no block, or if the rows have more ids than the digester remembers.
func (d *Digester) Trunk() *Trunk { return d.checker.trunk() }

func (c *Checker) trunk() *Trunk {
	f := c.forest
	if f.count == 0 {
		return nil
	}
	t := &Trunk{Share: TrunkShare, Rows: c.rows}
	for ; ; t.Share *= 2 {
		limit := max(t.Share*float64(t.Rows), trunkRows)
		var ids []uint64
		for n := range f.count { // ids that are their own numbers
			if id := uint64(n); (f.names.other == nil || id < f.names.base) && float64(f.nodes.At(n).References) > limit {
				ids = append(ids, id)
			}
		}
		for id, n := range f.names.other {
			if float64(f.nodes.At(int64(n)).References) > limit { //nolint:gosec // fewer than 2^31
				ids = append(ids, id)
			}
		}
		if len(ids) == 0 {
			return nil
		}
		t.Blocks = nil
		if t.add(ids); len(t.Blocks) <= maxTrunk {
			return t
		}
	}
}
