// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"math"

	"github.com/moonloop/moonloop/blockhash"
	"github.com/moonloop/moonloop/mooncake"
)

// An item of byText is the cells of a prompt, big-endian so that bytes sort like cells; the delay of the row; its record
// without the cells; and the number of cells.
const (
	cellLength  = 8
	delayLength = 8
	countLength = 4
)

// isText reports whether the blocks of a row are those of its text.
func isText(p *partition, r *Inference) bool {
	return !p.Replay && r.Chain.Bytes > 0 && r.HashIDs == nil
}

// settle passes on a row whose place is known: with blocks to be laid, or to where it stands.
func (c *compiler) settle(p *partition, r *Inference, delay mooncake.Opt[float64]) error {
	if !isText(p, r) {
		return c.inOrder(p, r, delay)
	}
	if r.Chain.Validate() != nil || r.Reply != (blockhash.End{}) && r.Chain.ValidateReply(r.Reply) != nil || r.MediaEnd < 0 || r.MediaEnd > r.Chain.Bytes || r.MediaEnd%blockhash.CellSize != 0 {
		p.lost.add(lostCells, 1)
		r.Prompt = Prompt{}
		return c.inOrder(p, r, delay)
	}
	// Equal text is not equal tokens: models are kept apart, and so are keys, whose domains differ.
	mask := c.mask.of(r.Domain, c.models.one(r))
	c.key = c.key[:0]
	for _, cell := range r.Chain.Cells {
		c.key = binary.BigEndian.AppendUint64(c.key, cell^mask)
	}
	cells := r.Chain.Cells
	r.Chain.Tail ^= mask
	r.Chain.Cells = nil
	c.enc = appendDelay(c.enc[:0], delay)
	c.enc = r.appendTo(c.enc)
	r.Chain.Cells = cells                                            // its memory is used again
	c.enc = binary.BigEndian.AppendUint32(c.enc, uint32(len(cells))) //nolint:gosec // at most MaxCells
	return c.byText.add(c.key, c.enc)
}

// mask is what sets the values of one domain and model apart from those of all others.
type mask struct {
	domain Domain
	model  Name
	known  bool
	value  uint64
}

func (m *mask) of(d Domain, model Name) uint64 {
	if !m.known || m.domain != d || m.model != model {
		sum := sha256.Sum256(append(binary.BigEndian.AppendUint32(nil, uint32(d)), model.s...))
		*m = mask{d, model, true, binary.BigEndian.Uint64(sum[:])}
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

// takeDelay undoes appendDelay.
func takeDelay(b []byte) (mooncake.Opt[float64], []byte) {
	ms := math.Float64frombits(binary.LittleEndian.Uint64(b))
	return mooncake.Opt[float64]{V: max(ms, 0), Set: ms >= 0}, b[delayLength:]
}

// text is a prompt on a walk over byText.
type text struct {
	number int64
	shared int    // cells that the prompt before has, too
	cells  []byte // as in the item
	delay  mooncake.Opt[float64]
	decoded
	anchor anchor
}

func (t *text) count() int { return len(t.cells) / cellLength }

// texts visits all prompts in the order of their cells.
func (c *compiler) texts(visit func(*text) error) error {
	t := text{number: -1}
	before := []byte(nil)
	p := c.part(Partition{})
	return c.byText.walk(c.ctx, func(b []byte) error {
		n := cellLength * int(binary.BigEndian.Uint32(b[len(b)-countLength:]))
		before = append(before[:0], t.cells...)
		t.number++
		t.cells = append(t.cells[:0], b[:n]...)
		t.shared = commonCells(before, t.cells)
		var record []byte
		t.delay, record = takeDelay(b[n : len(b)-countLength])
		if err := t.decode(record); err != nil {
			return err
		}
		counted := t.InputTokens.Set
		t.anchor = noAnchor
		if p.estimate(&t.Inference) && !t.Prefix {
			t.anchor = newAnchor(t.Chain.Bytes, t.InputTokens.V, counted)
			t.anchor.media = int(t.MediaEnd / blockhash.CellSize)
		}
		return visit(&t)
	})
}

// commonCells returns the number of leading cells that two prompts share.
func commonCells(a, b []byte) int {
	n := 0
	for most := min(len(a), len(b)); n < most && bytes.Equal(a[n:n+cellLength], b[n:n+cellLength]); {
		n += cellLength
	}
	return n / cellLength
}

// stepKey is the length of the key of a stretch: its owner and its end.
const stepKey = 8 + 4

// layTexts gives rows whose text is known the ids of their blocks.
func (c *compiler) layTexts() error {
	if c.byText.empty() {
		return nil
	}
	steps := newSorter(c.opt.TempDir, c.opt.Memory/8)
	defer steps.close()
	s := survey{emit: func(st stretch) error {
		c.key = binary.BigEndian.AppendUint64(c.key[:0], uint64(st.owner))     //nolint:gosec // not negative
		c.key = binary.BigEndian.AppendUint32(c.key, uint32(st.end))           //nolint:gosec // at most MaxCells
		c.enc = binary.BigEndian.AppendUint64(c.enc[:0], uint64(st.best.rank)) //nolint:gosec // not negative
		c.enc = binary.BigEndian.AppendUint64(c.enc, uint64(st.best.bytes))    //nolint:gosec // not negative
		c.enc = binary.BigEndian.AppendUint64(c.enc, uint64(st.best.tokens))   //nolint:gosec // not negative
		c.enc = binary.BigEndian.AppendUint64(c.enc, st.best.kind())
		return steps.add(c.key, c.enc)
	}}
	err := c.texts(func(t *text) error { return s.add(t.number, t.shared, t.count(), t.anchor) })
	if err == nil {
		err = s.close(0)
	}
	if err != nil {
		return err
	}
	next, err := steps.cursor()
	if err != nil {
		return err
	}
	step, err := next.next()
	if err != nil {
		return err
	}
	p := c.part(Partition{})
	l := layer{rate: p.rate()}
	err = c.texts(func(t *text) error {
		l.keep(t.shared)
		from := t.shared
		for len(step) > 0 && binary.BigEndian.Uint64(step) == uint64(t.number) { //nolint:gosec // not negative
			to := int(binary.BigEndian.Uint32(step[8:]))
			a := anchor{
				rank:   int64(binary.BigEndian.Uint64(step[stepKey:])),     //nolint:gosec // as it was written
				bytes:  int64(binary.BigEndian.Uint64(step[stepKey+8:])),   //nolint:gosec // as it was written
				tokens: int64(binary.BigEndian.Uint64(step[stepKey+8+8:])), //nolint:gosec // as it was written
			}
			a.setKind(binary.BigEndian.Uint64(step[stepKey+8+8+8:]))
			l.lay(from, to, a)
			from = to
			var err error
			if step, err = next.next(); err != nil {
				return err
			}
		}
		l.lay(from, t.count(), t.anchor)
		c.layText(p, t, &l)
		return c.inOrder(p, &t.Inference, t.delay)
	})
	c.byText.close()
	return err
}

// layText replaces the cells of a row by the ids of its blocks, as far as they are known.
func (c *compiler) layText(p *partition, t *text, l *layer) {
	chain, tokens, size, ends := t.Chain, t.InputTokens.V, int64(c.opt.BlockSize), l.below(t.InputTokens.V, t.anchor.media)
	chain.Cells = l.cells[:0]
	for b := t.cells; len(b) > 0; b = b[cellLength:] {
		chain.Cells = append(chain.Cells, binary.BigEndian.Uint64(b))
	}
	t.Chain = blockhash.Chain{}
	if t.Prefix {
		// Only up to where whole prompts have the same text. The blocks behind it are those of no other row.
		known := int64(0)
		if len(ends) > 0 {
			known = ends[len(ends)-1]
		}
		tokens = min(tokens, known) / size * size
		p.lost.add(lostRest, 1)
	}
	ids, err := chain.Blocks(l.ids[:0], ends, tokens, int(size))
	l.cells, l.ids = chain.Cells, ids
	if err != nil || len(ids) == 0 {
		t.Prompt = Prompt{}
		return
	}
	t.HashIDs, t.BlockSize = ids, uint32(size) //nolint:gosec // at most 2^30
}
