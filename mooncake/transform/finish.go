// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package transform

import (
	"slices"

	"github.com/moonloop/moonloop/internal/splitmix"
	"github.com/moonloop/moonloop/mooncake"
)

// group identifies the unit in which rows are moved at random: a session, or a single row.
func (it *item) group() uint64 {
	if it.session != 0 {
		return it.session
	}
	return it.order()
}

// finisher completes the rows after all steps: it makes their ids canonical, and makes their replies point to the rows' final positions.
type finisher struct {
	ids     numbered
	fine    mooncake.RenumberRanges
	moved   bool                  // there may be fewer or more rows, or their order may differ
	at      map[instance][]uint32 // the position of each row, from 1
	rows    int64
	replies int64 // replies that were left out, because the rows that they answer are gone

	head, tail, ranges, more []mooncake.HashRange // reused memory
}

// instance is a source, or a copy of it. The rows of a conversation that is drawn several times are in several instances, so that the replies
// in each are those of its own turns.
type instance struct {
	source, copy int
	again        uint32
}

// rootOf returns the prefix tree of a cluster.
func rootOf(c *Config, x *index, it *item) int {
	return int(splitmix.Next(splitmix.Next(c.Seed+uint64(x.cluster[it.seq]))+uint64(it.copy)) % uint64(c.Roots)) //nolint:gosec // bits
}

// domains returns the domains in which a row's ids are numbered: that of its trunk, which all rows of its tree share, and that of the
// blocks below, which only rows of one copy share (and, if plant says so, of one tree). Equal ids in different domains become different
// ids.
func (it *item) domains() (trunk, own uint64) {
	return uint64(it.root), uint64(it.copy)<<32 | uint64(it.own) //nolint:gosec // never negative
}

// plant puts rows into trees that share nothing. A cluster is in one tree, so the ids of blocks after the trunk need not be distinguished
// by tree. Blocks that are made of ranges must be: two clusters may share the beginning of one.
func plant(c *Config, x *index, fine bool, in step) step {
	trunks := x.trunks()
	return func() (*item, error) {
		it, err := in()
		if err != nil {
			return nil, err
		}
		it.root = rootOf(c, x, it)
		if fine {
			it.own = it.root
		} else {
			it.trunk = min(int(trunks[it.seq]), len(it.HashIDs))
		}
		return it, nil
	}
}

func (f *finisher) row(it *item, block, fine int) (added int) {
	trunk, own := it.domains()
	f.ids.row(trunk, it.HashIDs[:it.trunk])
	added = f.ids.added
	f.ids.row(own, it.HashIDs[it.trunk:])
	added += f.ids.added
	if it.HashRanges != nil {
		border := int64(mooncake.BlockCount(min(int64(it.trunk)*int64(block), it.InputLength.V), fine))
		f.head, f.tail = f.head[:0], f.tail[:0]
		for _, r := range it.HashRanges {
			n := min(r.Count, border)
			if border -= n; n > 0 {
				f.head = append(f.head, mooncake.HashRange{First: r.First, Count: n})
			}
			if n < r.Count {
				f.tail = append(f.tail, mooncake.HashRange{First: r.First + uint64(n), Count: r.Count - n}) //nolint:gosec // above 0
			}
		}
		f.ranges, f.more = f.fine.Domain(trunk, f.ranges[:0], f.head), f.fine.Domain(own, f.more[:0], f.tail)
		f.ranges = joinRanges(f.ranges, f.more)
		it.HashRanges = append(it.HashRanges[:0], f.ranges...)
	}
	if f.moved {
		f.link(it)
	}
	if it.copy > 0 && (it.SessionID != "" || it.RequestID != "" || it.WaitFor != nil) {
		suffix := "~copy" + itoa(it.copy)
		it.SessionID, it.RequestID = renamed(it.SessionID, suffix), renamed(it.RequestID, suffix)
		it.WaitFor = renamedAll(it.WaitFor, suffix)
	}
	f.rows++
	return added
}

// joinRanges appends ranges; the first one may continue the last one.
func joinRanges(dst, more []mooncake.HashRange) []mooncake.HashRange {
	if n := len(dst); n > 0 && len(more) > 0 && dst[n-1].First+uint64(dst[n-1].Count) == more[0].First { //nolint:gosec // above 0
		dst[n-1].Count += more[0].Count
		more = more[1:]
	}
	return append(dst, more...)
}

// link remembers the position of a row, and makes its replies point to the positions of their rows.
func (f *finisher) link(it *item) {
	of := instance{it.source, it.copy, it.again}
	at := f.at[of]
	kept := it.Replies[:0]
	for _, r := range it.Replies {
		target := it.index - r.Back
		if target < 0 || target >= int64(len(at)) || at[target] == 0 {
			f.replies++
			continue
		}
		r.Back = f.rows + 1 - int64(at[target])
		kept = append(kept, r)
	}
	if it.Replies = kept; len(kept) == 0 {
		it.Replies = nil
	}
	if n := int(it.index) + 1 - len(at); n > 0 {
		at = slices.Grow(at, n)[:it.index+1]
		clear(at[len(at)-n:])
		if f.at == nil {
			f.at = map[instance][]uint32{}
		}
		f.at[of] = at
	}
	at[it.index] = uint32(f.rows + 1) //nolint:gosec // wraps at 2^32 rows, which are more than are indexed
}
