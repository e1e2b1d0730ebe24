// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package stats

import (
	"crypto/sha256"
	"encoding/hex"
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/moonloop/moonloop/mooncake"
	"github.com/moonloop/moonloop/mooncake/internal/testtrace"
)

// golden are the published figures of the public conversation trace and its first 1,000 rows.
type golden struct {
	lines         int
	bytes         int
	sha           string
	rows          int64
	last          float64
	distinct      int64
	equal         int64
	gaps          [3]float64
	perStamp      [4]float64 // mean, min, p99, max
	gapMean       float64
	gapCV         float64
	rate          float64
	input, output LengthStats
	blocks        BlockStats
	sessions      SessionStats
	infinite      CacheStats
	digests       mooncake.Digests
}

var goldens = map[string]golden{
	"conversation": {
		bytes: 3029533, sha: "b8cbb061a85206d729d91cdc2981f43c9e0d99209dce588d3af5f7934408b9df",
		rows: 12031, last: 3536999, distinct: 1180, equal: 10851, gaps: [3]float64{2997, 3000, 3003},
		perStamp: [4]float64{10.20, 2, 19, 28}, gapMean: 294.0149, gapCV: 3.0337, rate: 3.4015,
		input: LengthStats{
			Sum: 144793823, Mean: 12035.0613, Min: 891, P1: 894, P10: 964, P25: 2306, P50: 6909, P75: 15368, P90: 27367,
			P95: 39552, P99: 85401, P999: 121301, Max: 126195,
		},
		output: LengthStats{
			Sum: 4122048, Mean: 342.6189, Min: 1, P1: 3, P10: 24, P25: 156, P50: 350, P75: 472, P90: 597, P95: 698, P99: 1120,
			P999: 2000, Max: 2000, AtMax: 30, Mode: 3, ModeCount: 255,
		},
		blocks: BlockStats{
			References: 288500, MeanPerRow: 23.9797, MinPerRow: 2, MaxPerRow: 247, Tiled: 22, Forest: true,
			Distinct: 182790, Once: 138646, Again: 44144, Roots: 1, Trunk: 1, Forks: 3876, Leaves: 11905, Depth: 247,
			Sequences: 11913, Copies: 9, InnerLasts: 8,
			Top: []TopID{{0, 12031}, {7402, 43}, {7403, 43}, {7404, 43}, {7405, 43}, {7406, 43}, {7407, 43}, {7408, 43}},
		},
		sessions: SessionStats{Inferred: 7373, Single: 5114, Largest: []int64{43, 27, 25, 22, 21}},
		infinite: CacheStats{
			HitBlocks: 105710, HitTokens: 54098411, PrefillTokens: 90695412, FullBlocks: 276491, FullHits: 105592,
			FullHitTokens: 54063104, BlockRate: .366412, TokenRate: .373624, MeanTokenRate: .409385, MeanBlockRate: .384258,
			FullyHit: 118, NotHit: 1, HitQuantiles: [6]int64{1, 7, 25, 43, 106, 240},
		},
		digests: mooncake.Digests{
			Seq:     "4a8b86da6cca3e389a72e6bbb4a1f1ab79e989eb3dd987d42aaf4f27818cb977",
			Tree:    "1a2b23aebae2550efc38f90cd9b0f98d66cccd38395d8531eacd221590ce027b",
			Arrival: "190e7d8d5d4c33a03c9cc55ee05c6f9c9c6ebf05370664cc7e08de1138b02db7",
		},
	},
	"head 1000": {
		lines: 1000, bytes: 251546, sha: "d289afab1294d376c92b3496d96c27f8f0e36893398fbda7957f3a40e37b70ba",
		rows: 1000, last: 330000, distinct: 111, equal: 889, gaps: [3]float64{2999, 3000, 3001},
		perStamp: [4]float64{9.009, 2, 16, 17}, gapMean: 330.3303, gapCV: 2.8429, rate: 3.0303,
		input: LengthStats{
			Sum: 13732944, Mean: 13732.944, Min: 891, P1: 894, P10: 1053, P25: 2839, P50: 8429, P75: 17450, P90: 28845,
			P95: 45721, P99: 88258, P999: 121924, Max: 121924,
		},
		output: LengthStats{
			Sum: 349357, Mean: 349.357, Min: 1, P1: 3, P10: 25, P25: 164, P50: 365, P75: 490, P90: 599, P95: 666, P99: 1005,
			P999: 2000, Max: 2000,
		},
		blocks: BlockStats{
			References: 27305, MeanPerRow: 27.305, MinPerRow: 2, MaxPerRow: 239, Tiled: 2, Forest: true,
			Distinct: 21514, Once: 17864, Again: 3650, Roots: 1, Trunk: 1, Forks: 193, Leaves: 989, Depth: 239,
			Sequences: 989, Copies: 4, InnerLasts: 0,
			Top: []TopID{{0, 1000}, {978, 7}, {979, 7}, {980, 7}, {981, 7}, {982, 7}, {983, 7}, {984, 7}},
		},
		sessions: SessionStats{Inferred: 781, Single: 622, Largest: []int64{7, 5, 4, 4, 4}},
		infinite: CacheStats{
			HitBlocks: 5791, HitTokens: 2962776, PrefillTokens: 10770168, FullBlocks: 26307, FullHits: 5780,
			FullHitTokens: 2959360, BlockRate: .212086, TokenRate: .215742, MeanTokenRate: .287810, MeanBlockRate: .268079,
			FullyHit: 11, NotHit: 1, HitQuantiles: [6]int64{1, 1, 13, 31, 74, 236},
		},
		digests: mooncake.Digests{
			Seq:     "8ea4a04969d800bc9a91f979c8245b2b4e7eb494e4e0570d080accdd6df9aedc",
			Tree:    "5b8998e1fd6563666adbfe3b5916dfb1e26f1dca627342d1d323548cec377fd5",
			Arrival: "4d67fb627d19d321182dc36dd46351b546e85f4257fcc431b950e41bba7a366a",
		},
	},
}

// near compares floats to the number of decimals to which the reference prints them.
func near(decimals float64) cmp.Option {
	return cmp.Comparer(func(a, b float64) bool { return math.Abs(a-b) <= 0.5000001*math.Pow(10, -decimals) })
}

func TestGoldenFigures(t *testing.T) {
	for name, want := range goldens {
		t.Run(name, func(t *testing.T) {
			data := testtrace.PublicData(t, want.lines)
			sum := sha256.Sum256(data)
			if got := hex.EncodeToString(sum[:]); got != want.sha || len(data) != want.bytes {
				t.Fatalf("not the trace that the figures belong to: %d bytes, sha256 %s", len(data), got)
			}
			got := analyze(publicRows(t, want.lines), AnalyzeOptions{})
			if got.Rows != want.rows || got.Kinds.Length != want.rows {
				t.Errorf("%d rows, %d with lengths, want %d", got.Rows, got.Kinds.Length, want.rows)
			}
			a := got.Arrivals
			if a.First != 0 || a.Last != want.last || a.Distinct != want.distinct || a.Equal != want.equal || a.StampGap != want.gaps {
				t.Errorf("arrivals: %+v", a)
			}
			perStamp := [4]float64{a.RowsPerStamp.Mean, float64(a.RowsPerStamp.Min), float64(a.RowsPerStamp.P99), float64(a.RowsPerStamp.Max)}
			if diff := cmp.Diff(want.perStamp, perStamp, near(2)); diff != "" {
				t.Errorf("rows per timestamp (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff([]float64{want.gapMean, want.gapCV, want.rate}, []float64{a.GapMean, a.GapCV, a.Rate}, near(4)); diff != "" {
				t.Errorf("gap mean, gap CV, rate (-want +got):\n%s", diff)
			}
			if !a.Grid.Coarse || a.Grid.Quantum != 3000 || a.Grid.Share != 1 || a.Seconds {
				t.Errorf("grid %+v, seconds %t; want a coarse grid of 3000 ms that all gaps are on", a.Grid, a.Seconds)
			}
			want.input.Rows, want.output.Rows = want.rows, want.rows
			want.input.Exact, want.output.Exact = true, true
			want.input.AtMax, want.input.Mode, want.input.ModeCount = got.Input.AtMax, got.Input.Mode, got.Input.ModeCount // not published
			if want.output.Mode == 0 {
				want.output.AtMax, want.output.Mode, want.output.ModeCount = got.Output.AtMax, got.Output.Mode, got.Output.ModeCount
			}
			want.sessions.NamedExact = true
			want.sessions.Mode, want.sessions.ModeText = mooncake.SessionNone, "no session has more than one row"
			want.infinite.Requests, want.infinite.Blocks, want.infinite.InputTokens = want.rows, want.blocks.References, want.input.Sum
			for what, pair := range map[string][2]any{
				"input":      {want.input, got.Input},
				"output":     {want.output, got.Output},
				"blocks":     {want.blocks, got.Blocks},
				"sessions":   {want.sessions, got.Sessions},
				"digests":    {want.digests, got.Digests},
				"violations": {[]mooncake.Violation{}, got.Violations},
			} {
				if diff := cmp.Diff(pair[0], pair[1], near(4)); diff != "" {
					t.Errorf("%s (-want +got):\n%s", what, diff)
				}
			}
			if diff := cmp.Diff([]CacheStats{want.infinite}, got.Caches, near(6)); diff != "" {
				t.Errorf("infinite cache (-want +got):\n%s", diff)
			}
		})
	}
}

func analyze(rows []*mooncake.Row, opt AnalyzeOptions) *Analysis {
	a := NewAnalyzer(opt)
	for i, row := range rows {
		a.Add(row, int64(i+1))
	}
	return a.Analysis()
}

func TestToyAnalysis(t *testing.T) {
	a := analyze(toyRows(), AnalyzeOptions{TrunkShare: 0.6})
	want := BlockStats{
		References: 8, MeanPerRow: 2, MinPerRow: 1, MaxPerRow: 3, Tiled: 1, Short: 1, Forest: true,
		Distinct: 5, Once: 3, Again: 2, Roots: 2, Trunk: 1, Forks: 1, Leaves: 3, Depth: 3, Sequences: 3, Copies: 2,
		Top: []TopID{{0, 3}, {1, 2}, {2, 1}, {3, 1}, {4, 1}},
	}
	if diff := cmp.Diff(want, a.Blocks); diff != "" {
		t.Errorf("blocks (-want +got):\n%s", diff)
	}
	if s := a.Sessions; s.Inferred != 3 || s.Single != 2 || !cmp.Equal(s.Largest, []int64{2, 1, 1}) {
		t.Errorf("sessions %+v", s)
	}
}

// Above the bound, an analysis still has everything that needs no prefix forest.
func TestAnalysisBeyondItsBound(t *testing.T) {
	a := analyze(toyRows(), AnalyzeOptions{MaxIDs: 2})
	if a.Blocks.Forest || a.Unchecked == "" || a.Blocks.References != 8 {
		t.Errorf("blocks %+v, unchecked %q", a.Blocks, a.Unchecked)
	}
}
