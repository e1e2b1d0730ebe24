// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package mooncake

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// forestRows returns rows of conversations with equal beginnings, many of them with equal ends, and some that violate rules.
func forestRows(seed uint64, broken bool) []*Row {
	rng := rand.New(rand.NewPCG(seed, 2))
	const block, fine = 64, 16
	var rows []*Row
	type talk struct {
		ids    []uint64
		ranges []HashRange
		tokens int64
	}
	var talks []*talk
	next, nextFine := uint64(2), uint64(2*block/fine)
	for n := range 6000 {
		var of *talk
		if len(talks) > 0 && rng.IntN(3) > 0 {
			of = talks[max(0, len(talks)-1-rng.IntN(40))]
		} else {
			of = &talk{ids: []uint64{0, 1}, ranges: []HashRange{{0, 2 * block / fine}}, tokens: 2 * block}
			talks = append(talks, of)
		}
		turn := talk{append([]uint64{}, of.ids[:of.tokens/block]...), append([]HashRange{}, of.ranges...), of.tokens + 1 + rng.Int64N(3*block)}
		if n%5 == 0 { // whole fine blocks
			turn.tokens = (turn.tokens + fine - 1) / fine * fine
		}
		if n == 0 {
			turn.tokens = 2 * block
		}
		for len(turn.ids) < BlockCount(turn.tokens, block) {
			turn.ids = append(turn.ids, next)
			next++
		}
		if left := int64(BlockCount(turn.tokens, fine)) - of.tokens/fine; of.tokens%fine == 0 && left > 0 {
			turn.ranges = append(turn.ranges, HashRange{nextFine, left})
			nextFine += uint64(left)
		} else if left > 0 { // the partial block is a different one now
			last := &turn.ranges[len(turn.ranges)-1]
			if last.Count--; last.Count == 0 {
				turn.ranges = turn.ranges[:len(turn.ranges)-1]
			}
			turn.ranges = append(turn.ranges, HashRange{nextFine, left})
			nextFine += uint64(left)
		}
		row := &Row{
			Timestamp: Some(float64(n)), InputLength: Some(turn.tokens), OutputLength: Some(rng.Int64N(4)),
			HashIDs: append([]uint64{}, turn.ids...), HashRanges: turn.ranges,
		}
		switch {
		case !broken:
		case rng.IntN(900) == 0:
			row.HashIDs[len(row.HashIDs)-1] = rng.Uint64N(next)
		case rng.IntN(900) == 0:
			row.HashRanges[0].First++
		}
		*of = turn
		rows = append(rows, row)
		if rng.IntN(20) == 0 {
			rows = append(rows, &Row{Timestamp: row.Timestamp, InputLength: Some(int64(0)), OutputLength: Some(rng.Int64N(300)), HashIDs: []uint64{}, HashRanges: []HashRange{}})
		}
	}
	return rows
}

// TestDigestsOutsideOfMemory: digests, trunk and violations are the same with hardly any memory, and nothing is left on the disk.
func TestDigestsOutsideOfMemory(t *testing.T) {
	seeds := uint64(4)
	if testing.Short() {
		seeds = 1
	}
	for seed := range seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			dir := t.TempDir()
			opt := CheckOptions{BlockSize: 64, FineBlockSize: 16}
			inside := NewDigester(opt)
			opt.Memory, opt.TempDir = 1, dir
			outside := NewDigester(opt)
			for i, row := range forestRows(seed, seed%2 == 1) {
				inside.Add(row, int64(i+1))
				outside.Add(row, int64(i+1))
			}
			if got := inside.Digests(); seed%2 == 0 && !got.Defined() {
				t.Errorf("%+v", got)
			}
			for range 2 { // they can be asked for again
				if diff := cmp.Diff(inside.Digests(), outside.Digests()); diff != "" {
					t.Error(diff)
				}
			}
			if diff := cmp.Diff(inside.Trunk(), outside.Trunk()); diff != "" {
				t.Error(diff)
			}
			if diff := cmp.Diff(inside.Checker().Violations(), outside.Checker().Violations()); diff != "" {
				t.Error(diff)
			}
			if _, disk := outside.checker.forest.nodes.Frames(); disk == 0 {
				t.Error("all nodes fitted in memory")
			}
			if outside.Err() != nil {
				t.Error(outside.Err())
			}
			outside.Close()
			if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
				t.Errorf("left on disk: %v, %v", left, err)
			}
		})
	}
}

// TestTreeDigest: the tree digest is that of its definition, computed recursively, also if several thousand rows end at one block, with and
// without children, and at none.
func TestTreeDigest(t *testing.T) {
	const block = 64
	rows := forestRows(2, false)
	for n := range int64(5000) {
		of := &rows[0].HashIDs // has children
		switch n % 4 {
		case 1:
			of = &[]uint64{}
		case 2:
			of = &rows[len(rows)-2].HashIDs // has none
		}
		rows = append(rows, &Row{Timestamp: Some(0.), InputLength: Some(int64(block * len(*of))), OutputLength: Some(n), HashIDs: *of})
	}
	for i := range rows {
		// Blocks are full, so that rows that end at the same one do not contradict each other.
		rows[i].InputLength.V = int64(block * len(rows[i].HashIDs))
	}
	type node struct {
		children map[uint64]*node
		ends     []string
	}
	newNode := func() *node { return &node{children: map[uint64]*node{}} }
	root := newNode()
	for _, row := range rows {
		at := root
		for _, id := range row.HashIDs {
			if at.children[id] == nil {
				at.children[id] = newNode()
			}
			at = at.children[id]
		}
		at.ends = append(at.ends, fmt.Sprintf("%d,%d", row.InputLength.V, row.OutputLength.V))
	}
	var sum func(n *node, tag string) string
	sum = func(n *node, tag string) string {
		var children []string
		for _, child := range n.children {
			children = append(children, sum(child, "N"))
		}
		slices.Sort(children)
		slices.Sort(n.ends)
		one := sha256.Sum256([]byte(tag + strings.Join(children, "") + strings.Join(n.ends, "|")))
		return string(one[:])
	}
	want := hex.EncodeToString([]byte(sum(root, "F")))
	for _, memory := range []int{0, 1, 1 << 20} {
		d := NewDigester(CheckOptions{BlockSize: block, Memory: memory, TempDir: t.TempDir()})
		for i, row := range rows {
			d.Add(row, int64(i+1))
		}
		if got := d.Digests(); got.Tree != want || d.Err() != nil {
			t.Errorf("with %d bytes of memory, the tree digest is %s (%s, %v), want %s", memory, got.Tree, got.Reason, d.Err(), want)
		}
		d.Close()
	}
}

// TestDigestsWithoutDisk: if data beyond memory cannot be stored, Err returns an error.
func TestDigestsWithoutDisk(t *testing.T) {
	d := NewDigester(CheckOptions{BlockSize: 64, FineBlockSize: 16, Memory: 1, TempDir: filepath.Join(t.TempDir(), "missing")})
	for i, row := range forestRows(0, false) {
		d.Add(row, int64(i+1))
	}
	if d.Digests(); d.Err() == nil {
		t.Error("want an error")
	}
}
