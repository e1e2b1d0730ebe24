// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package mooncake

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
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
	if testing.Short() {
		t.Skip("one goroutine works: the race detector would find nothing")
	}
	for seed := range uint64(4) {
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
