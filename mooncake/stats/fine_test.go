// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package stats

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/moonloop/moonloop/mooncake"
	"github.com/moonloop/moonloop/mooncake/internal/ranges"
)

// common returns how many leading elements two lists share.
func common(a, b []int) int {
	n := 0
	for n < min(len(a), len(b)) && a[n] == b[n] {
		n++
	}
	return n
}

// The prediction equals a comparison of every prompt with all prompts before it, token by token, at the granularity of the ids. The replies
// to rows that a prompt continues are cached except for their last token. Hits are whole blocks of the engine's size, and never include the
// last token of the prompt.
func TestPredictorOfRangesIsThatOfTokens(t *testing.T) {
	const block, fine = 24, 4
	for seed := range uint64(60) {
		rng := rand.New(rand.NewPCG(seed, 2))
		rows := conversations(rng, 60, block, fine)
		scrambled := map[uint64]uint64{} // other names for the ids, without an order
		engine := []int{0, 1, 4, 6, 16, 512}[seed%6]
		carry := NewPredictor(PredictorOptions{BlockSize: block, FineBlockSize: fine, EngineBlock: engine})
		plain := NewPredictor(PredictorOptions{BlockSize: block, FineBlockSize: fine, EngineBlock: engine, NoReplies: true})
		var gained int64
		for i := range rows {
			r := rows[i]
			prompt := r.tokens[:r.InputLength.V]
			var prompts, all int
			for k := range rows[:i] {
				before := rows[k]
				if before.Model != r.Model {
					continue
				}
				n := common(prompt, before.tokens[:before.InputLength.V])
				if n < len(prompt) && n < int(before.InputLength.V) || n%fine != 0 && len(prompt) != int(before.InputLength.V) {
					n = n / fine * fine // the block that differs has another id
				}
				prompts = max(prompts, n)
			}
			all = prompts
			for _, reply := range r.Replies {
				before := rows[i-int(reply.Back)]
				if !slices.Equal(r.tokens[:reply.At+reply.Tokens], before.tokens) {
					t.Fatalf("seed %d, row %d: the test's reply is invalid", seed, i)
				}
				all = max(all, int(reply.At+reply.Tokens)-1)
			}
			size := int64(fine)
			if engine > 0 {
				size = int64(engine)
			}
			if seed%3 == 2 {
				var ids []uint64
				for _, id := range expand(r.HashRanges) {
					part := id // each by itself, or some together
					if seed%2 == 0 {
						part /= 7
					}
					if _, known := scrambled[part]; !known {
						scrambled[part] = rng.Uint64N(1<<40) << 8
					}
					ids = append(ids, scrambled[part]+id-part)
				}
				r.HashRanges = collapse(ids)
			}
			got, ok := carry.Predict(&r.Row)
			want := Prediction{Whole: min(int64(all), int64(len(prompt)-1)) / size * size, Finest: int64(all)}
			if !ok || got != want {
				t.Fatalf("seed %d, row %d of %d: %+v with replies, want %+v", seed, i, len(prompt), got, want)
			}
			gained += want.Finest - int64(prompts)
			got, ok = plain.Predict(&r.Row)
			want = Prediction{Whole: min(int64(prompts), int64(len(prompt)-1)) / size * size, Finest: int64(prompts)}
			if !ok || got != want {
				t.Fatalf("seed %d, row %d of %d: %+v, want %+v", seed, i, len(prompt), got, want)
			}
		}
		if gained == 0 {
			t.Errorf("seed %d: no reply counts", seed)
		}
	}
}

// The cost of an arbitrary trace is bounded by its size, and no prediction exceeds the prompt.
func TestPredictorOfHostileRanges(t *testing.T) {
	for seed := range uint64(40) {
		rng := rand.New(rand.NewPCG(seed, 3))
		p := NewPredictor(PredictorOptions{FineBlockSize: 16, EngineBlock: int(seed % 3 * 16), MaxIDs: 64})
		for row := range 400 {
			r := mooncake.Row{InputLength: mooncake.Some(1 + rng.Int64N(1<<(1+rng.IntN(40)))), HashIDs: []uint64{}}
			left := r.InputLength.V
			for range rng.IntN(5) {
				if left > 0 {
					h := mooncake.HashRange{First: rng.Uint64N(1 << (4 + rng.IntN(40))), Count: 1 + rng.Int64N(left)}
					r.HashRanges = append(r.HashRanges, h)
					left -= h.Count
				}
			}
			for at := int64(1); row > 0 && rng.IntN(3) > 0 && at+2 < r.InputLength.V; {
				reply := mooncake.Reply{Back: 1 + rng.Int64N(int64(row)), At: at, Tokens: 1 + rng.Int64N(r.InputLength.V-at-1)}
				r.Replies = append(r.Replies, reply)
				at += reply.Tokens
			}
			n, ok := p.Predict(&r)
			if ok && (n.Whole < 0 || n.Whole > n.Finest || n.Finest > r.InputLength.V || r.HashRanges != nil && n.Whole >= r.InputLength.V) {
				t.Fatalf("seed %d, row %d: %+v of %+v", seed, row, n, r)
			}
		}
		l := p.fine.lineage
		if l.Size()+len(p.fine.ends) > 64*hashCost {
			t.Errorf("seed %d: %d units and %d ends are remembered, beyond the bound", seed, l.Size(), len(p.fine.ends))
		}
		if p.Unknown() == 0 {
			t.Errorf("seed %d: nothing is unknown beyond the bound", seed)
		}
	}
}

// A skipped row counts as a row, because replies refer to rows by their distance. Otherwise the replies would be those of another row.
func TestPredictorSkips(t *testing.T) {
	row := func(first uint64, length int64, replies ...mooncake.Reply) *mooncake.Row {
		return &mooncake.Row{InputLength: mooncake.Some(length), HashIDs: []uint64{first}, HashRanges: []mooncake.HashRange{{First: first, Count: (length + 15) / 16}}, Replies: replies}
	}
	for _, skip := range []func(*Predictor){
		(*Predictor).Skip,
		func(p *Predictor) { p.Predict(&mooncake.Row{TextInput: mooncake.Some("x")}) },
		func(p *Predictor) { p.Predict(&mooncake.Row{InputLength: mooncake.Some[int64](9)}) },
	} {
		p := NewPredictor(PredictorOptions{FineBlockSize: 16})
		skip(p)
		p.Predict(row(0, 100))
		skip(p)
		next := row(50, 200, mooncake.Reply{Back: 2, At: 100, Tokens: 50})
		next.HashRanges = []mooncake.HashRange{{First: 0, Count: 6}, {First: 50, Count: 7}}
		if n, ok := p.Predict(next); !ok || n != (Prediction{Whole: 144, Finest: 149}) {
			t.Errorf("%+v, %t", n, ok)
		}
		// The same reply after other tokens, after a prompt of another length, of a row with other tokens, and of a row without ranges.
		for _, other := range []mooncake.Reply{{Back: 3, At: 99, Tokens: 50}, {Back: 3, At: 101, Tokens: 50}, {Back: 1, At: 200, Tokens: 5}, {Back: 2, At: 100, Tokens: 50}, {Back: 4, At: 100, Tokens: 50}} {
			r := row(900, 300, other)
			p := NewPredictor(PredictorOptions{FineBlockSize: 16})
			skip(p)
			p.Predict(row(0, 100))
			skip(p)
			p.Predict(row(70, 200))
			r.HashRanges = []mooncake.HashRange{{First: 0, Count: 6}, {First: 90, Count: 13}}
			if n, ok := p.Predict(r); !ok || n.Finest != 96 {
				t.Errorf("%+v: %+v, %t", other, n, ok)
			}
		}
	}
}

// The cached tokens of an engine with larger blocks are compared at its blocks, whose size follows from its counts, in any order of rows.
func TestObservedCacheInTheEnginesSteps(t *testing.T) {
	for _, engine := range []int64{16, 32, 128, 512} {
		rng := rand.New(rand.NewPCG(uint64(engine), 7))
		rows := conversations(rng, 80, 512, 16)
		exact := NewPredictor(PredictorOptions{FineBlockSize: 16, EngineBlock: int(engine)})
		finest := NewPredictor(PredictorOptions{FineBlockSize: 16})
		sim := NewCacheSim(CacheOptions{FineBlockSize: 16})
		var cached, fine int64
		for i := range rows {
			n, _ := exact.Predict(&rows[i].Row)
			rows[i].Observed.CachedTokens = mooncake.Some(n.Whole)
			cached += n.Whole
			n, _ = finest.Predict(&rows[i].Row)
			fine += n.Whole
			sim.Add(&rows[i].Row)
		}
		got := sim.Observed()
		if got.Cached != cached || got.Predicted != cached || got.Step%engine != 0 || got.Ranged != 80 || got.Warning(512) != "" {
			t.Errorf("blocks of %d: %+v, want %d predicted; warning %q", engine, got, cached, got.Warning(512))
		}
		if engine == 512 && fine-cached < got.InputTokens/50 {
			t.Errorf("steps of 16 and 512 differ by %d tokens: the test shows nothing", fine-cached)
		}
	}
}

// If the engine's blocks are known and differ from the trace's, rows without ranges are predicted with them, too; if they are the same, as
// usual.
func TestPredictorAtTheEnginesBlock(t *testing.T) {
	for _, tc := range []struct{ engine, length, whole int64 }{
		{0, 700, 512}, {0, 1024, 1024}, {512, 700, 512}, {512, 1024, 1024}, {16, 700, 688}, {16, 1024, 1008}, {1, 700, 699}, {1024, 700, 0}, {1024, 1025, 1024},
	} {
		p := NewPredictor(PredictorOptions{EngineBlock: int(tc.engine)})
		row := mooncake.Row{InputLength: mooncake.Some(tc.length), HashIDs: []uint64{0, 1, 2}[:mooncake.BlockCount(tc.length, mooncake.BlockSize)]}
		p.Predict(&row)
		if n, ok := p.Predict(&row); !ok || n != (Prediction{Whole: tc.whole, Finest: tc.length}) {
			t.Errorf("%+v: %+v", tc, n)
		}
	}
}

// For any rows, whatever their ids mean, a lineage of ranges finds the same shared prefixes as a set of the prefixes of single ids.
func TestLineageIsThatOfSinglePrefixes(t *testing.T) {
	const fine = 8
	for seed := range uint64(400) {
		rng := rand.New(rand.NewPCG(seed, 8))
		l, single := ranges.NewLineage(fine, 1<<20, "", 0), newPrefixes(fine, 1<<20)
		var before []mooncake.HashRange
		for n := range 60 {
			var row []mooncake.HashRange
			if seed%2 == 0 && before != nil { // continues from within the row before
				for _, h := range before[:1+rng.IntN(len(before))] {
					row = append(row, mooncake.HashRange{First: h.First, Count: 1 + rng.Int64N(h.Count)})
				}
			}
			for range 1 + rng.IntN(3) {
				h := mooncake.HashRange{First: rng.Uint64N(40), Count: 1 + rng.Int64N(6)}
				if rng.IntN(2) == 0 {
					h.First = l.Next() // a new canonical one
				}
				row = append(row, h)
			}
			before = row
			ids := expand(row)
			r := mooncake.Row{
				InputLength: mooncake.Some(int64(len(ids)-1)*fine + 1 + rng.Int64N(fine+int64(rng.IntN(2)*fine))), HashIDs: ids,
				Model: []string{"a", "b"}[rng.IntN(4)/3],
			}
			want, got := single.add(&r), ranges.Add(l, r.Model, r.InputLength.V, row)
			if got.Tokens != want.tokens || !got.Known {
				t.Fatalf("seed %d, row %d, %v of %d tokens: %d are shared, want %d", seed, n, row, r.InputLength.V, got.Tokens, want.tokens)
			}
			at := 0
			for i := range ids {
				var ok bool
				if _, _, at, ok = l.Block(int64(i), at); !ok {
					t.Fatalf("seed %d, row %d: block %d of %d has no node", seed, n, i, len(ids))
				}
			}
		}
	}
}

// TestManyReplies: the time for a prediction depends on the sum of the replies and ranges of a row, not on their product.
func TestManyReplies(t *testing.T) {
	const n = 10000
	p := NewPredictor(PredictorOptions{BlockSize: 1 << 14, FineBlockSize: 1})
	row := func(length int64, ranges ...mooncake.HashRange) *mooncake.Row {
		return &mooncake.Row{InputLength: mooncake.Some(length), OutputLength: mooncake.Some[int64](1), HashIDs: []uint64{0}, HashRanges: ranges}
	}
	for i := range int64(n) {
		p.Predict(row(i+1, mooncake.HashRange{First: 0, Count: i + 1}))
	}
	took := func(replies bool, enough time.Duration) time.Duration {
		least := time.Duration(math.MaxInt64)
		for i := 0; i < 3 || i < 20 && least > enough; i++ { // a busy machine takes longer, from time to time
			// Each id is a range of its own.
			last := row(n + 1)
			for i := range uint64(n + 1) {
				last.HashRanges = append(last.HashRanges, mooncake.HashRange{First: i, Count: 1})
			}
			for at := int64(1); replies && at < n; at++ {
				last.Replies = append(last.Replies, mooncake.Reply{Back: p.fine.rows - at + 1, At: at, Tokens: 1})
			}
			begin := time.Now()
			p.Predict(last)
			least = min(least, time.Since(begin))
		}
		return least
	}
	without := took(false, math.MaxInt64)
	with := took(true, 20*without)
	t.Logf("a row with %d ranges takes %v, with as many replies %v", n, without, with)
	if with > 20*without {
		t.Errorf("replies make a prediction %d times as slow", with/without)
	}
}
