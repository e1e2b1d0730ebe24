// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"encoding/binary"
	"math"

	"github.com/moonloop/moonloop/capture/journal"
	"github.com/moonloop/moonloop/mooncake"
)

// accept checks a request that may become a row, and passes it on by session, or by order if it has none.
func (c *compiler) accept(p *partition, r *journal.Inference) error {
	if l, ok := c.check(p, r); !ok {
		p.lost.add(l, 1)
		c.drop(r)
		return nil
	}
	if r.Session == 0 && !isText(p, r) {
		return c.settle(p, r, mooncake.Opt[float64]{})
	}
	// Text without a session is passed on together with that of sessions, because it is not yet known which names are one model.
	var session [sessionKey]byte
	binary.BigEndian.PutUint32(session[:], p.index)
	binary.BigEndian.PutUint64(session[4:], uint64(r.Session))
	together := session[:]
	if r.Session == 0 {
		together = r.Span.SpanID[:] // it is unrelated to the others
	}
	c.key = append(appendPart(c.key[:0], together), session[:]...)
	if c.chains(p, r) {
		if err := c.bySession.add(append(c.key, turnActs), nil); err != nil {
			return err
		}
	}
	// The key needs no span: the record begins with its kind, which is the same for all, and its span.
	c.key = appendTimes(append(c.key, turnRequest), p, r)
	if known(&r.Prompt) {
		c.prompted = c.prompted || r.Session != 0
		c.key = append(c.key, 1)
	} else {
		c.key = append(c.key, 0)
	}
	c.enc = journal.AppendRecord(c.enc[:0], r)
	return c.bySession.add(c.key, c.enc)
}

// inOrder passes a row on in the order of its trace, with what it shares.
func (c *compiler) inOrder(p *partition, r *journal.Inference, delay mooncake.Opt[float64], s *sharing) error {
	c.cached = c.cached || r.CachedTokens.Set
	c.key = binary.BigEndian.AppendUint32(c.key[:0], p.index)
	c.key = appendOrder(c.key, p, r)
	if numbered(s, r) {
		c.ids.add(p.index, r.Domain, r.HashIDs)
	}
	c.key = binary.BigEndian.AppendUint64(c.key, uint64(s.number)) //nolint:gosec // not negative
	c.enc = journal.AppendRecord(s.appendTo(appendDelay(c.enc[:0], delay)), r)
	return c.byOrder.add(c.key, c.enc)
}

// The lengths of what appendTimes and appendOrder append.
const (
	timesLength = 8 + 8
	orderLength = timesLength + 24
)

// appendOrder appends the sort key of a trace's rows: the row index (0 in production), the start, and the span.
func appendOrder(dst []byte, p *partition, r *journal.Inference) []byte {
	dst = append(appendTimes(dst, p, r), r.Span.TraceID[:]...)
	return append(dst, r.Span.SpanID[:]...)
}

// appendTimes appends the order without the span.
func appendTimes(dst []byte, p *partition, r *journal.Inference) []byte {
	row := int64(0)
	if p.Replay {
		row = r.Row.V
	}
	return appendTime(appendTime(dst, row), r.Start)
}

// check determines the token counts of a request as far as they are known, and returns why it cannot become a row.
func (c *compiler) check(p *partition, r *journal.Inference) (loss, bool) {
	if p.Replay {
		if !r.InputLength.Set {
			r.InputLength = r.InputTokens
		}
		if !r.OutputLength.Set {
			r.OutputLength = r.OutputTokens
		}
		switch {
		case !r.InputLength.Set:
			return lostTokens, false
		case r.Row.V < 0:
			return lostInvalid, false
		}
		return loss{}, true
	}
	if r.Start < minStart || r.Start >= maxStart {
		return lostTime, false
	}
	if r.InputTokens.V > c.maxInput || r.OutputTokens.V > MaxTokens {
		return lostLength, false
	}
	if r.InputTokens.V <= 0 { // some producers write 0 for unknown; a prompt has at least one token
		r.InputTokens = mooncake.Opt[int64]{}
	}
	if r.OutputTokens.V < 0 {
		r.OutputTokens = mooncake.Opt[int64]{}
	}
	if c.opt.MissingTokens == MissingDrop && (!r.InputTokens.Set || !r.OutputTokens.Set) {
		return lostTokens, false
	}
	if r.End < r.Start {
		p.lost.add(lostReversed, 1)
	}
	if r.Identity == journal.NoIdentity {
		p.lost.add(lostRawPrompts, 1)
	}
	if r.Identity == journal.None {
		r.Prompt = journal.Prompt{Identity: journal.None} // its other values do not matter
	}
	if l, ok := incomplete(r); ok {
		p.lost.add(l, 1)
		r.Prompt = journal.Prompt{Identity: journal.None}
	}
	if r.InputTokens.Set && r.Chain.Bytes > 0 && r.Chain.Bytes < maxText && !r.Prefix && r.MediaEnd == 0 {
		p.tokens += uint64(r.InputTokens.V) //nolint:gosec // above 0
		p.bytes += uint64(r.Chain.Bytes)
	}
	if r.OutputTokens.Set {
		p.output += uint64(r.OutputTokens.V) //nolint:gosec // not below 0
		p.outputs++
	}
	return loss{}, true
}

// incomplete returns why the text of a request cannot be all of its prompt. For text from log records, this could not be checked when they
// were read.
func incomplete(r *journal.Inference) (loss, bool) {
	const templateTokens = 1024 // chat templates add these; a token has at least one byte
	switch {
	case r.Identity != journal.Text:
	case r.Remote:
		return lostRemote, true
	case r.MediaEnd == 0 && !r.Prefix && r.InputTokens.V > r.Chain.Bytes+templateTokens:
		return lostHidden, true
	}
	return loss{}, false
}

// rate returns the tokens per byte of usual text: the mean over all complete and counted texts without media.
func (p *partition) rate() rate {
	if p.tokens == 0 || p.bytes == 0 {
		return rate{1, bytesPerToken}
	}
	return rate{int64(p.tokens), int64(p.bytes)} //nolint:gosec // sums of what is below 2^32
}

// estimate sets the missing token counts of a request of production, once the sums are complete. It returns false if there is no basis for
// an estimate.
func (p *partition) estimate(r *journal.Inference) bool {
	if p.Replay {
		return true
	}
	if !r.InputTokens.Set {
		var n float64
		switch blocks, size := float64(len(r.HashIDs)), float64(r.BlockSize); {
		case blocks > 0 && size > 0:
			n = (blocks - 0.5) * size // the last block is half full on average
		case r.Prefix:
			return false
		case r.Chain.Bytes > 0:
			rate := p.rate()
			n = float64(r.Chain.Bytes) * (float64(rate.tokens) / float64(rate.bytes))
		default:
			return false
		}
		r.InputTokens = mooncake.Some(int64(math.Ceil(min(max(n, 1), float64(p.maxInput)))))
	}
	if !r.OutputTokens.Set {
		r.OutputTokens = r.OutputEstimate
	}
	if !r.OutputTokens.Set {
		if p.outputs == 0 {
			return false
		}
		r.OutputTokens = mooncake.Some(int64((p.output + p.outputs/2) / p.outputs)) //nolint:gosec // a mean of what is at most MaxTokens
	}
	return true
}
