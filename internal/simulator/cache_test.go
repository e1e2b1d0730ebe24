// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package simulator

import (
	"bufio"
	"bytes"
	"encoding/json"
	"math/rand/v2"
	"os"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// row is what these tests need of a row of a trace.
type row struct {
	InputLength int      `json:"input_length"`
	HashIDs     []uint64 `json:"hash_ids"`
}

// The toy trace of four rows, with hits and residents computed by hand.
var toy = []row{{1000, []uint64{7, 9}}, {1536, []uint64{7, 3, 4}}, {1000, []uint64{7, 9}}, {10, []uint64{8}}}

func TestCacheToyTrace(t *testing.T) {
	for _, test := range []struct {
		name      string
		capacity  int
		hits      []int
		residents [][]uint64 // least recent first
		evicted   int64
	}{
		{"infinite", 0, []int{0, 1, 2, 0}, nil, 0},
		// Row 2 exceeds the cache, so it evicts row 1's tail 9 and then its own tail 4; 7 stays, as the root.
		{"leaf first", 2, []int{0, 1, 1, 0}, [][]uint64{{9, 7}, {3, 7}, {9, 7}, {7, 8}}, 4},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := newBlockCache(test.capacity)
			for i, r := range toy {
				if got := c.admit(r.HashIDs); got != test.hits[i] {
					t.Errorf("row %d: hit %d blocks, want %d", i, got, test.hits[i])
				}
				if test.residents != nil {
					if d := cmp.Diff(test.residents[i], order(c)); d != "" {
						t.Errorf("row %d: residents (-want +got):\n%s", i, d)
					}
				}
			}
			if _, evicted := c.counts(); evicted != test.evicted {
				t.Errorf("evicted %d, want %d", evicted, test.evicted)
			}
		})
	}
}

// order lists the residents of a finite cache, least recent first.
func order(c *blockCache) []uint64 {
	var ids []uint64
	for block := c.recency.Back(); block != nil; block = block.Prev() {
		ids = append(ids, block.Value.(uint64))
	}
	return ids
}

// A slow model that follows the definition literally must agree with the cache after every step.
func TestCacheAgainstModel(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		capacity := 1 + rng.IntN(8)
		c := newBlockCache(capacity)
		var model []uint64
		for range 60 {
			ids := make([]uint64, rng.IntN(6))
			for i := range ids { // a chain: distinct ids, shared roots
				ids[i] = uint64(i*4 + rng.IntN(4))
			}
			want := 0
			for want < len(ids) && slices.Contains(model, ids[want]) {
				want++
			}
			touched := ids
			var got int
			switch rng.IntN(3) {
			case 0:
				got, touched = c.lookup(ids), ids[:want]
			case 1:
				c.commit(ids)
				got = want
			default:
				got = c.admit(ids)
			}
			for _, id := range slices.Backward(touched) {
				model = append(slices.DeleteFunc(model, func(x uint64) bool { return x == id }), id)
			}
			model = model[max(0, len(model)-capacity):]
			if got != want {
				t.Fatalf("capacity %d, %v: hit %d, want %d", capacity, ids, got, want)
			}
			if !slices.Equal(order(c), model) {
				t.Fatalf("capacity %d, %v: residents %v, want %v", capacity, ids, order(c), model)
			}
		}
	}
}

// The published figures of the public conversation trace.
func TestCachePublicTrace(t *testing.T) {
	rows := publicTrace(t)
	for _, test := range []struct {
		name     string
		capacity int
		full     bool // only blocks that are full
		head     int
		want     int // hit tokens
	}{
		{"infinite, full blocks", 0, true, len(rows), 54_063_104},
		{"infinite, all blocks", 0, false, len(rows), 54_098_411},
		{"10,000 blocks", 10_000, false, len(rows), 31_238_981},
		{"1,000 blocks", 1_000, false, len(rows), 6_575_459},
		{"head, full blocks", 0, true, 1000, 2_959_360},
		{"head, 100 blocks", 100, false, 1000, 511_488},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := newBlockCache(test.capacity)
			got := 0
			for _, r := range rows[:test.head] {
				ids := r.HashIDs
				if test.full {
					ids = ids[:r.InputLength/512]
				}
				got += min(512*c.admit(ids), r.InputLength)
			}
			if got != test.want {
				t.Errorf("%d hit tokens, want %d", got, test.want)
			}
		})
	}
}

// Token ids made from hash ids must give the same hits through the chain as the hash ids themselves.
func TestChainPublicTraceHead(t *testing.T) {
	rows := publicTrace(t)[:1000]
	c := newBlockCache(0)
	got := 0
	for _, r := range rows {
		chain := newChain(512, Tokenizer{})
		for i := range r.InputLength {
			chain.add(r.HashIDs[i/512]<<9 | uint64(i%512))
		}
		if chain.tokens != r.InputLength || len(chain.blocks) != r.InputLength/512 {
			t.Fatalf("%d tokens gave %d tokens and %d blocks", r.InputLength, chain.tokens, len(chain.blocks))
		}
		salted(chain.blocks, "model", "")
		got += 512 * c.admit(chain.blocks)
	}
	if want := 2_959_360; got != want {
		t.Errorf("%d cached tokens, want %d", got, want)
	}
}

func publicTrace(t *testing.T) []row {
	t.Helper()
	data, err := os.ReadFile(sharedData(t, "conversation_trace.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	var rows []row
	lines := bufio.NewScanner(bytes.NewReader(data))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var r row
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
			t.Fatal(err)
		}
		rows = append(rows, r)
	}
	if len(rows) != 12_031 {
		t.Fatalf("%d rows, want 12031", len(rows))
	}
	return rows
}
