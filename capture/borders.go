// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"bytes"
	"cmp"
	"math"
	"math/bits"
	"slices"
)

// This file locates the tokens in texts of which only marks (see marks.go) and numbers of tokens are known: the anchored-cells method,
// over all prompts at once.
//
// Prompts, sorted by their marks, are a tree of marks. A prompt's number of tokens is known at its end: this is an anchor. Another anchor
// is the end of a reply within the prompt, because its tokens were counted when it was generated. Every stretch of marks that the same
// prompts share is located by one anchor, the lowest one (see anchor.rank): the tokens from the beginning of the stretch to the anchor are
// spread evenly over the text between them. The less text follows the stretch, the less the tokens of that text can displace it. So a
// system prompt is located by the shortest question below it, a turn of a conversation by its own end, and errors do not add up along the
// conversation.
//
// The result is the same as locating prompts one after another, from the lowest rank to the highest, each mark by the first prompt that has
// it. But the method used here needs no memory beyond one path in the tree. The survey finds the stretches, their anchors, and the prompts
// that had them first; a layer, in a second walk over the prompts, locates the marks.
//
// The number of tokens of an image does not follow from its bytes, so the end of a prompt alone does not show how many tokens the text
// before the image has. So a prompt with media has two anchors: its end, for the text after the last medium, and the rate of usual text for
// everything before, if no other prompt shows how many tokens that text has. The medium's last cell (both end at the same place) gets the
// remaining tokens.

// anchor is a position with a known number of tokens: usually the end of a prompt.
type anchor struct {
	// rank orders anchors; the lowest is used: that of the shortest prompt, in bytes and in tokens alike. By bytes alone, a short question
	// about a large image, or a list of numbers, would be used; by tokens alone, a text of few tokens but many bytes.
	rank          int64
	bytes, tokens int64
	// media is the number of marks up to the end of the last medium, 0 if there is none: the anchor locates only the last of them and what
	// follows.
	media int
	// usual says that the anchor is the rate of usual text: it locates marks from any beginning, and has no end.
	usual bool
}

// noAnchor is the anchor of a prompt with an unknown end.
var noAnchor = anchor{rank: math.MaxInt64}

const (
	bytesPerToken = 4       // of usual text
	guessed       = 1 << 60 // rank of estimated numbers of tokens: used only if there are no others
)

// usual returns the rate of usual text as an anchor, ranked as one of a text of this many bytes.
func usual(bytes int64) anchor {
	return anchor{rank: guessed + 2*bytes, bytes: bytes, tokens: bytes / bytesPerToken, usual: true}
}

func newAnchor(bytes, tokens int64, counted bool) anchor {
	a := anchor{rank: bytes + bytesPerToken*tokens, bytes: bytes, tokens: tokens}
	if !counted {
		a.rank += guessed
	}
	return a
}

// lays reports whether an anchor locates a stretch that ends after this many marks. There is always a border between stretches where the
// last medium's last cell begins, so no stretch lies on both sides.
func (a anchor) lays(end int) bool { return end >= a.media }

func (a anchor) compare(b anchor) int {
	return cmp.Or(cmp.Compare(a.rank, b.rank), cmp.Compare(a.bytes, b.bytes), cmp.Compare(a.tokens, b.tokens))
}

// kind encodes the fields usual and media in one number.
func (a anchor) kind() uint64 {
	if a.usual {
		return 1
	}
	return uint64(a.media) << 1 //nolint:gosec // not negative
}

func (a *anchor) setKind(kind uint64) {
	a.usual, a.media = kind == 1, int(kind>>1)
}

// stretch is a part of a path in the tree that the same prompts share: from the end of the stretch before it to its own end.
type stretch struct {
	owner  int64 // index of the first prompt with it, in the order of marks
	number int64 // of the owner
	end    int   // marks
	best   anchor
	first  arrival // the first prompt with it, in the order of time
	other  bool    // the owner's end alone need not locate the stretch, so it is emitted
}

// arrival is the arrival time of a prompt, and its position among equal times.
type arrival struct {
	order  [arrivalLength]byte
	number int64
}

// arrivalLength is the length of start, trace id, span id and number: two records of one span may both be rows.
const arrivalLength = 8 + 24 + 8

// never is an arrival after all others, for prompts that are not rows.
var never = [arrivalLength]byte(bytes.Repeat([]byte{0xff}, arrivalLength))

// survey finds the best anchor of every stretch, and the prompt that had the stretch first.
type survey struct {
	path []stretch // of the current prompt
	emit func(stretch) error
}

// laid is the part of a prompt that the survey and the layer need.
type laid struct {
	arrival
	index  int64   // in the order of marks, from 0
	shared int     // leading marks that the previous prompt in the order of marks has, too
	at     []int64 // bytes of the text up to each mark
	anchor
	turns []turn // the replies in it whose tokens are known, in order
	known int    // how many of them the previous prompt has, too
}

// add adds the next prompt in the order of marks. A stretch is emitted when no further prompt can have it, unless only its owner's end
// locates it and its owner also had it first.
func (s *survey) add(p *laid) error {
	if err := s.close(p.shared); err != nil {
		return err
	}
	// Up to the last medium, the rate of usual text applies.
	rest, before := p.turns[p.known:], 0
	if p.media > 0 {
		before = min(p.media-1, len(p.at))
		for len(rest) > 0 && rest[0].mark <= before {
			s.fix(p, rest[0])
			rest = rest[1:]
		}
		s.cut(before)
		s.extend(p, before, usual(textUpTo(p.at, before)))
		if len(p.at) <= before {
			return nil
		}
	}
	for _, t := range rest {
		s.fix(p, t)
	}
	s.extend(p, len(p.at), p.anchor)
	return nil
}

// fix makes the end of a reply an anchor.
func (s *survey) fix(p *laid, t turn) {
	s.cut(t.mark)
	s.extend(p, t.mark, t.anchor(p.at))
}

// extend locates this many leading marks of a prompt by an anchor. If the path lacks some of them, extend adds a stretch for these; if not,
// it offers the anchor to the stretch that ends there.
func (s *survey) extend(p *laid, marks int, a anchor) {
	n := len(s.path)
	switch {
	case marks == 0:
	case n == 0 || s.path[n-1].end < marks:
		s.path = append(s.path, stretch{owner: p.index, number: p.number, end: marks, best: a, first: p.arrival, other: a != p.anchor || a.media > 0})
	default:
		if i, ok := s.find(marks); ok {
			s.path[i].offer(a)
			s.path[i].had(p.arrival)
		}
	}
}

// find returns the stretch that ends after this many marks, or else the one that contains them.
func (s *survey) find(marks int) (int, bool) {
	return slices.BinarySearchFunc(s.path, marks, func(st stretch, marks int) int { return cmp.Compare(st.end, marks) })
}

// close ends the stretches beyond this many marks. What they learned also applies to the stretch before.
func (s *survey) close(marks int) error {
	for len(s.path) > 0 {
		last := &s.path[len(s.path)-1]
		if last.end <= marks {
			return nil
		}
		if last.other || last.first.number != last.number {
			if err := s.emit(*last); err != nil {
				return err
			}
			// The owner's earlier stretches are not located together with this one. If one of them has other set, those before it do, too.
			for i := len(s.path) - 2; i >= 0 && s.path[i].owner == last.owner && !s.path[i].other; i-- {
				s.path[i].other = true
			}
		}
		begin := 0
		if len(s.path) > 1 {
			begin = s.path[len(s.path)-2].end
		}
		if begin < marks {
			last.end = marks // it continues as far as in the next prompt
			return nil
		}
		ended := *last
		s.path = s.path[:len(s.path)-1]
		if n := len(s.path); n > 0 {
			s.path[n-1].had(ended.first)
			if ended.best.lays(s.path[n-1].end) {
				s.path[n-1].offer(ended.best)
			}
		}
	}
	return nil
}

// cut splits the stretch of the path that continues beyond this many marks, if there is one.
func (s *survey) cut(marks int) {
	i, ends := s.find(marks)
	if marks == 0 || ends || i == len(s.path) {
		return
	}
	before := s.path[i]
	if before.end, before.other = marks, true; !before.best.lays(marks) {
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

// had records a prompt that has the stretch.
func (s *stretch) had(by arrival) {
	if bytes.Compare(by.order[:], s.first.order[:]) < 0 {
		s.first = by
	}
}

// layer has, for the marks of the current prompt, the number of tokens before them, and the prompt that had them first.
type layer struct {
	ends  []int64 // of the leading marks; fewer than the prompt has if the end is unknown
	rises []rise
	parts []part
	rate  rate // of usual text

	capped []int64 // reused memory
}

// rate is a rate of tokens per byte of text, as a fraction.
type rate struct{ tokens, bytes int64 }

func (r rate) of(bytes int64) int64 { return share(r.tokens, bytes, r.bytes) }

// rise describes how tokens increase over text: from a position on, evenly to an anchor.
type rise struct {
	marks  int   // where it begins
	bytes  int64 // there
	tokens int64 // there
	to     anchor
}

// part is a section of a prompt's marks: from the end of the part before it to its own end.
type part struct {
	end   int
	first int64 // number of the first prompt with them, in the order of time
}

// keep drops what is beyond the marks that the next prompt shares with the one before.
func (l *layer) keep(marks int) {
	l.ends = l.ends[:min(marks, len(l.ends))]
	for len(l.rises) > 0 && l.rises[len(l.rises)-1].marks >= marks {
		l.rises = l.rises[:len(l.rises)-1]
	}
	n := len(l.parts)
	for n > 1 && l.parts[n-2].end >= marks {
		n--
	}
	if l.parts = l.parts[:n]; n > 0 {
		if l.parts[n-1].end = min(l.parts[n-1].end, marks); marks == 0 {
			l.parts = l.parts[:0]
		}
	}
}

// lay locates, by an anchor, the marks of the current prompt from one index up to another; the bytes of the text up to each mark are given.
// first is the prompt that had the marks first. Marks after marks without a known anchor are not located either.
func (l *layer) lay(from, to int, at []int64, a anchor, first int64) {
	if from >= to {
		return
	}
	l.parts = append(l.parts, part{to, first})
	if len(l.ends) != from || a == noAnchor {
		return
	}
	if n := len(l.rises); n == 0 || l.rises[n-1].to != a && (!a.usual || !l.rises[n-1].to.usual) {
		next := rise{marks: from, to: a}
		if from > 0 {
			next.tokens, next.bytes = l.ends[from-1], at[from-1]
		}
		if from+1 == a.media { // the last cell of a medium: it gets all tokens that the text does not have
			next.marks++
			next.bytes = at[from]
			next.tokens = max(next.tokens, a.tokens-l.rate.of(max(0, a.bytes-next.bytes)))
			l.ends = append(l.ends, next.tokens)
		}
		l.rises = append(l.rises, next)
	}
	n := l.rises[len(l.rises)-1]
	more := max(0, a.tokens-n.tokens) // the difference is below 0 if counts disagree
	for j := len(l.ends); j < to; j++ {
		// A border is a whole number of tokens, so whole ends, rounded down, compare like exact ones. They are the same on every platform;
		// floating-point numbers need not be.
		switch bytes, all := max(0, at[j]-n.bytes), a.bytes-n.bytes; {
		case a.usual:
			l.ends = append(l.ends, n.tokens+l.rate.of(bytes))
		case bytes < all:
			l.ends = append(l.ends, n.tokens+share(more, bytes, all))
		default: // at the anchor, or where a sender's claim about its text is false
			l.ends = append(l.ends, n.tokens+more)
		}
	}
}

// below limits the ends of marks before the last medium's last cell to less than the tokens of the whole prompt: the rate of usual text may
// give more, and the medium has some tokens.
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
	return int64(quotient)                           //nolint:gosec // below 2^63, as required
}
