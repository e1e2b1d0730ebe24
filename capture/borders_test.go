// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/moonloop/moonloop/blockhash"
)

// prompt is one of a tree of cells.
type prompt struct {
	cells []uint64
	anchor
}

// layAll lays the cells of prompts as Compile does: a survey, then a layer.
func layAll(t *testing.T, prompts []prompt) [][]int64 {
	t.Helper()
	shared := func(i int) (n int) {
		if i == 0 {
			return 0
		}
		a, b := prompts[i-1].cells, prompts[i].cells
		for n < min(len(a), len(b)) && a[n] == b[n] {
			n++
		}
		return n
	}
	steps := map[int64][]stretch{}
	s := survey{emit: func(st stretch) error {
		steps[st.owner] = append(steps[st.owner], st)
		return nil
	}}
	for i, p := range prompts {
		if err := s.add(int64(i), shared(i), len(p.cells), p.anchor); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.close(0); err != nil {
		t.Fatal(err)
	}
	var l layer
	var out [][]int64
	for i, p := range prompts {
		from := shared(i)
		l.keep(from)
		of := steps[int64(i)]
		slices.SortFunc(of, func(a, b stretch) int { return a.end - b.end })
		for _, st := range of {
			l.lay(from, st.end, st.best)
			from = st.end
		}
		l.lay(from, len(p.cells), p.anchor)
		out = append(out, slices.Clone(l.ends))
	}
	return out
}

// layInTurn is the same by definition: prompts one after another, the least first, each cell where the first prompt that
// has it puts it.
func layInTurn(prompts []prompt) [][]int64 {
	order := make([]int, 0, len(prompts))
	for i, p := range prompts {
		if p.anchor != noAnchor {
			order = append(order, i)
		}
	}
	slices.SortFunc(order, func(a, b int) int { return prompts[a].compare(prompts[b].anchor) })
	ends := map[uint64]int64{}
	for _, i := range order {
		p := prompts[i]
		first, known := 0, int64(0)
		for first < len(p.cells) {
			end, ok := ends[p.cells[first]]
			if !ok {
				break
			}
			known = end
			first++
		}
		for j := first; j < len(p.cells); j++ {
			text := p.bytes - int64(first)*blockhash.CellSize
			ends[p.cells[j]] = known + max(0, p.tokens-known)*int64(j+1-first)*blockhash.CellSize/text
		}
	}
	out := make([][]int64, len(prompts))
	for i, p := range prompts {
		for _, cell := range p.cells {
			end, ok := ends[cell]
			if !ok {
				break
			}
			out[i] = append(out[i], end)
		}
	}
	return out
}

func TestBordersAreThoseOfTheLeastPrompt(t *testing.T) {
	rng := rand.New(rand.NewPCG(2, 3))
	for round := range 300 {
		// Paths in a tree whose branches have few children: a cell's value is its path.
		var prompts []prompt
		for i := range 1 + rng.IntN(30) {
			p := prompt{}
			path := uint64(1)
			for range rng.IntN(12) {
				path = path*3 + rng.Uint64N(1+rng.Uint64N(3))
				p.cells = append(p.cells, path)
			}
			p.anchor = newAnchor(int64(len(p.cells)*blockhash.CellSize+rng.IntN(blockhash.CellSize)), rng.Int64N(2000)*1000+int64(i), rng.IntN(4) > 0)
			if rng.IntN(5) == 0 {
				p.anchor = noAnchor
			}
			prompts = append(prompts, p)
		}
		slices.SortStableFunc(prompts, func(a, b prompt) int { return slices.Compare(a.cells, b.cells) })
		want, got := layInTurn(prompts), layAll(t, prompts)
		for i := range prompts {
			if !slices.Equal(want[i], got[i]) {
				t.Fatalf("round %d, prompt %d of %d: ends %v, want %v", round, i, len(prompts), got[i], want[i])
			}
		}
	}
}
