// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package stats

import (
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/moonloop/moonloop/mooncake"
)

func potentialOf(rows []*mooncake.Row, opt PotentialOptions, eviction Eviction) *Potential {
	a := NewAnalyzer(AnalyzeOptions{Potential: &opt, Eviction: eviction})
	for i, row := range rows {
		a.Add(row, int64(i+1))
	}
	return a.Analysis().Potential
}

// The curve has exactly the hits of a simulation of each cache, for every number of blocks, and the knee is the smallest cache with
// [KneeShare] of the hits.
func TestPotentialMatchesSimulations(t *testing.T) {
	rows := publicRows(t, 1000)
	for _, eviction := range []Eviction{LeafFirst, RootFirst} {
		var capacities []int
		var sizes []float64
		for n := 1; n < 30_000; n = n*5/4 + 1 {
			capacities = append(capacities, n)
			sizes = append(sizes, float64(n*512))
		}
		want := simulate(rows, CacheOptions{Capacities: capacities, Eviction: eviction})
		got := potentialOf(rows, PotentialOptions{Sizes: sizes}, eviction)
		for i, c := range want {
			if p := got.Curve[i]; p.Rate != c.TokenRate || p.Tokens != int64(c.Capacity)*512 || p.StandardError != 0 {
				t.Errorf("%s, %d blocks: %+v, the simulation has %v", eviction, c.Capacity, p, c.TokenRate)
			}
		}
		knee := int(got.Knee.Tokens / 512)
		at := simulate(rows, CacheOptions{Capacities: []int{knee - 1, knee}, Eviction: eviction})
		if least := KneeShare * float64(at[2].HitTokens); float64(at[0].HitTokens) >= least || float64(at[1].HitTokens) < least {
			t.Errorf("%s: knee at %d blocks: %d hits, one block less %d, want %.0f first at the knee", eviction, knee, at[1].HitTokens, at[0].HitTokens, least)
		}
		if got.WorkingSet.Tokens != 21_514*512 || got.PromptTokens != 13_732_944 || got.Rows != 1000 {
			t.Errorf("working set %d, %d tokens in %d rows", got.WorkingSet.Tokens, got.PromptTokens, got.Rows)
		}
	}
}

func TestPotentialOfTheToyTrace(t *testing.T) {
	got := potentialOf(toyRows(), PotentialOptions{BytesPerToken: 10, Sizes: []float64{511, 1024}}, LeafFirst)
	want := &Potential{
		Eviction: "leaf-first", SamplingRatio: 1, BytesPerToken: 10, Rows: 4, PromptTokens: 3546, Ceiling: 1512. / 3546,
		WorkingSet: CacheSize{5 * 512, 25_600}, Knee: CacheSize{2048, 20_480},
		Curve: []PotentialHits{
			{CacheSize: CacheSize{511, 5110}},
			{CacheSize: CacheSize{1024, 10_240}, Rate: 1024. / 3546, OfCeiling: 1024. / 1512},
			{Rate: 1512. / 3546, OfCeiling: 1},
		},
		Prefixes: []SharedPrefix{{0, 512, 3, 1024}, {1, 1000, 2, 488}}, // ids 7 and 9
	}
	if diff := cmp.Diff(want, got, cmp.Comparer(func(a, b float64) bool { return math.Abs(a-b) < 1e-12 })); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	warm := potentialOf(toyRows(), PotentialOptions{WarmUp: 250}, LeafFirst) // rows 3 and 4 count
	if warm.WarmUpRows != 2 || warm.Rows != 2 || warm.PromptTokens != 1010 || math.Abs(warm.Ceiling-1000./1010) > 1e-12 {
		t.Errorf("after the warm-up: %+v", warm)
	}
	if diff := cmp.Diff([]SharedPrefix{{1, 1000, 1, 1000}}, warm.Prefixes); diff != "" { // the other row has no block that the warm-up has
		t.Errorf("prefixes after the warm-up (-want +got):\n%s", diff)
	}
	for _, sample := range []float64{0, 0.5} {
		if cold := potentialOf(toyRows(), PotentialOptions{WarmUp: 1e9, Sample: sample}, LeafFirst); cold.Undefined["ceiling"] == "" || cold.WarmUpRows != 4 {
			t.Errorf("nothing but warm-up: %+v", cold)
		}
	}
}

// An estimate from no block is undefined, not 0: five rows have one block, which is not in the sample. Without ids, no cache hits anything.
func TestPotentialOfNoSample(t *testing.T) {
	var same, none []*mooncake.Row
	for range 5 {
		row := &mooncake.Row{InputLength: mooncake.Some(int64(512)), HashIDs: []uint64{7}}
		same, none = append(same, row), append(none, &mooncake.Row{InputLength: row.InputLength})
	}
	got := potentialOf(same, PotentialOptions{Sample: 0.01}, LeafFirst)
	for _, figure := range []string{"ceiling", "working_set", "knee", "curve"} {
		if got.SampledBlocks != 0 || !strings.Contains(got.Undefined[figure], "no block is in the sample") {
			t.Errorf("%s of %d sampled blocks: %+v", figure, got.SampledBlocks, got)
		}
	}
	if got := potentialOf(none, PotentialOptions{Sample: 0.01}, LeafFirst); got.Undefined["curve"] != "" || len(got.Curve) != 1 || got.Curve[0].Rate != 0 {
		t.Errorf("without ids: %+v", got)
	}
}

// The savings of the prefixes add up to the hits of an infinite cache.
func TestSharedPrefixesSaveTheCeiling(t *testing.T) {
	rows := publicRows(t, 0)
	d := mooncake.NewDigester(mooncake.CheckOptions{})
	for i, row := range rows {
		d.Add(row, int64(i+1))
	}
	forest, saved := d.Checker().Forest(), int64(0)
	for _, node := range forest.All() {
		saved += int64(node.References-1) * int64(node.Tokens)
	}
	if saved != 54_098_411 {
		t.Errorf("all prefixes save %d tokens, want 54,098,411", saved)
	}
	top := sharedPrefixes(forest, nil)
	if len(top) != TopPrefixes || top[0] != (SharedPrefix{0, 512, 12_031, 12_030 * 512}) ||
		!slices.IsSortedFunc(top, func(a, b SharedPrefix) int { return int(b.Saved - a.Saved) }) {
		t.Errorf("%+v", top)
	}
}

// The figures that llmtrafficlens 0.9.0 prints for the public trace, the last of which kvcache.ai's simulator prints, too: hit rates of
// the second half of the requests, with a cache filled by the first half. Both also count blocks of a prompt after a missing block, and
// evict while a prompt is processed, so small caches differ slightly.
func TestPublishedHitRates(t *testing.T) {
	rows := publicRows(t, 0)
	half := rows[len(rows)/2]
	// The half by rows begins within a step of the clock: earlier rows of the same timestamp count, too.
	got := potentialOf(rows, PotentialOptions{
		Sizes: []float64{16 << 10, 64 << 10, 1 << 20, 4 << 20, 16 << 20}, WarmUp: half.Timestamp.V - rows[0].Timestamp.V,
	}, RootFirst)
	if diff := got.Rows - int64(len(rows)-len(rows)/2); diff < 0 || diff > 28 {
		t.Fatalf("%d rows are counted", got.Rows)
	}
	for i, published := range []float64{.036, .045, .056, .188, .356, .398} {
		t.Logf("%10d tokens: %.4f, published %.3f", got.Curve[i].Tokens, got.Curve[i].Rate, published)
		if math.Abs(got.Curve[i].Rate-published) > .002 {
			t.Errorf("%d tokens: %.4f, published %.3f", got.Curve[i].Tokens, got.Curve[i].Rate, published)
		}
	}
}

// An estimate reports its possible error: in most cases, the truth is within two of its standard errors, and these are as large as the
// differences between the estimates of other samples.
func TestPotentialSaysItsError(t *testing.T) {
	rows := publicRows(t, 0)
	sizes := []float64{1e6, 3e6, 15_360_000}
	exact := potentialOf(rows, PotentialOptions{Sizes: sizes}, RootFirst)
	const samples = 6
	within, all := 0, 0
	for i := range samples {
		estimated := potentialOf(renamedBy(rows, uint64(i)<<32), PotentialOptions{Sizes: sizes, Sample: 0.1}, LeafFirst)
		if estimated.SamplingRatio > .11 || estimated.SampledBlocks < 15_000 || estimated.Eviction != "root-first" {
			t.Fatalf("%+v", estimated)
		}
		for k, p := range estimated.Curve {
			off := math.Abs(p.Rate - exact.Curve[k].Rate)
			t.Logf("%9d tokens: %.4f ± %.4f, exact %.4f", p.Tokens, p.Rate, p.StandardError, exact.Curve[k].Rate)
			if all++; off <= 2*p.StandardError {
				within++
			}
			if p.StandardError < .001 || p.StandardError > .03 {
				t.Errorf("%d tokens: a standard error of %.4f", p.Tokens, p.StandardError)
			}
		}
	}
	if within < all*3/4 {
		t.Errorf("%d of %d estimates are within two standard errors", within, all)
	}
}

// renamedBy adds an offset to all ids.
func renamedBy(rows []*mooncake.Row, offset uint64) []*mooncake.Row {
	rows = clone(rows)
	for _, row := range rows {
		for i := range row.HashIDs {
			row.HashIDs[i] += offset
		}
	}
	return rows
}
