// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package stats

import (
	"cmp"
	"maps"
	"math"
	"math/rand/v2"
	"runtime"
	"testing"

	"github.com/moonloop/moonloop/mooncake"
)

// feed gives rows to an estimator. Each block counts in full, or, with byTokens, the last one counts only the tokens that the prompt has in
// it.
func feed(r *Reuse, rows []*mooncake.Row, byTokens bool) {
	for i, row := range rows {
		tokens := float64(len(row.HashIDs) * mooncake.BlockSize)
		if byTokens {
			tokens = float64(row.InputLength.V)
		}
		r.Add(row.HashIDs, mooncake.BlockSize, tokens, int64(i))
	}
}

// publicCurve has the exact block hit rates of the public trace, by cache size in blocks, for caches that evict root-first.
var publicCurve = map[float64]float64{1_000: 0.0445, 5_859: 0.1355, 10_000: 0.2112, 30_000: 0.3257, math.Inf(1): 0.3664}

func TestReuseOfAllBlocksIsExact(t *testing.T) {
	rows := publicRows(t, 0)
	r := NewReuse(ReuseOptions{Rate: 1, MaxBlocks: 1 << 20})
	feed(r, rows, false)
	hits := r.Hits()
	for blocks, want := range publicCurve {
		if got := hits.Rate(blocks * mooncake.BlockSize); math.Abs(got-want) > 0.001 {
			t.Errorf("a cache of %v blocks hits %.4f, want %.4f", blocks, got, want)
		}
	}
	if got, want := r.WorkingSet(), 182_790.0*mooncake.BlockSize; got != want {
		t.Errorf("working set of %.0f tokens, want %.0f", got, want)
	}
	tokens := NewReuse(ReuseOptions{Rate: 1, MaxBlocks: 1 << 20})
	feed(tokens, rows, true)
	byTokens := tokens.Hits()
	if got := byTokens.Rate(math.Inf(1)); math.Abs(got-0.3736) > 0.0002 {
		t.Errorf("an infinite cache hits %.4f of the tokens, want 0.3736", got)
	}
	knee := hits.Knee(0.99)
	if share := hits.Rate(knee) / hits.Rate(math.Inf(1)); share < 0.99 || hits.Rate(knee/1.1)/hits.Rate(math.Inf(1)) >= 0.99 {
		t.Errorf("knee at %.0f tokens, with %.4f of the ceiling", knee, share)
	}
}

// A block that a prompt fills only in part takes the space of a whole one, as in a [CacheSim]: with short prompts, too, all blocks give the
// exact rates.
func TestReuseOfShortPrompts(t *testing.T) {
	const documents, size = 300, 8 * mooncake.BlockSize
	random := rand.New(rand.NewPCG(5, 6))
	var rows []*mooncake.Row
	for range 5000 {
		document := uint64(min(documents*random.ExpFloat64()/3, documents-1))
		row := &mooncake.Row{InputLength: mooncake.Some(int64(size - random.IntN(mooncake.BlockSize)))}
		for i := range uint64(8) {
			row.HashIDs = append(row.HashIDs, 8*document+i)
		}
		rows = append(rows, row)
	}
	r := NewReuse(ReuseOptions{Rate: 1})
	feed(r, rows, true)
	hits := r.Hits()
	sizes := []int{100, 200, 400, 800, 1600}
	for i, c := range simulate(rows, CacheOptions{Capacities: sizes, Eviction: RootFirst})[:len(sizes)] {
		if got := hits.Rate(float64(c.Capacity * mooncake.BlockSize)); math.Abs(got-c.TokenRate) > 0.01 {
			t.Errorf("a cache of %d blocks hits %.4f of the tokens, want %.4f", sizes[i], got, c.TokenRate)
		}
	}
	if got, want := r.WorkingSet(), float64(r.Blocks()*mooncake.BlockSize); got != want {
		t.Errorf("working set of %.0f tokens, want %.0f", got, want)
	}
}

// A tenth of the blocks gives the rates, of blocks and of tokens, whichever tenth it is: within half a point on average and a standard
// deviation of 0.6 for the infinite cache, within one point and 1.6 for finite ones.
func TestReuseOfATenth(t *testing.T) {
	rows := publicRows(t, 0)
	const seeds = 20
	for name, byTokens := range map[string]bool{"blocks": false, "tokens": true} {
		truth := maps.Clone(publicCurve)
		if byTokens {
			for _, c := range simulate(rows, CacheOptions{Capacities: []int{1_000, 5_859, 10_000, 30_000}, Eviction: RootFirst}) {
				truth[cmp.Or(float64(c.Capacity), math.Inf(1))] = c.TokenRate
			}
		}
		got := map[float64][]float64{}
		for seed := range uint64(seeds) {
			r := NewReuse(ReuseOptions{Rate: 0.1, Seed: seed})
			feed(r, rows, byTokens)
			hits := r.Hits()
			for blocks := range truth {
				got[blocks] = append(got[blocks], hits.Rate(blocks*mooncake.BlockSize))
			}
		}
		for blocks, want := range truth {
			bias, most := 0.01, 0.016
			if math.IsInf(blocks, 1) {
				bias, most = 0.005, 0.006
			}
			mean, deviation := moments(got[blocks])
			t.Logf("%8v blocks: %.4f of the %s, mean %.4f, standard deviation %.4f", blocks, want, name, mean, deviation)
			if math.Abs(mean-want) > bias || deviation > most {
				t.Errorf("a cache of %v blocks hits %.4f of the %s: mean %.4f, standard deviation %.4f over %d seeds", blocks, want, name, mean, deviation, seeds)
			}
		}
	}
}

func moments(values []float64) (mean, deviation float64) {
	for _, v := range values {
		mean += v / float64(len(values))
	}
	for _, v := range values {
		deviation += (v - mean) * (v - mean) / float64(len(values)-1)
	}
	return mean, math.Sqrt(deviation)
}

// The sample never exceeds its bound, for any input. Its rate drops instead, and the estimate stays close.
func TestReuseIsBounded(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	exact, small := NewReuse(ReuseOptions{Rate: 1, MaxBlocks: 1 << 20}), NewReuse(ReuseOptions{Rate: 1, MaxBlocks: 4096, Seed: 3})
	for i := range 20_000 {
		tail := random.Uint64()
		if i%2 == 1 { // a tail that occurs again and again
			tail = uint64(random.IntN(5000))
		}
		ids := []uint64{1, 2, tail, tail + 1, tail + 2}
		exact.Add(ids, 16, 80, int64(i))
		small.Add(ids, 16, 80, int64(i))
		if small.Blocks() > 4096 || len(small.order) > 1<<15 {
			t.Fatalf("%d blocks, %d slots after %d prompts", small.Blocks(), len(small.order), i)
		}
	}
	if rate := small.Rate(); rate >= 1 {
		t.Errorf("rate %v, although more blocks came than are kept", rate)
	}
	a, b := exact.Hits(), small.Hits()
	for _, capacity := range []float64{16_000, 64_000, 256_000, math.Inf(1)} {
		if math.Abs(a.Rate(capacity)-b.Rate(capacity)) > 0.03 {
			t.Errorf("%v tokens: %.4f exact, %.4f from a sample of %.4f", capacity, a.Rate(capacity), b.Rate(capacity), small.Rate())
		}
	}
}

func TestReuseForgets(t *testing.T) {
	r := NewReuse(ReuseOptions{Rate: 1})
	r.Add([]uint64{1, 2}, 100, 200, 10)
	r.Add([]uint64{1, 3}, 100, 200, 20)
	r.Forget(20)
	if r.WorkingSet() != 200 || r.Blocks() != 2 {
		t.Errorf("%v tokens in %d blocks, want those of the second prompt", r.WorkingSet(), r.Blocks())
	}
	before := r.Hits()
	r.Add([]uint64{1, 2}, 100, 200, 30) // 2 is forgotten
	after := r.Hits()
	since := after.Since(before)
	if got := since.Rate(math.Inf(1)); got != 0.5 {
		t.Errorf("the last prompt hit %v, want half of it", got)
	}
}

func TestReusePrefixes(t *testing.T) {
	r := NewReuse(ReuseOptions{Rate: 1})
	for i := range uint64(9) {
		r.Add([]uint64{1, 2, 3, 100 + i}, 10, 40, 0) // three blocks, nine times: saves 8 * 30
	}
	for i := range uint64(4) {
		r.Add([]uint64{7, 8, 200 + i}, 10, 30, 0) // saves 3 * 20
	}
	got := r.Prefixes(5)
	want := []Prefix{{3, 30, 9}, {8, 20, 4}}
	if len(got) != 2 || got[0] != want[0] || got[1] != want[1] {
		t.Errorf("%v, want %v", got, want)
	}
}

// Nothing was seen, nothing has a length, or options are out of range: no figures, and no panic.
func TestReuseOfNothing(t *testing.T) {
	r := NewReuse(ReuseOptions{Rate: math.NaN(), MaxBlocks: -1})
	hits := r.Hits()
	if !math.IsNaN(hits.Rate(1)) || hits.Knee(0.99) != 0 || r.WorkingSet() != 0 || len(r.Prefixes(-1)) != 0 {
		t.Error("an estimator that has seen nothing knows figures")
	}
	for _, hostile := range []float64{0, -5, math.NaN(), math.Inf(1), math.Inf(-1)} {
		r.Add([]uint64{1, 2, 1}, 16, hostile, -1)
		r.Add([]uint64{1, 2, 1}, hostile, 16, -1)
	}
	r.Forget(math.MaxInt64)
	if hits := r.Hits(); !math.IsNaN(hits.Rate(1)) {
		t.Error("blocks without tokens have a rate")
	}
}

func BenchmarkReuse(b *testing.B) {
	rows := publicRows(b, 0)
	blocks := 0
	for _, row := range rows {
		blocks += len(row.HashIDs)
	}
	for b.Loop() {
		feed(NewReuse(ReuseOptions{}), rows, true)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*blocks), "ns/block")
}

// TestReuseMemory: a block in the sample uses the memory that the documentation of Reuse states, also while the sample is renewed.
func TestReuseMemory(t *testing.T) {
	const blocks, stated = 1 << 17, 120
	heap := func() int64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	before := heap()
	r := NewReuse(ReuseOptions{Rate: 1, MaxBlocks: blocks})
	most := int64(0)
	for i := range uint64(40) {
		ids := make([]uint64, blocks/20)
		for j := range ids {
			ids[j] = i*blocks + uint64(j) + 1
		}
		r.Add(ids, 16, float64(16*len(ids)), 0)
		most = max(most, heap()-before)
	}
	runtime.KeepAlive(r)
	if per := float64(most) / blocks; per > stated {
		t.Errorf("a block takes %.0f bytes at most, want %d or less", per, stated)
	} else {
		t.Logf("a block takes %.0f bytes at most", per)
	}
}

// TestReuseResolves: a sample of a tenth says nothing about a cache that holds only a few of its blocks; a complete sample says
// everything.
func TestReuseResolves(t *testing.T) {
	sampled, whole := NewReuse(ReuseOptions{Rate: 0.1}), NewReuse(ReuseOptions{Rate: 1})
	for i := range uint64(100) {
		ids := make([]uint64, 200)
		for j := range ids {
			ids[j] = 200*i + uint64(j)
		}
		for _, r := range []*Reuse{sampled, whole} {
			r.Add(ids, 16, 16*200, 0)
		}
	}
	for _, test := range []struct {
		capacity       float64
		sampled, whole bool
	}{{16 * 500, false, true}, {16 * 1500, true, true}, {math.Inf(1), true, true}} {
		if got := sampled.Resolves(test.capacity); got != test.sampled {
			t.Errorf("a tenth, a cache of %.0f tokens: %t, want %t", test.capacity, got, test.sampled)
		}
		if got := whole.Resolves(test.capacity); got != test.whole {
			t.Errorf("all, a cache of %.0f tokens: %t, want %t", test.capacity, got, test.whole)
		}
	}
}
