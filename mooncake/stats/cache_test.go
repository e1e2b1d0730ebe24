// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package stats

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/moonloop/moonloop/mooncake"
)

func simulate(rows []*mooncake.Row, opt CacheOptions) []CacheStats {
	s := NewCacheSim(opt)
	for _, row := range rows {
		s.Add(row)
	}
	return s.Stats()
}

func TestGoldenCaches(t *testing.T) {
	type want struct {
		capacity             int
		blocks               int64
		blockRate, tokenRate float64
		tokens               int64
		rootFirst            int64
	}
	for name, test := range map[string]struct {
		lines int
		want  []want
	}{
		"conversation": {0, []want{
			{1000, 12847, .044530, .045413, 6575459, 12831},
			{3000, 18850, .065338, .066611, 9644880, 18761},
			{5859, 39258, .136076, .138730, 20087299, 39101},
			{10000, 61046, .211598, .215748, 31238981, 60921},
			{30000, 93978, .325747, .332153, 48093740, 93967},
			{50000, 102290, .354558, .361530, 52347371, 102290},
			{100000, 104924, .363688, .370844, 53695979, 104924},
			{0, 105710, .366412, .373624, 54098411, 105710},
		}},
		"head 1000": {1000, []want{
			{100, 999, .036587, .037245, 511488, 962},
			{1000, 1038, .038015, .038699, 531456, 1038},
			{2000, 1151, .042153, .042865, 588660, 1145},
			{3000, 1640, .060062, .061075, 838744, 1632},
			{5000, 2630, .096319, .097928, 1344838, 2462},
			{5859, 3418, .125179, .127296, 1748148, 3411},
			{10000, 4723, .172972, .175924, 2415960, 4723},
			{15000, 5464, .200110, .203551, 2795352, 5464},
			{20000, 5791, .212086, .215742, 2962776, 5791},
			{0, 5791, .212086, .215742, 2962776, 5791},
		}},
	} {
		t.Run(name, func(t *testing.T) {
			rows := publicRows(t, test.lines)
			var capacities []int
			for _, w := range test.want {
				capacities = append(capacities, w.capacity)
			}
			leaf := simulate(rows, CacheOptions{Capacities: capacities})
			root := simulate(rows, CacheOptions{Capacities: capacities, Eviction: RootFirst})
			for i, w := range test.want {
				got := leaf[i]
				if got.Capacity != w.capacity || got.HitBlocks != w.blocks || got.HitTokens != w.tokens ||
					math.Abs(got.BlockRate-w.blockRate) > 5.01e-7 || math.Abs(got.TokenRate-w.tokenRate) > 5.01e-7 {
					t.Errorf("leaf-first: got %+v\nwant %+v", got, w)
				}
				if root[i].HitBlocks != w.rootFirst {
					t.Errorf("root-first, capacity %d: %d hit blocks, want %d", w.capacity, root[i].HitBlocks, w.rootFirst)
				}
			}
		})
	}
}

func TestToyCaches(t *testing.T) {
	for _, test := range []struct {
		eviction       Eviction
		blocks, tokens int64
		residents      [][]uint64 // after each row, oldest first
	}{
		{LeafFirst, 2, 1024, [][]uint64{{9, 7}, {3, 7}, {9, 7}, {7, 8}}},
		{RootFirst, 1, 512, [][]uint64{{7, 9}, {3, 4}, {7, 9}, {9, 8}}},
	} {
		// The larger cache next to it must not disturb the one of two blocks.
		s := NewCacheSim(CacheOptions{Capacities: []int{2, 3}, Eviction: test.eviction})
		named := make(map[uint64]uint64) // the last id of each block
		for i, row := range toyRows() {
			s.Add(row)
			for at, block := range s.prefixes.nodes {
				named[block] = row.HashIDs[at]
			}
			got := residents(s.lru, 2)
			for at, block := range got {
				got[at] = named[block]
			}
			if diff := cmp.Diff(test.residents[i], got); diff != "" {
				t.Errorf("%s: residents after row %d (-want +got):\n%s", test.eviction, i, diff)
			}
		}
		got := s.Stats()
		if got[0].HitBlocks != test.blocks || got[0].HitTokens != test.tokens {
			t.Errorf("%s: %d blocks, %d tokens, want %d, %d", test.eviction, got[0].HitBlocks, got[0].HitTokens, test.blocks, test.tokens)
		}
		if infinite := got[2]; infinite.HitBlocks != 3 || infinite.HitTokens != 1512 || infinite.FullyHit != 1 || infinite.NotHit != 2 {
			t.Errorf("infinite cache: %+v", infinite)
		}
	}
}

// blocksOf numbers the blocks of each row: two blocks are the same if all ids up to theirs, and the model, are equal.
func blocksOf(rows []*mooncake.Row) (all [][]int) {
	numbers := make(map[string]int)
	for _, row := range rows {
		var blocks []int
		for i := range row.HashIDs {
			name := fmt.Sprint(row.Model, row.HashIDs[:i+1])
			if _, known := numbers[name]; !known {
				numbers[name] = len(numbers)
			}
			blocks = append(blocks, numbers[name])
		}
		all = append(all, blocks)
	}
	return all
}

// slowLRU counts the hits of a cache of one capacity straight from the definition.
func slowLRU(rows [][]int, capacity int, order Eviction) (hitBlocks int64) {
	var resident []int // oldest first
	for _, blocks := range rows {
		blocks = slices.Clone(blocks)
		for _, block := range blocks {
			if !slices.Contains(resident, block) {
				break
			}
			hitBlocks++
		}
		if order == LeafFirst {
			slices.Reverse(blocks)
		}
		for _, block := range blocks {
			resident = append(slices.DeleteFunc(resident, func(x int) bool { return x == block }), block)
		}
		resident = resident[max(0, len(resident)-capacity):]
	}
	return hitBlocks
}

func TestCachesAgreeWithTheirDefinition(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 30 {
		// Ids without any structure, repeated ones included: the simulation must not depend on a valid trace.
		var rows []*mooncake.Row
		for range 200 {
			ids := make([]uint64, rng.IntN(12))
			for i := range ids {
				ids[i] = rng.Uint64N(3)
			}
			model := [...]string{"", "a"}[rng.IntN(2)]
			rows = append(rows, &mooncake.Row{InputLength: mooncake.Some(int64(max(1, 512*len(ids)))), HashIDs: ids, Model: model})
		}
		blocks := blocksOf(rows)
		capacities := []int{1, 2, 5, 10, 20, 39, 40, 100}
		for _, order := range []Eviction{LeafFirst, RootFirst} {
			for _, got := range simulate(rows, CacheOptions{Capacities: capacities, Eviction: order}) {
				if got.Capacity == 0 {
					got.Capacity = 10000
				}
				if want := slowLRU(blocks, got.Capacity, order); got.HitBlocks != want {
					t.Fatalf("%s, capacity %d: %d hit blocks, want %d", order, got.Capacity, got.HitBlocks, want)
				}
			}
		}
	}
}

func TestPredictor(t *testing.T) {
	// The toy trace is not canonical, its renumbered form is; both must have the same prediction.
	want := []Prediction{{0, 0}, {512, 512}, {512, 1000}, {0, 0}}
	for _, canonical := range []bool{false, true} {
		p, names := NewPredictor(PredictorOptions{}), new(mooncake.Renumber)
		for i, row := range toyRows() {
			if canonical {
				names.Row(row)
			}
			if got, ok := p.Predict(row); got != want[i] || !ok {
				t.Errorf("row %d: %+v, %t, want %+v", i, got, ok, want[i])
			}
		}
		if hashes := p.prefixes.rest != nil; hashes == canonical {
			t.Errorf("canonical %t: hashes %t", canonical, hashes)
		}
	}
}

func TestPredictorBeyondItsBound(t *testing.T) {
	rows := toyRows() // distinct ids: 7 9 3 4 8
	p := NewPredictor(PredictorOptions{MaxIDs: 2})
	type answer struct {
		Tokens Prediction
		OK     bool
	}
	var got []answer
	for _, row := range append(rows, rows[2], rows[1]) {
		tokens, ok := p.Predict(row)
		got = append(got, answer{tokens, ok})
	}
	// 7 and 9 are remembered. 3 and 4 of the second row are not, so a row that ends in remembered ids is still exact, and one that reaches
	// an unknown id is not.
	none, third := Prediction{}, Prediction{512, 1000}
	want := []answer{{none, true}, {Prediction{512, 512}, true}, {third, true}, {none, false}, {third, true}, {none, false}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if p.Unknown() != 2 {
		t.Errorf("%d rows without a prediction, want 2", p.Unknown())
	}
	if _, ok := p.Predict(&mooncake.Row{TextInput: mooncake.Some("hi")}); ok {
		t.Error("a text row has a prediction")
	}
}

func TestPredictorOnThePublicTrace(t *testing.T) {
	const rows = 12031
	p := NewPredictor(PredictorOptions{MaxIDs: rows/hashCost + 1}) // canonical ids: a run for each row at most
	var whole, finest int64
	for _, row := range publicRows(t, 0) {
		tokens, ok := p.Predict(row)
		if !ok {
			t.Fatal("no prediction")
		}
		whole += tokens.Whole
		finest += tokens.Finest
	}
	if whole != 54063104 || finest != 54098411 {
		t.Errorf("%d tokens predicted, %d at most, want 54063104 and 54098411", whole, finest)
	}
	infinite := simulate(publicRows(t, 0), CacheOptions{})[0]
	if infinite.FullHitTokens != whole || infinite.HitTokens != finest {
		t.Errorf("the simulation has %d and %d", infinite.FullHitTokens, infinite.HitTokens)
	}
	if p.prefixes.rest != nil || len(p.prefixes.runs) > rows {
		t.Errorf("%d hashes and %d runs are remembered of %d rows", len(p.prefixes.rest), len(p.prefixes.runs), rows)
	}
}

// TestChains: a block hits only after the blocks that it followed when it was cached; the ids need not follow any rule.
func TestChains(t *testing.T) {
	type tokens = []Prediction
	row := func(length int64, ids ...uint64) *mooncake.Row {
		return &mooncake.Row{InputLength: mooncake.Some(length), HashIDs: ids}
	}
	of := func(model string, r *mooncake.Row) *mooncake.Row { r.Model = model; return r }
	for _, test := range []struct {
		name string
		rows []*mooncake.Row
		want tokens
	}{
		{"an id with two parents", []*mooncake.Row{row(2048, 0, 1, 2, 3), row(2048, 0, 2, 1, 4), row(2048, 0, 2, 1, 5)}, tokens{{}, {512, 512}, {1536, 1536}}},
		{"an id with two parents, in no canonical order", []*mooncake.Row{row(2048, 9, 1, 2, 3), row(2048, 9, 2, 1, 4), row(2048, 9, 2, 1, 5)}, tokens{{}, {512, 512}, {1536, 1536}}},
		{"ids that begin one row, and follow another id in another row", []*mooncake.Row{row(1024, 0, 1), row(1024, 1, 0), row(1024, 1, 0)}, tokens{{}, {}, {1024, 1024}}},
		{"an id twice in a row", []*mooncake.Row{row(1536, 0, 0, 0), row(1024, 0, 0), row(1024, 0, 1)}, tokens{{}, {1024, 1024}, {512, 512}}},
		{"new ids below another parent", []*mooncake.Row{row(1024, 0, 1), row(1024, 0, 2), row(1024, 1, 2), row(1024, 0, 2)}, tokens{{}, {512, 512}, {}, {1024, 1024}}},
		{"a partial block", []*mooncake.Row{row(700, 0, 1), row(700, 0, 1), row(600, 0, 1)}, tokens{{}, {512, 700}, {512, 600}}},
		{"a partial block that is longer elsewhere", []*mooncake.Row{row(700, 0, 1), row(1024, 0, 1), row(1024, 0, 1), row(700, 0, 1)}, tokens{{}, {512, 700}, {1024, 1024}, {512, 700}}},
		{"a partial block that is longer elsewhere, in no canonical order", []*mooncake.Row{row(700, 5, 8), row(1024, 5, 8), row(1024, 5, 8), row(1536, 5, 8, 9)}, tokens{{}, {512, 700}, {1024, 1024}, {1024, 1024}}},
		{"a prompt shorter than a block", []*mooncake.Row{row(100, 0), row(100, 0)}, tokens{{}, {0, 100}}},
		{"ids past the length", []*mooncake.Row{row(512, 0, 1), row(1024, 0, 1)}, tokens{{}, {512, 512}}},
		{"another model", []*mooncake.Row{of("a", row(1024, 0, 1)), of("b", row(1024, 0, 1)), of("b", row(1024, 0, 1)), of("a", row(1024, 0, 1))}, tokens{{}, {}, {1024, 1024}, {1024, 1024}}},
	} {
		p, sim := NewPredictor(PredictorOptions{}), NewCacheSim(CacheOptions{Capacities: []int{1000}})
		var got tokens
		var whole int64
		for _, r := range test.rows {
			n, ok := p.Predict(r)
			if !ok {
				t.Errorf("%s: no prediction", test.name)
			}
			got = append(got, n)
			whole += n.Whole
			sim.Add(r)
		}
		if diff := cmp.Diff(test.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", test.name, diff)
		}
		for _, cache := range sim.Stats() {
			if cache.FullHitTokens != whole {
				t.Errorf("%s: the cache of %d blocks hits %d tokens in full blocks, %d are predicted", test.name, cache.Capacity, cache.FullHitTokens, whole)
			}
		}
	}
}

func BenchmarkCacheSim(b *testing.B) {
	rows := publicRows(b, 0)
	b.ReportAllocs()
	for b.Loop() {
		simulate(rows, CacheOptions{Capacities: []int{1000, 3000, 5859, 10000, 30000, 50000, 100000}})
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(len(rows)), "ns/row")
}

func BenchmarkPredictor(b *testing.B) {
	rows := publicRows(b, 0)
	p := NewPredictor(PredictorOptions{})
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		p.Predict(rows[i%len(rows)])
	}
}

// TestObservedCache: rows with both reported and predicted cached tokens are summed, with the infinite cache's own figures.
func TestObservedCache(t *testing.T) {
	sim := NewCacheSim(CacheOptions{BlockSize: 10})
	row := func(n int64, cached mooncake.Opt[int64], ids ...uint64) {
		sim.Add(&mooncake.Row{InputLength: mooncake.Some(n), HashIDs: ids, Observed: mooncake.Observed{CachedTokens: cached}})
	}
	row(30, mooncake.Some[int64](0), 0, 1, 2)  // predicted 0
	row(30, mooncake.Opt[int64]{}, 0, 1, 3)    // reports nothing
	row(30, mooncake.Some[int64](29), 0, 1, 4) // predicted 20: not a whole block more
	row(30, mooncake.Some[int64](30), 0, 1, 5) // predicted 20: a whole block more
	row(30, mooncake.Some[int64](9), 0, 1, 6)  // predicted 20: a whole block less
	row(30, mooncake.Some[int64](10))          // predicted 0: of an unknown prompt, which says nothing about the capture
	want := mooncake.ObservedCache{Rows: 5, InputTokens: 150, Cached: 78, Predicted: 60, Above: 2, Below: 1, OutsideRows: 1, OutsideTokens: 10}
	if d := cmp.Diff(want, sim.Observed()); d != "" {
		t.Error(d)
	}
	if got, want := want.String(), "the engine had cached 52.0 % of the prompt tokens of 5 requests; this trace predicts 40.0 %; "+
		"10 tokens of 1 request were cached from outside the capture"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if got := (mooncake.ObservedCache{}).String(); got != "" {
		t.Errorf("of no rows: %q", got)
	}
}

// residents returns the ids of a cache of the given capacity, oldest first.
func residents(r *recency, capacity int) []uint64 {
	var out []uint64
	for at := r.oldest; at < r.next; at++ {
		if r.used[at] {
			out = append(out, r.ids[at])
		}
	}
	return out[max(0, len(out)-capacity):]
}
