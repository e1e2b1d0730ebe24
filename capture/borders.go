// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"cmp"
	"math"
	"math/bits"
	"slices"

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
//
// How many tokens an image has cannot be told from its bytes, nor, from the end of the prompt alone, how many the text before
// it has. So a prompt with media has two anchors: its end, for what stands behind the last medium, and the rate of usual text for
// all before, where no other prompt tells. The last cell of the medium, which ends with it, has the tokens that are left.

// anchor is the end of a prompt.
type anchor struct {
	// rank says which anchor is taken, the lowest: that of the shortest prompt, in bytes and in tokens alike. In bytes alone, a
	// short question about a large image would be taken; in tokens alone, a long list of numbers.
	rank          int64
	bytes, tokens int64
	// media is the number of cells up to the end of the last medium, 0 without one: only the last of them and what is behind it
	// is laid by the anchor.
	media int
	// usual is true for the rate of usual text: it lays from wherever it begins, and has no end.
	usual bool
}

// noAnchor is that of a prompt whose end is unknown.
var noAnchor = anchor{rank: math.MaxInt64}

const (
	bytesPerToken = 4       // of usual text
	guessed       = 1 << 60 // rank of numbers of tokens that are estimates: only where there are no others
)

// usual returns the rate of usual text for so many cells.
func usual(cells int) anchor {
	bytes := int64(cells) * blockhash.CellSize
	return anchor{rank: guessed + 2*bytes, bytes: bytes, tokens: bytes / bytesPerToken, usual: true}
}

func newAnchor(bytes, tokens int64, counted bool) anchor {
	a := anchor{rank: bytes + bytesPerToken*tokens, bytes: bytes, tokens: tokens}
	if !counted {
		a.rank += guessed
	}
	return a
}

// lays reports whether an anchor lays a stretch that ends after so many cells. One ends where the last medium's last cell begins.
func (a anchor) lays(end int) bool { return end >= a.media }

func (a anchor) compare(b anchor) int {
	return cmp.Or(cmp.Compare(a.rank, b.rank), cmp.Compare(a.bytes, b.bytes), cmp.Compare(a.tokens, b.tokens))
}

// kind is what an anchor is besides its numbers, in one.
func (a anchor) kind() uint64 {
	if a.usual {
		return 1
	}
	return uint64(a.media) << 1 //nolint:gosec // not negative
}

func (a *anchor) setKind(kind uint64) {
	a.usual, a.media = kind == 1, int(kind>>1)
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
	if a.media > 0 {
		// Up to the last medium there is the rate of usual text.
		before := min(a.media-1, cells)
		s.cut(before)
		s.extend(number, before, usual(before))
		if cells <= before {
			return nil
		}
	}
	s.extend(number, cells, a)
	return nil
}

// extend lays so many cells of a prompt by an anchor: those that the path lacks, or else the last ones that it has.
func (s *survey) extend(number int64, cells int, a anchor) {
	n := len(s.path)
	switch {
	case cells == 0:
	case n == 0 || s.path[n-1].end < cells:
		s.path = append(s.path, stretch{owner: number, end: cells, best: a, other: a.media > 0 || a.usual})
	default:
		if i, ok := s.find(cells); ok {
			s.path[i].offer(a)
		}
	}
}

// find returns the stretch that ends after so many cells, or else the one that has them.
func (s *survey) find(cells int) (int, bool) {
	return slices.BinarySearchFunc(s.path, cells, func(st stretch, cells int) int { return cmp.Compare(st.end, cells) })
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
			// Those before it are not laid along with it; one that is other already says so of those before itself.
			for i := len(s.path) - 2; i >= 0 && s.path[i].owner == last.owner && !s.path[i].other; i-- {
				s.path[i].other = true
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
		if n := len(s.path); n > 0 && last.best.lays(s.path[n-1].end) {
			s.path[n-1].offer(last.best)
		}
	}
	return nil
}

// cut makes a stretch of the path end after so many cells, if one goes on there.
func (s *survey) cut(cells int) {
	i, ends := s.find(cells)
	if cells == 0 || ends || i == len(s.path) {
		return
	}
	before := s.path[i]
	if before.end, before.other = cells, true; !before.best.lays(cells) {
		before.best = noAnchor
	}
	s.path = slices.Insert(s.path, i, before)
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
	rate  rate // of usual text

	cells, ids []uint64 // kept for their memory
	capped     []int64
}

// rate is tokens per bytes of text.
type rate struct{ tokens, bytes int64 }

func (r rate) of(bytes int64) int64 { return share(r.tokens, bytes, r.bytes) }

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
	if n := len(l.rises); n == 0 || l.rises[n-1].to != a && (!a.usual || !l.rises[n-1].to.usual) {
		next := rise{cells: from, to: a}
		if from > 0 {
			next.tokens = l.ends[from-1]
		}
		if from+1 == a.media { // the last cell of a medium: all of its tokens, which are what the text leaves
			next.cells++
			text := a.bytes - int64(a.media)*blockhash.CellSize
			next.tokens = max(next.tokens, a.tokens-l.rate.of(text))
			l.ends = append(l.ends, next.tokens)
		}
		l.rises = append(l.rises, next)
	}
	n := l.rises[len(l.rises)-1]
	text := a.bytes - int64(n.cells)*blockhash.CellSize
	more := max(0, a.tokens-n.tokens) // below 0 where somebody counted in another way
	for j := len(l.ends); j < to; j++ {
		// A border is a whole number of tokens, so that whole ends, rounded down, compare as exact ones do. They are
		// the same on every platform, which those in floating point need not be.
		bytes := int64(j+1-n.cells) * blockhash.CellSize
		if a.usual {
			l.ends = append(l.ends, n.tokens+l.rate.of(bytes))
		} else {
			l.ends = append(l.ends, n.tokens+share(more, bytes, text))
		}
	}
}

// below returns the ends of cells with those before the last medium's last cell below the tokens of the whole prompt: the rate of
// usual text may say more than there are, and the medium has some.
func (l *layer) below(tokens int64, media int) []int64 {
	before := l.ends[:min(max(media-1, 0), len(l.ends))]
	first, _ := slices.BinarySearch(before, tokens)
	if first == len(before) {
		return l.ends
	}
	l.capped = append(l.capped[:0], l.ends...)
	for j := first; j < len(before); j++ {
		l.capped[j] = max(tokens-1, 0)
	}
	return l.capped
}

// share returns floor(n·part/whole) for 0 <= n, part and 0 < whole, where that is below 2^63.
func share(n, part, whole int64) int64 {
	hi, lo := bits.Mul64(uint64(n), uint64(part))    //nolint:gosec // not negative
	quotient, _ := bits.Div64(hi, lo, uint64(whole)) //nolint:gosec // not negative
	return int64(quotient)                           //nolint:gosec // at most n
}
