// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"testing"

	"github.com/moonloop/moonloop/blockhash"
	"github.com/moonloop/moonloop/capture/journal"
	"github.com/moonloop/moonloop/mooncake"
)

// TestFineTokens: if the receiver knew the tokens, or the engine's hashes, in blocks finer than the trace's, rows share these blocks, and
// have ranges for them; hash ids share what they would without ranges.
func TestFineTokens(t *testing.T) {
	otherInput(t)
	h := newHasher(t, func(blockhash.Key) string { return blockhash.Domain("tokens", "test") })
	for _, identity := range []journal.Identity{journal.Tokens, journal.Engine} {
		for _, size := range []int{16, 32, 128, 256, 512} {
			chats := conversations(4, 12)
			var records []journal.Record
			for i, c := range chats {
				prompt := journal.Prompt{Identity: identity, Domain: 9, Key: 8, BlockSize: uint32(size), HashIDs: h.Tokens(nil, c.tokens, size)}
				// An engine that had cached more than the rows' tokens have in common changes nothing; nor does an order configured for a model.
				records = append(records, call(uint64(i+1), 1, 0, int64(i), tokens(int64(len(c.tokens)), 10), cached(int64(len(c.tokens))-1),
					func(r *journal.Inference) { r.Prompt, r.Order = prompt, journal.SystemLast }))
			}
			m, res := compileBytes(t, Options{}, journalOf(records...))
			rows := m.rows(t, production)
			equal(t, "identity", map[string]int64{identity.String(): int64(len(chats))}, res.Traces[0].Meta.Identity)
			coarse, fine := cache{}, cache{}
			wantCoarse, wantFine := cache{}, cache{}
			for i, c := range chats {
				if rows[i].HashIDs == nil {
					t.Fatalf("%s, blocks of %d: row %d has no ids: %v", identity, size, i, res.Traces[0].Meta.Dropped)
				}
				equal(t, "shared blocks of 512", wantCoarse.serve(h.Tokens(nil, c.tokens, mooncake.BlockSize)), coarse.serve(rows[i].HashIDs))
				if size == mooncake.BlockSize {
					equal(t, "ranges", 0, len(rows[i].HashRanges))
					continue
				}
				want := min(wantFine.serve(h.Tokens(nil, c.tokens, size))*size, len(c.tokens))
				ids := fineIDs(rows[i])
				equal(t, "fine blocks", mooncake.BlockCount(int64(len(c.tokens)), FineBlockSize), len(ids))
				if got := min(fine.serve(ids)*FineBlockSize, len(c.tokens)); got != want {
					t.Errorf("%s, blocks of %d: row %d shares %d tokens, want %d", identity, size, i, got, want)
				}
			}
			if size < mooncake.BlockSize {
				hits(t, rows, mooncake.BlockSize) // the ids of both sizes agree
			}
		}
	}
}

// TestFineTokensOfAnotherLength: ids for a different number of tokens than was counted become blocks of the trace; those of blocks from
// which no trace can be made are dropped, and counted.
func TestFineTokensOfAnotherLength(t *testing.T) {
	for _, c := range []struct {
		why     string
		ids     int
		size    uint32
		dropped int64
		blocks  int
	}{
		{"too few ids", 40, 16, 0, 2},
		{"too many ids", 99, 16, 0, 2},
		{"blocks that do not divide those of the trace", 30, 24, 1, 0},
		{"blocks finer than those of ranges", 90, 8, 1, 0},
	} {
		prompt := journal.Prompt{Identity: journal.Tokens, Domain: 9, Key: 8, BlockSize: c.size}
		for i := range c.ids {
			prompt.HashIDs = append(prompt.HashIDs, uint64(i+1))
		}
		m, res := compileBytes(t, Options{}, journalOf(call(1, 1, 0, 0, tokens(700, 1), func(r *journal.Inference) { r.Prompt = prompt })))
		equal(t, c.why, c.dropped, dropped(res.Traces[0].Meta.Dropped, lostBlockSize))
		equal(t, c.why, c.blocks, len(m.rows(t, production)[0].HashIDs))
	}
}
