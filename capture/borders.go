// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"cmp"
	"math"
	"math/bits"

	"github.com/moonloop/moonloop/blockhash"
)

// Where the borders of blocks fall in texts of which only cells and numbers of tokens are known: the anchored-cells
// method, over all prompts at once.
//
// Prompts, sorted by their cells, are a tree of cells, and a prompt's number of tokens is known where it ends: an anchor.
// Every stretch of cells that the same prompts share is laid by one of them, the least one (see anchor.rank): its tokens beyond the
// beginning of the stretch are spread evenly over its text from there to its end. The less text lies behind the stretch,
// the less can the tokens of that text displace it. So a system prompt is laid by the shortest question below it, a turn of a
// conversation by its own end, and errors do not add up along the conversation.
//
// That is the same as to lay prompts one after another, from the least to the greatest, each cell where the first prompt that has
// it puts it; but it takes no memory beyond one path in the tree. The survey finds the stretches and what lays them; a layer, on
// a second walk over the prompts, does it.

// anchor is the end of a prompt.
type anchor struct {
	// rank says which anchor is taken, the lowest: that of the shortest prompt, in bytes and in tokens alike. In bytes alone, a
	// short question about a large image would be taken; in tokens alone, a long list of numbers.
	rank          int64
	bytes, tokens int64
}

// noAnchor is that of a prompt whose end is unknown.
var noAnchor = anchor{rank: math.MaxInt64}

const (
	bytesPerToken = 4       // of usual text
	guessed       = 1 << 60 // rank of numbers of tokens that are estimates: only where there are no others
)

func newAnchor(bytes, tokens int64, counted bool) anchor {
	a := anchor{rank: bytes + bytesPerToken*tokens, bytes: bytes, tokens: tokens}
	if !counted {
		a.rank += guessed
	}
	return a
}

func (a anchor) compare(b anchor) int {
	return cmp.Or(cmp.Compare(a.rank, b.rank), cmp.Compare(a.bytes, b.bytes), cmp.Compare(a.tokens, b.tokens))
}

// stretch is cells of a path in the tree that the same prompts share: from the end of the stretch before it to its own end.
type stretch struct {
	owner int64 // number of the first prompt that has it
	end   int   // cells
	best  anchor
	other bool // best is not the owner's own
}

// survey finds the best anchor of every stretch.
type survey struct {
	path []stretch // of the prompt at hand
	emit func(stretch) error
}

// add takes the next prompt in the order of cells: its number, how many of its cells it shares with the prompt before,
// and how many it has. A stretch is emitted when no further prompt can have it, unless its anchor is its owner's.
func (s *survey) add(number int64, shared, cells int, a anchor) error {
	if err := s.close(shared); err != nil {
		return err
	}
	if cells > shared {
		s.path = append(s.path, stretch{owner: number, end: cells, best: a})
	} else if len(s.path) > 0 {
		s.path[len(s.path)-1].offer(a)
	}
	return nil
}

// close ends what lies beyond so many cells. What it learned goes to the stretch before.
func (s *survey) close(cells int) error {
	for len(s.path) > 0 {
		last := &s.path[len(s.path)-1]
		if last.end <= cells {
			return nil
		}
		if last.other {
			if err := s.emit(*last); err != nil {
				return err
			}
		}
		begin := 0
		if len(s.path) > 1 {
			begin = s.path[len(s.path)-2].end
		}
		if begin < cells {
			last.end = cells // it goes on as far as the next prompt has it
			return nil
		}
		s.path = s.path[:len(s.path)-1]
		if len(s.path) > 0 {
			s.path[len(s.path)-1].offer(last.best)
		}
	}
	return nil
}

// offer takes an anchor if it is better.
func (s *stretch) offer(a anchor) {
	if a.compare(s.best) < 0 {
		s.best, s.other = a, true
	}
}

// layer knows, for the cells of the prompt at hand, after how many tokens they end.
type layer struct {
	ends  []int64 // of the leading cells; fewer than the prompt has where nobody's end is known
	rises []rise

	cells, ids []uint64 // kept for their memory
}

// rise is how tokens rise over text: from a place on, evenly to an anchor.
type rise struct {
	cells  int   // where it begins
	tokens int64 // there
	to     anchor
}

// keep goes back to the cells that the next prompt shares with the one before.
func (l *layer) keep(cells int) {
	l.ends = l.ends[:min(cells, len(l.ends))]
	for len(l.rises) > 0 && l.rises[len(l.rises)-1].cells >= cells {
		l.rises = l.rises[:len(l.rises)-1]
	}
}

// lay goes on to so many cells, by an anchor. Cells behind some that no anchor is known for have none either.
func (l *layer) lay(from, to int, a anchor) {
	if len(l.ends) != from || from >= to || a == noAnchor {
		return
	}
	if len(l.rises) == 0 || l.rises[len(l.rises)-1].to != a {
		next := rise{cells: from, to: a}
		if from > 0 {
			next.tokens = l.ends[from-1]
		}
		l.rises = append(l.rises, next)
	}
	n := l.rises[len(l.rises)-1]
	text := a.bytes - int64(n.cells)*blockhash.CellSize
	more := max(0, a.tokens-n.tokens) // below 0 where somebody counted in another way
	for j := from; j < to; j++ {
		// A border is a whole number of tokens, so that whole ends, rounded down, compare as exact ones do. They are
		// the same on every platform, which those in floating point need not be.
		l.ends = append(l.ends, n.tokens+share(more, int64(j+1-n.cells)*blockhash.CellSize, text))
	}
}

// share returns floor(n·part/whole) for 0 <= part <= whole and 0 < whole, without overflow.
func share(n, part, whole int64) int64 {
	hi, lo := bits.Mul64(uint64(n), uint64(part))    //nolint:gosec // not negative
	quotient, _ := bits.Div64(hi, lo, uint64(whole)) //nolint:gosec // not negative
	return int64(quotient)                           //nolint:gosec // at most n
}
