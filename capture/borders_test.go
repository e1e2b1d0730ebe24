// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/moonloop/moonloop/blockhash"
)

// prompt is a prompt with a tree of marks.
type prompt struct {
	marks []uint64
	laid
}

// placed has, for the marks of a prompt, the number of tokens up to each, and the prompt that had it first.
type placed struct {
	ends  []int64
	first []int64
}

// layAll lays the marks of prompts as Compile does: a survey, then a layer.
func layAll(t *testing.T, prompts []prompt) []placed {
	t.Helper()
	steps := map[int64][]stretch{}
	s := survey{emit: func(st stretch) error {
		steps[st.owner] = append(steps[st.owner], st)
		return nil
	}}
	for i := range prompts {
		p := &prompts[i]
		p.number, p.index, p.shared = int64(i), int64(i), 0
		if i > 0 {
			for before := prompts[i-1].marks; p.shared < min(len(before), len(p.marks)) && before[p.shared] == p.marks[p.shared]; {
				p.shared++
			}
		}
		if err := s.add(&p.laid); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.close(0); err != nil {
		t.Fatal(err)
	}
	var l layer
	var out []placed
	for i, p := range prompts {
		from := p.shared
		l.keep(from)
		of := steps[int64(i)]
		slices.SortFunc(of, func(a, b stretch) int { return a.end - b.end })
		for _, st := range of {
			l.lay(from, st.end, p.at, st.best, st.first.number)
			from = st.end
		}
		l.lay(from, len(p.marks), p.at, p.anchor, p.number)
		o := placed{ends: slices.Clone(l.ends)}
		for _, part := range l.parts {
			for len(o.first) < part.end {
				o.first = append(o.first, part.first)
			}
		}
		out = append(out, o)
	}
	return out
}

// layInTurn does the same by definition: anchors one after another, the least first, each mark where the first anchor after it puts it.
func layInTurn(prompts []prompt) []placed {
	type end struct {
		anchor

		prompt, marks int
	}
	var order []end
	for i, p := range prompts {
		if p.anchor != noAnchor {
			order = append(order, end{p.anchor, i, len(p.marks)})
		}
		for _, t := range p.turns {
			order = append(order, end{t.anchor(p.at), i, t.mark})
		}
	}
	slices.SortFunc(order, func(a, b end) int { return a.compare(b.anchor) })
	ends, first := map[uint64]int64{}, map[uint64]int{}
	for _, e := range order {
		p := prompts[e.prompt]
		from, known, begin := 0, int64(0), int64(0)
		for ; from < e.marks; from++ {
			end, ok := ends[p.marks[from]]
			if !ok {
				break
			}
			known, begin = end, p.at[from]
		}
		for j := from; j < e.marks; j++ {
			ends[p.marks[j]] = known + int64(float64(max(0, e.tokens-known))*float64(p.at[j]-begin)/float64(e.bytes-begin))
		}
	}
	for i, p := range prompts {
		for _, mark := range p.marks {
			if one, known := first[mark]; !known || string(prompts[one].order[:]) > string(p.order[:]) {
				first[mark] = i
			}
		}
	}
	out := make([]placed, len(prompts))
	for i, p := range prompts {
		open := true
		for _, mark := range p.marks {
			end, ok := ends[mark]
			if open = open && ok; open {
				out[i].ends = append(out[i].ends, end)
			}
			out[i].first = append(out[i].first, int64(first[mark]))
		}
	}
	return out
}

func TestBordersAreThoseOfTheLeastAnchor(t *testing.T) {
	rng := rand.New(rand.NewPCG(2, 3))
	for round := range 1000 {
		// Paths in a tree whose branches have few children: the value of a mark is its path, which determines its position.
		var prompts []prompt
		came := rng.Perm(40)
		tokens := map[uint64]int64{} // of a reply: the same in every prompt that contains it
		for i := range 1 + rng.IntN(30) {
			p := prompt{}
			path, place := uint64(1), int64(0)
			for range rng.IntN(12) {
				path = path*3 + rng.Uint64N(1+rng.Uint64N(3))
				place += 1 + int64(path*0x9e3779b97f4a7c15>>58)
				p.marks, p.at = append(p.marks, path), append(p.at, place)
			}
			binary.BigEndian.PutUint64(p.order[:], uint64(came[i]))
			p.anchor = newAnchor(place+rng.Int64N(blockhash.CellSize), rng.Int64N(2000)*1000+int64(i), rng.IntN(4) > 0)
			if rng.IntN(5) == 0 {
				p.anchor = noAnchor
			}
			for j, mark := range p.marks {
				if mark%7 == 3 {
					if tokens[mark] == 0 {
						tokens[mark] = rng.Int64N(2000)*1000 + int64(100+len(tokens))
					}
					p.turns = append(p.turns, turn{mark: j + 1, tokens: tokens[mark]})
				}
			}
			prompts = append(prompts, p)
		}
		slices.SortStableFunc(prompts, func(a, b prompt) int { return slices.Compare(a.marks, b.marks) })
		want, got := layInTurn(prompts), layAll(t, prompts)
		for i := range prompts {
			if !slices.Equal(want[i].first, got[i].first) {
				t.Fatalf("round %d, prompt %d of %d: first had by %v, want %v", round, i, len(prompts), got[i].first, want[i].first)
			}
			if len(want[i].ends) != len(got[i].ends) {
				t.Fatalf("round %d, prompt %d of %d: ends %v, want %v", round, i, len(prompts), got[i].ends, want[i].ends)
			}
			for j, end := range want[i].ends {
				if math.Abs(float64(end-got[i].ends[j])) > float64(j+1) { // the model rounds in floating point
					t.Fatalf("round %d, prompt %d of %d: ends %v, want %v", round, i, len(prompts), got[i].ends, want[i].ends)
				}
			}
		}
	}
}
