// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package stats

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/moonloop/moonloop/mooncake"
)

func TestRenamedIDsAreTheSameWorkload(t *testing.T) {
	rows := publicRows(t, 0)
	renamed := clone(rows)
	for _, r := range renamed {
		for i, id := range r.HashIDs {
			r.HashIDs[i] = (id + 1) * 0x9e3779b97f4a7c15 // odd: no two ids become one
		}
	}
	if got := digest(renamed); !got.Same(goldens["conversation"].digests) {
		t.Errorf("digests %+v", got)
	}
	names := new(mooncake.Renumber)
	for i, r := range renamed {
		names.Row(r)
		if !slices.Equal(r.HashIDs, rows[i].HashIDs) {
			t.Fatalf("row %d: renumbering does not give the public ids back", i)
		}
	}
	if names.Canonical() || names.Len() != 182790 {
		t.Errorf("canonical %t, %d ids", names.Canonical(), names.Len())
	}
	names = new(mooncake.Renumber)
	for _, r := range clone(rows) {
		names.Row(r)
	}
	if !names.Canonical() || names.Len() != 182790 {
		t.Errorf("public ids: canonical %t, %d ids", names.Canonical(), names.Len())
	}
}

func TestShuffledRowsAreTheSameTree(t *testing.T) {
	rows := publicRows(t, 0)
	shuffled := clone(rows)
	rng := rand.New(rand.NewPCG(3, 4))
	for i := 0; i < len(shuffled); {
		end := i
		for end < len(shuffled) && shuffled[end].Timestamp == shuffled[i].Timestamp {
			end++
		}
		rng.Shuffle(end-i, func(a, b int) { shuffled[i+a], shuffled[i+b] = shuffled[i+b], shuffled[i+a] })
		i = end
	}
	want, got := goldens["conversation"].digests, digest(shuffled)
	if got.Seq == want.Seq || got.Tree != want.Tree || got.Arrival != want.Arrival {
		t.Errorf("digests %+v, want another sequence, the same tree and arrivals", got)
	}
	before, after := simulate(rows, CacheOptions{Capacities: []int{10000}}), simulate(shuffled, CacheOptions{Capacities: []int{10000}})
	if after[1].HitTokens != before[1].HitTokens {
		t.Errorf("infinite cache: %d hit tokens, want %d", after[1].HitTokens, before[1].HitTokens)
	}
	if d := after[0].HitBlocks - before[0].HitBlocks; d == 0 || d < -2000 || d > 2000 {
		t.Errorf("LRU of 10,000 blocks: %d hit blocks more, want a slight change", d)
	}
}

func TestCutSharingIsAnotherWorkload(t *testing.T) {
	rows := publicRows(t, 0)
	a := mooncake.NewChecker(mooncake.CheckOptions{})
	for i, r := range rows {
		a.Add(r, int64(i+1))
	}
	nodes := a.Forest()
	// fresh renames the ids of one row from a position on.
	fresh := func(row, from int) mooncake.Digests {
		changed := clone(rows)
		for i := from; i < len(changed[row].HashIDs); i++ {
			changed[row].HashIDs[i] = 1<<40 + uint64(i)
		}
		return digest(changed)
	}
	want := goldens["conversation"].digests
	shared := slices.IndexFunc(rows, func(r *mooncake.Row) bool {
		return len(r.HashIDs) > 2 && nodes.Node(uint32(r.HashIDs[1])).References > 1
	})
	if got := fresh(shared, 1); got.Seq == want.Seq || got.Tree == want.Tree || got.Arrival != want.Arrival {
		t.Errorf("a tail that others share was cut off: digests %+v", got)
	}
	private := slices.IndexFunc(rows, func(r *mooncake.Row) bool { return nodes.Node(uint32(r.HashIDs[1])).References == 1 })
	if got := fresh(private, 1); !got.Same(want) {
		t.Errorf("a private tail was renamed: digests %+v", got)
	}
}
