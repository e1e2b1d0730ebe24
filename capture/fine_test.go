// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"math"
	"slices"
	"testing"

	"github.com/moonloop/moonloop/blockhash"
	"github.com/moonloop/moonloop/capture/journal"
	"github.com/moonloop/moonloop/mooncake"
)

// rowsOnly is a sink that keeps the rows themselves.
type rowsOnly struct{ rows []*mooncake.Row }

func (s *rowsOnly) sink(Partition) (TraceWriter, error) { return s, nil }

func (s *rowsOnly) Write(row *mooncake.Row) error {
	one := *row
	s.rows = append(s.rows, &one)
	return nil
}

func (s *rowsOnly) Commit(*mooncake.Meta) error { return nil }
func (s *rowsOnly) Close() error                { return nil }

// tokenCache is an engine's cache, exact to the token, which forgets nothing. It contains what was generated, except for its last token.
type tokenCache struct{ children map[uint32]*tokenCache }

func (c *tokenCache) serve(prompt, reply []uint32) (hit int) {
	missed := false
	for i, token := range slices.Concat(prompt, reply[:max(0, len(reply)-1)]) {
		next := c.children[token]
		if next == nil {
			if missed = true; c.children == nil {
				c.children = map[uint32]*tokenCache{}
			}
			next = &tokenCache{}
			c.children[token] = next
		}
		if !missed && i < len(prompt) {
			hit++
		}
		c = next
	}
	return hit
}

// fineIDs returns all ids of a row's ranges.
func fineIDs(row *mooncake.Row) (ids []uint64) {
	for _, r := range row.HashRanges {
		for i := range uint64(r.Count) {
			ids = append(ids, r.First+i)
		}
	}
	return ids
}

// TestFineSharing compiles conversations with replies in which every token is known. It compares what rows share at 16 tokens a block,
// replies included, with what an engine would have cached.
func TestFineSharing(t *testing.T) {
	otherInput(t)
	h := newHasher(t, blockhash.TextDomain)
	seeds := repeated(uint64(3), 1)
	for seed := range seeds {
		chats := conversations(seed+1, 40)
		records, truth := productionOf(t, h, chats, 1, func(messages [][2]string) [][2]string { return messages })
		for _, r := range records {
			r.(*journal.Inference).CachedTokens = mooncake.Opt[int64]{} // so that only text counts
		}
		var s rowsOnly
		if _, err := Compile(t.Context(), Options{TempDir: t.TempDir()}, s.sink, buffer("test", journalOf(records...))); err != nil {
			t.Fatal(err)
		}
		equal(t, "rows", len(chats), len(s.rows))

		seen, last := map[uint64]bool{}, map[uint64]uint64{}
		within, signed, prompt, had, got, over, replies := 0, 0, 0, 0, 0, 0, 0
		for i, row := range s.rows {
			r := truth[i]
			want := r.cached
			ids := fineIDs(row)
			equal(t, "blocks", mooncake.BlockCount(row.InputLength.V, FineBlockSize), len(ids))
			n := 0
			for n < len(ids) && seen[ids[n]] {
				n++
			}
			hit := min(n*FineBlockSize, len(r.prompt))
			for _, one := range row.Replies {
				if of := s.rows[i-int(one.Back)]; one.At != of.InputLength.V || one.Tokens != of.OutputLength.V {
					t.Errorf("row %d: reply %+v to a row of %d and %d tokens", i, one, of.InputLength.V, of.OutputLength.V)
				}
				hit = max(hit, int(one.At+one.Tokens)-1)
			}
			replies += len(row.Replies)
			for _, id := range ids {
				seen[id] = true
			}
			// The same by hash_ids: they are shared exactly where the fine ids at their ends are.
			for j, id := range row.HashIDs {
				end := ids[min((j+1)*mooncake.BlockSize/FineBlockSize, len(ids))-1]
				if known, ok := last[id]; ok && known != end {
					t.Fatalf("row %d, block %d: hash id %d ends with the fine blocks %d and %d", i, j, id, known, end)
				}
				last[id] = end
			}
			if diff := hit - want; diff >= -FineBlockSize && diff <= FineBlockSize {
				within++
			}
			signed += hit - want
			over = max(over, hit-want)
			prompt, had, got = prompt+len(r.prompt), had+want, got+hit
		}
		back := map[uint64]uint64{}
		for id, end := range last {
			if other, ok := back[end]; ok {
				t.Fatalf("the hash ids %d and %d both end with the fine block %d", id, other, end)
			}
			back[end] = id
		}
		rate := func(n int) float64 { return 100 * float64(n) / float64(prompt) }
		t.Logf("seed %d: %d requests, cached %.2f %%, by the trace %+.2f points; within a block %.1f %%, mean error %+.2f tokens, %d too many at most, %d replies",
			seed+1, len(chats), rate(had), rate(got)-rate(had), 100*float64(within)/float64(len(chats)), float64(signed)/float64(len(chats)), over, replies)
		if math.Abs(rate(got)-rate(had)) > 0.5 || 100*within < 90*len(chats) {
			t.Errorf("seed %d: want the hit rate within 0.5 points, and 90 of 100 requests within a block", seed+1)
		}
		if replies == 0 {
			t.Error("no reply was found")
		}
	}
}
