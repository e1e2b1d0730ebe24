// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"math"
	"sort"

	"github.com/moonloop/moonloop/blockhash"
	"github.com/moonloop/moonloop/capture/journal"
	"github.com/moonloop/moonloop/mooncake"
)

// An item of byText is the marks of a prompt, see marks.go; the ends of its messages, of which the marks have the values; the delay of the
// row; its record without cells and ends; and the number of marks.
const (
	markLength  = 8
	delayLength = 8
	countLength = 4
)

// isText reports whether the blocks of a row are derived from its text.
func isText(p *partition, r *journal.Inference) bool {
	return !p.Replay && r.Chain.Bytes > 0 && r.HashIDs == nil
}

// spread converts the ids of a prompt's blocks, if these are finer than those of the trace, to the cells of a text: an id identifies all
// tokens up to the end of its block, as a cell does for all bytes. The text has the right number of bytes per token for exact borders: a
// block is a cell, or several cells of which only the last one is known by itself.
func (c *compiler) spread(p *partition, r *journal.Inference) {
	const cell, others = blockhash.CellSize, 0x9e3779b97f4a7c15
	b, n, size := int64(r.BlockSize), r.InputTokens.V, int64(c.opt.BlockSize)
	if p.Replay || r.HashIDs == nil || b < int64(c.fine) || b >= size || cell%b != 0 && b%cell != 0 {
		return
	}
	bytes, each := n*max(cell/b, 1), max(b/cell, 1) // of the text, and cells of a block
	if !r.InputTokens.Set || n < 1 || n > p.maxInput || int64(len(r.HashIDs)) != (n+b-1)/b || bytes/cell > blockhash.MaxCells {
		// With a different number of tokens than was counted, the trace's own blocks are used.
		if size%b == 0 {
			r.HashIDs, r.BlockSize = every(r.HashIDs, int(size/b)), uint32(size) //nolint:gosec // at most mooncake.MaxBlockSize
		}
		return
	}
	c.cells = c.cells[:0]
	for i := range bytes / cell {
		id := r.HashIDs[i/each]
		if before := each - 1 - i%each; before > 0 {
			id ^= others * uint64(before)
		}
		c.cells = append(c.cells, id)
	}
	r.Chain = blockhash.Chain{Cells: c.cells, Tail: r.HashIDs[len(r.HashIDs)-1], Bytes: bytes}
	r.HashIDs, r.BlockSize = nil, 0
}

// every returns every n-th of some ids, and the last one, in their memory.
func every(ids []uint64, n int) []uint64 {
	out := ids[:0]
	for i, id := range ids {
		if (i+1)%n == 0 || i == len(ids)-1 {
			out = append(out, id)
		}
	}
	return out
}

// settle passes on a request whose turn is known: as a text whose blocks are to be located, or as a row in the order of its trace.
func (c *compiler) settle(p *partition, r *journal.Inference, delay mooncake.Opt[float64]) error {
	c.spread(p, r)
	if !isText(p, r) {
		return c.inOrder(p, r, delay, &sharing{})
	}
	if r.Chain.Bytes >= maxText || r.Chain.Validate() != nil || r.Reply != (blockhash.End{}) && r.Chain.ValidateReply(r.Reply) != nil || r.MediaEnd < 0 || r.MediaEnd > r.Chain.Bytes || r.MediaEnd%blockhash.CellSize != 0 {
		p.lost.add(lostCells, 1)
		r.Prompt = journal.Prompt{}
		return c.inOrder(p, r, delay, &sharing{})
	}
	// Equal text is not equal tokens: models are kept apart, and so are keys, which have different domains, and the orders of templates.
	of := c.template(r)
	mask := c.mask.of(r.Domain, of)
	if c.opt.FollowEngine != FollowNever {
		c.engines.count(of, r)
	}
	c.replied = c.replied || r.Reply != (blockhash.End{})
	c.unseen = c.unseen || unseen(r)
	c.thinned = c.thinned || thinned(&r.Prompt)
	return c.addText(c.byText, r, delay, mask)
}

// addText adds a prompt to a sorter, with its values masked.
func (c *compiler) addText(to *sorter, r *journal.Inference, delay mooncake.Opt[float64], mask uint64) error {
	c.key = appendMarks(c.key[:0], &r.Prompt, mask)
	marks := uint32(len(c.key) / markLength) //nolint:gosec // at most MaxCells, MaxEnds and one
	maskEnds(&r.Prompt, mask)
	cells, ends := r.Chain.Cells, r.Chain.Ends
	r.Chain.Cells, r.Chain.Ends = nil, nil
	c.enc = appendDelay(appendEnds(c.enc[:0], ends), delay)
	c.enc = journal.AppendRecord(c.enc, r)
	r.Chain.Cells, r.Chain.Ends = cells, ends // their memory is reused
	c.enc = binary.BigEndian.AppendUint32(c.enc, marks)
	return to.add(c.key, c.enc)
}

// endRole is the number of bits of a role in an item of byText.
const endRole = 3

// appendEnds appends ends of messages, without their values.
func appendEnds(dst []byte, ends []blockhash.End) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(ends)))
	before := int64(0)
	for _, end := range ends {
		dst = binary.AppendUvarint(dst, uint64(end.Bytes-before)<<endRole|uint64(end.Role)) //nolint:gosec // ends ascend
		before = end.Bytes
	}
	return dst
}

// takeEnds reads what appendEnds appended.
func takeEnds(dst []blockhash.End, b []byte) (ends []blockhash.End, rest []byte) {
	count, n := binary.Uvarint(b)
	b = b[n:]
	at := int64(0)
	for range count {
		next, n := binary.Uvarint(b)
		b = b[n:]
		at += int64(next >> endRole)
		dst = append(dst, blockhash.End{Bytes: at, Role: blockhash.Role(next & (1<<endRole - 1))})
	}
	return dst, b
}

// template returns the template of a request's prompt, as far as its order is followed.
func (c *compiler) template(r *journal.Inference) template {
	of := c.models.template(r)
	if c.opt.FollowEngine == FollowNever || r.Identity != journal.Text { // token ids are in the order that the engine saw
		of.told = ""
	}
	return of
}

// mask is the value that separates the values of one domain and template from all others.
type mask struct {
	domain journal.Domain
	template
	known bool
	value uint64
}

func (m *mask) of(d journal.Domain, t template) uint64 {
	if !m.known || m.domain != d || m.template != t {
		name := append(binary.BigEndian.AppendUint32(nil, uint32(d)), t.model.String()...)
		if t.told != "" {
			name = append(append(name, 0), t.told...)
		}
		sum := sha256.Sum256(name)
		*m = mask{d, t, true, binary.BigEndian.Uint64(sum[:])}
	}
	return m.value
}

func appendDelay(dst []byte, delay mooncake.Opt[float64]) []byte {
	ms := math.Inf(-1)
	if delay.Set {
		ms = delay.V
	}
	return binary.LittleEndian.AppendUint64(dst, math.Float64bits(ms))
}

// takeDelay reads what appendDelay appended.
func takeDelay(b []byte) (mooncake.Opt[float64], []byte) {
	ms := math.Float64frombits(binary.LittleEndian.Uint64(b))
	return mooncake.Opt[float64]{V: max(ms, 0), Set: ms >= 0}, b[delayLength:]
}

// text is a prompt in a walk over byText.
type text struct {
	laid
	marked
	item   []byte          // of byText
	before marked          // the marks of the prompt before
	list   []blockhash.End // without values, which are those of their marks
	ends   []int           // the mark of each end of a message, counted from 1
	delay  mooncake.Opt[float64]
	journal.Decoder
	counted bool // its tokens were counted, and those of its reply
}

// marked has the marks of a prompt.
type marked struct {
	marks   []byte  // as in the item
	offsets []int64 // bytes of the text up to each
	cells   int64   // bytes of the text up to the end of the last cell
}

// value returns the value of a mark, counted from 1.
func (m *marked) value(mark int) uint64 {
	return binary.BigEndian.Uint64(m.marks[markLength*(mark-1):])
}

// part returns the part of a prompt: the first bits of its marks, as in its item. A prompt without marks shares nothing.
func (t *text) part() uint64 { return uint64(binary.BigEndian.Uint16(t.item)) }

// cellFrom returns the first mark that is the end of a cell, beginning with the given one; 0 if there is none. Marks are counted from 1.
func (m *marked) cellFrom(mark int) int {
	for ; mark <= len(m.offsets) && m.offsets[mark-1] <= m.cells; mark++ {
		at := m.offsets[mark-1]
		if at%blockhash.CellSize == 0 && (mark == 1 || m.offsets[mark-2] < at) { // else it is the end of the text after the last cell
			return mark
		}
	}
	return 0
}

// texts visits all prompts in the order of their marks, with their anchors.
func (c *compiler) texts(visit func(*text) error) error {
	p := c.list[0]
	return c.prompts(func(t *text) error {
		counted := t.InputTokens.Set
		t.counted = counted && t.OutputTokens.Set
		t.anchor, t.order, t.turns, t.known = noAnchor, never, nil, 0
		if p.estimate(&t.Inference) {
			t.order = arrivalOf(&t.Inference, t.number)
			if !t.Prefix {
				t.anchor = newAnchor(t.Chain.Bytes, t.InputTokens.V, counted)
				if t.MediaEnd > 0 {
					t.media = 1 + sort.Search(len(t.at), func(i int) bool { return t.at[i] >= t.MediaEnd })
				}
			}
		}
		return visit(t)
	})
}

// prompts visits all prompts in the order of their marks, as they were recorded.
func (c *compiler) prompts(visit func(*text) error) error {
	t := text{laid: laid{index: -1}}
	return c.byText.walk(c.ctx, func(b []byte) error {
		n := markLength * int(binary.BigEndian.Uint32(b[len(b)-countLength:]))
		t.index++
		t.number, t.item = t.index+c.firstText, b
		t.before, t.marked = t.marked, marked{append(t.before.marks[:0], b[:n]...), t.before.offsets[:0], 0}
		t.shared = commonMarks(t.before.marks, t.marks)
		var record []byte
		t.list, record = takeEnds(t.list[:0], b[n:len(b)-countLength])
		t.delay, record = takeDelay(record)
		if err := t.Decode(record); err != nil {
			return err
		}
		t.Chain.Ends = t.list
		t.offsets, t.ends = offsetsOf(&t.Prompt, n/markLength, t.offsets, t.ends)
		t.cells = cellBytes(&t.Prompt)
		t.at = t.offsets
		return visit(&t)
	})
}

// arrivalOf returns the key by which production is ordered.
func arrivalOf(r *journal.Inference, number int64) (order [arrivalLength]byte) {
	b := appendTime(order[:0], r.Start)
	b = append(b, r.Span.TraceID[:]...)
	b = append(b, r.Span.SpanID[:]...)
	_ = binary.BigEndian.AppendUint64(b, uint64(number)) //nolint:gosec // not negative
	return order
}

// commonMarks returns the number of leading marks that two prompts share.
func commonMarks(a, b []byte) int {
	const stride = 64 * markLength
	n, most := 0, min(len(a), len(b))
	for n+stride <= most && bytes.Equal(a[n:n+stride], b[n:n+stride]) {
		n += stride
	}
	for n < most && binary.LittleEndian.Uint64(a[n:]) == binary.LittleEndian.Uint64(b[n:]) {
		n += markLength
	}
	return n / markLength
}

// withSurvey calls a function with the results of a survey of all prompts.
func (c *compiler) withSurvey(turns *sorter, do func(steps *sorter) error) error {
	steps := newSorter(c.opt.TempDir, c.opt.Memory/8)
	defer steps.close()
	if err := c.survey(turns, steps); err != nil {
		return err
	}
	return do(steps)
}

// shareTexts passes on the rows with known text, with what they share.
func (c *compiler) shareTexts(turns, steps *sorter) error {
	p := c.list[0]
	return c.layer(turns, steps, func(t *text, o *laidOut, parts []part) error {
		s, common := c.share(t.number, o, parts)
		c.engines.saw(c, t, o, s, common)
		if t.Identity != journal.Text { // the shared blocks are known exactly
			s.limit = 0
		}
		if t.Prefix {
			// The row shares only up to where whole prompts have the same text. Blocks after that belong to no other row.
			p.lost.add(lostRest, 1)
			if len(s.parts) == 0 {
				s.kind = unshared
			}
		}
		identity, domain, key := t.Identity, t.Domain, t.Key
		t.Prompt = journal.Prompt{} // the record no longer needs the text
		if s.kind != unshared {
			t.Prompt = journal.Prompt{Identity: identity, Domain: domain, Key: key}
		}
		return c.inOrder(p, &t.Inference, t.delay, s)
	})
}

// surveyTo returns a survey that adds its results to a sorter.
func (c *compiler) surveyTo(steps *sorter) survey {
	return survey{emit: func(st stretch) error {
		a := st.best
		return steps.addWords(uint64(st.owner), uint64(st.end), //nolint:gosec // not negative
			uint64(a.rank), uint64(a.bytes), uint64(a.tokens), a.kind(), uint64(st.first.number)) //nolint:gosec // likewise
	}}
}

// survey is the first walk: it finds the anchor of each stretch, and the prompt that had it first.
func (c *compiler) survey(turns, steps *sorter) error {
	s := c.surveyTo(steps)
	next, err := newTurnCursor(turns)
	if err != nil {
		return err
	}
	err = c.texts(func(t *text) error {
		if err := next.of(t); err != nil {
			return err
		}
		return s.add(&t.laid)
	})
	if err != nil {
		return err
	}
	return s.close(0)
}

// stepCursor reads the stretches of prompts, in the order of the prompts' marks.
type stepCursor struct{ ahead }

func newStepCursor(steps *sorter) (*stepCursor, error) {
	next, err := steps.ahead()
	return &stepCursor{next}, err
}

// lay makes a layer locate the stretches of the next prompt.
func (s *stepCursor) lay(l *layer, p *laid) (err error) {
	l.keep(p.shared)
	from := p.shared
	for ; err == nil && len(s.item) > 0 && word(s.item, 0) == uint64(p.index); err = s.advance() { //nolint:gosec // not negative
		number := func(i int) int64 { return int64(word(s.item, i)) } //nolint:gosec // as it was written
		to, a := int(number(1)), anchor{rank: number(2), bytes: number(3), tokens: number(4)}
		a.setKind(word(s.item, 5))
		l.lay(from, to, p.at, a, number(6))
		from = to
	}
	l.lay(from, len(p.at), p.at, p.anchor, p.number)
	return err
}

// laidOut is a prompt whose marks are located.
type laidOut struct {
	tokens int64
	ends   []int64 // tokens up to each of the leading marks for which this number is known
	whole  bool    // the last mark is the end of the prompt
	media  int     // marks up to the end of the last medium, 0 without one
	turns  []turn
}

// layer is the second walk: it locates the stretches of each prompt, with the prompts that had its marks first.
func (c *compiler) layer(turns, steps *sorter, visit func(*text, *laidOut, []part) error) error {
	next, err := newTurnCursor(turns)
	if err != nil {
		return err
	}
	step, err := newStepCursor(steps)
	if err != nil {
		return err
	}
	l := layer{rate: c.list[0].rate()}
	var o laidOut
	return c.texts(func(t *text) error {
		if err := next.of(t); err != nil {
			return err
		}
		if err := step.lay(&l, &t.laid); err != nil {
			return err
		}
		tokens := t.InputTokens.V
		ends := l.below(tokens, t.media)
		o = laidOut{tokens, ends, !t.Prefix && len(ends) == len(t.at), t.media, t.turns}
		return visit(t, &o, l.parts)
	})
}

// share returns what a prompt with a number has in common with earlier prompts, and how many of its leading marks one of them has.
func (c *compiler) share(number int64, o *laidOut, parts []part) (s *sharing, common int) {
	fine, n := int64(c.fine), len(o.ends)
	s = &c.sharing
	*s = sharing{kind: byText, number: number, parts: s.parts[:0], turns: o.turns}
	for _, part := range parts {
		if part.end > n {
			break
		}
		if part.first != number {
			s.last, common = part.first, part.end
		}
		end := o.ends[part.end-1]
		depth := min(end, o.tokens) / fine
		if o.whole && part.end == n && end == o.tokens { // with its last block
			depth = int64(mooncake.BlockCount(o.tokens, c.fine))
		}
		s.add(part.first, depth)
	}
	if common > 0 && common < n && common+1 != o.media { // positions within a medium are unknown
		s.limit = min(o.ends[common], o.tokens) / fine
	}
	return s, common
}
