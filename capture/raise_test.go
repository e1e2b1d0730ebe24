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

// served is a request of a synthetic application: its prompt and reply in tokens, as the engine had them, and what the engine had cached.
type served struct {
	prompt, reply []uint32
	cached        int
}

// productionOf makes the records of conversations in which every token is known. The engine sees each prompt as the template renders it,
// and reports, in whole blocks, how much of it was cached.
func productionOf(t *testing.T, h *blockhash.Hasher, chats []chat, block int, template func([][2]string) [][2]string) ([]journal.Record, []served) {
	t.Helper()
	var records []journal.Record
	var truth []served
	var cache tokenCache
	for i, c := range chats {
		// The reply is in the next request of the conversation, or never seen again.
		reply := "nothing more of " + string(rune('a'+i%26))
		for _, later := range chats[i+1:] {
			if n := len(c.messages); len(later.messages) > n && slices.Equal(later.messages[:n], c.messages) {
				reply = later.messages[n][1]
				break
			}
		}
		var prompt []uint32
		for _, m := range template(c.messages) {
			prompt = tokenize(prompt, m[0], m[1])
		}
		header := tokenize(nil, "assistant", "")
		said := tokenize(nil, "assistant", reply)
		one := served{prompt: append(prompt, header[:len(header)-1]...), reply: said[len(header)-1:]}
		one.cached = cache.serve(one.prompt, one.reply) / block * block
		truth = append(truth, one)
		h.Reset()
		for _, m := range c.messages {
			h.Role(m[0])
			h.Text(m[1])
		}
		chain := h.Chain()
		chain.Cells, chain.Ends = slices.Clone(chain.Cells), slices.Clone(chain.Ends)
		h.Role("assistant")
		h.Text(reply)
		end, _ := h.End()
		records = append(records, call(uint64(i+1), 1, 0, int64(i), tokens(int64(len(one.prompt)), int64(len(one.reply))), cached(int64(one.cached)),
			func(r *journal.Inference) {
				r.Prompt = journal.Prompt{Identity: journal.Text, Domain: 9, Key: 8, Chain: chain, Reply: end}
			}))
	}
	return records, truth
}

// asRecorded is a template that keeps the order of messages.
func asRecorded(messages [][2]string) [][2]string { return messages }

// hits returns, for each row, how many of its tokens an infinite cache with a granularity of one token has, replies included, by the rows'
// own ids. It checks that hash ids are shared exactly where the fine ids at their ends are, and that an id always follows the same id.
func hits(t *testing.T, rows []*mooncake.Row, size int) (hits []int) {
	t.Helper()
	const none = math.MaxUint64
	before, ends, coarse := map[uint64]uint64{}, map[uint64]uint64{}, map[uint64]uint64{}
	for i, row := range rows {
		ids := fineIDs(row)
		if len(ids) != mooncake.BlockCount(row.InputLength.V, FineBlockSize) || len(row.HashIDs) != mooncake.BlockCount(row.InputLength.V, size) {
			t.Fatalf("row %d of %d tokens: %d fine ids, %d hash ids", i, row.InputLength.V, len(ids), len(row.HashIDs))
		}
		n, last := 0, uint64(none)
		for j, id := range ids {
			known, seen := before[id]
			if seen && known != last {
				t.Fatalf("row %d, fine block %d: id %d follows %d, and before it followed %d", i, j, id, last, known)
			}
			if seen && n == j {
				n++
			}
			before[id], last = last, id
		}
		hit := min(n*FineBlockSize, int(row.InputLength.V))
		for _, one := range row.Replies {
			hit = max(hit, int(one.At+one.Tokens)-1)
		}
		hits = append(hits, hit)
		for j, id := range row.HashIDs {
			end := ids[min((j+1)*size/FineBlockSize, len(ids))-1]
			if known, ok := ends[id]; ok && known != end {
				t.Fatalf("row %d, block %d: hash id %d ends with the fine blocks %d and %d", i, j, id, known, end)
			}
			if known, ok := coarse[end]; ok && known != id {
				t.Fatalf("row %d, block %d: the hash ids %d and %d both end with the fine block %d", i, j, known, id, end)
			}
			ends[id], coarse[end] = end, id
		}
	}
	return hits
}

// TestRaised: the cached tokens of production's engine raise what rows share, by at most a cell or a message, and lower nothing.
func TestRaised(t *testing.T) {
	otherInput(t)
	h := newHasher(t, blockhash.TextDomain)
	for seed := uint64(1); seed < 3; seed++ {
		for _, block := range []int{16, 32} {
			records, truth := productionOf(t, h, conversations(seed+1, 30), block, asRecorded)
			var silent, told rowsOnly
			for _, r := range records {
				r.(*journal.Inference).CachedTokens.Set = false
			}
			if _, err := Compile(t.Context(), Options{TempDir: t.TempDir()}, silent.sink, buffer("test", journalOf(records...))); err != nil {
				t.Fatal(err)
			}
			for _, r := range records {
				r.(*journal.Inference).CachedTokens.Set = true
			}
			if _, err := Compile(t.Context(), Options{TempDir: t.TempDir()}, told.sink, buffer("test", journalOf(records...))); err != nil {
				t.Fatal(err)
			}
			before, after := hits(t, silent.rows, mooncake.BlockSize), hits(t, told.rows, mooncake.BlockSize)
			signed, off, offBefore, prompt, had, got, raised := 0, 0, 0, 0, 0, 0, 0
			for i, r := range truth {
				switch {
				case after[i] < before[i]:
					t.Errorf("seed %d, row %d: %d tokens shared with the engine's count, %d without", seed+1, i, after[i], before[i])
				case after[i] > before[i]:
					raised++
					if after[i] > r.cached {
						t.Errorf("seed %d, row %d: raised from %d to %d tokens, and the engine had %d", seed+1, i, before[i], after[i], r.cached)
					}
				}
				// In blocks of the engine, like its count.
				now := after[i] / block * block
				signed += now - r.cached
				off += max(now-r.cached, r.cached-now)
				offBefore += max(before[i]/block*block-r.cached, r.cached-before[i]/block*block)
				prompt, had, got = prompt+len(r.prompt), had+r.cached, got+now
			}
			n := float64(len(truth))
			t.Logf("seed %d, blocks of %d: cached %.2f %%, by the trace %+.2f points; off by %.2f tokens a row, %.2f without the engine's count, mean error %+.2f; %d of %d rows raised",
				seed+1, block, 100*float64(had)/float64(prompt), 100*float64(got-had)/float64(prompt), float64(off)/n, float64(offBefore)/n, float64(signed)/n, raised, len(truth))
			if off >= offBefore || math.Abs(float64(signed)/n) > 4 || math.Abs(float64(got-had)/float64(prompt)) > 0.005 {
				t.Errorf("seed %d, blocks of %d: want the rows closer to the engine's count than those compiled without the count, within 4 tokens on average, and the hit rate within 0.5 points", seed+1, block)
			}
			if raised == 0 {
				t.Error("no row was raised")
			}
		}
	}
}

// TestRaisedChain raises rows along raised rows: a row that shares the text of a raised row has its blocks, whichever row owns them.
func TestRaisedChain(t *testing.T) {
	l := newLedger(64, 16, t.TempDir(), 1<<20)
	defer l.close()
	var ids numbers
	var rows []*mooncake.Row
	place := func(cached, limit, last int64, parts ...portion) {
		number := int64(len(rows))
		row := &mooncake.Row{InputLength: opt[int64](160), Observed: mooncake.Observed{CachedTokens: opt(cached)}}
		l.assign(row, &sharing{kind: byText, number: number, parts: append(parts, portion{number, 10}), limit: limit, last: last}, &ids, number)
		rows = append(rows, row)
	}
	place(96, 0, 0)                                  // 0: shares nothing, whatever the engine had
	place(111, 7, 0, portion{0, 4})                  // 1: 2 blocks more of row 0, by the engine's count
	place(0, 0, 0, portion{0, 4}, portion{1, 8})     // 2: the text of row 1
	place(160, 5, 0, portion{0, 4})                  // 3: no more than the text allows
	place(112, 8, 1, portion{0, 4})                  // 4: within the text of row 1, where its first blocks are those of row 0
	place(0, 0, 0, portion{0, 4}, portion{4, 9})     // 5: the text of row 4
	place(64, 9, 0, portion{0, 5})                   // 6: less than the text shares
	place(160, 10, 9, portion{0, 4}, portion{9, 10}) // 7: along a row that was not written
	own := func(row int, count int64) mooncake.HashRange {
		return mooncake.HashRange{First: fineIDs(rows[row])[10-count], Count: count}
	}
	for i, want := range [][]mooncake.HashRange{
		{{First: 0, Count: 10}},
		{{First: 0, Count: 6}, own(1, 4)},
		{{First: 0, Count: 6}, {First: 10, Count: 2}, own(2, 2)},
		{{First: 0, Count: 5}, own(3, 5)},
		{{First: 0, Count: 6}, {First: 10, Count: 1}, own(4, 3)},
		{{First: 0, Count: 6}, {First: 10, Count: 1}, {First: own(4, 3).First, Count: 2}, own(5, 1)},
		{{First: 0, Count: 5}, own(6, 5)},
		{{First: 0, Count: 4}, own(7, 6)},
	} {
		equal(t, "ranges", want, rows[i].HashRanges)
	}
	hits(t, rows, 64)
}
