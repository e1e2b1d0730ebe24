// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package generate

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strconv"

	"github.com/moonloop/moonloop/internal/heap"
	"github.com/moonloop/moonloop/mooncake"
)

// conversation is an open session and its next turn.
type conversation struct {
	number int64
	at     int64 // of the next turn, microseconds
	input  int64 // prompt tokens of the next turn
	ids    []uint64
}

// source makes rows.
type source struct {
	cfg     Config
	block   int64
	rng     *rand.Rand
	open    *heap.Heap[*conversation] // by the time of their next turn, then by age
	arrival int64                     // of the next conversation, microseconds
	number  int64                     // of the next conversation
	id      uint64
	system  []uint64 // ids of the blocks that the system prompt fills; nil before the first row
	spare   float64  // the second of a pair of normal variates
	spared  bool
}

// maxBlocks limits the ids of one row to about 8 MiB, which every reader accepts.
const maxBlocks = 1 << 20

// Generate makes the trace and calls row with each of its rows, in the order of their timestamps. row may keep them. Generate stops at the
// first error of row and returns it.
func Generate(cfg Config, row func(*mooncake.Row) error) error {
	if err := cfg.Validate(); err != nil {
		return fmt.Errorf("trace cannot be generated: %w", err)
	}
	s := newSource(cfg)
	for n := int64(0); cfg.Rows == 0 || n < cfg.Rows; n++ {
		c := s.turn()
		if cfg.Duration > 0 && c.at >= cfg.Duration.Microseconds() {
			return nil // turns come in order of time, so all others are later still
		}
		if blocks := c.input / s.block; blocks > maxBlocks {
			return fmt.Errorf("trace cannot be generated: a prompt of %d tokens has %d blocks of %d tokens, and a row holds at most %d: shorten the prompts, or enlarge the blocks",
				c.input, blocks, s.block, maxBlocks)
		}
		if err := row(s.row(c)); err != nil {
			return err
		}
	}
	return nil
}

func newSource(cfg Config) *source {
	if cfg.BlockSize == 0 {
		cfg.BlockSize = mooncake.BlockSize
	}
	return &source{
		cfg: cfg, block: int64(cfg.BlockSize),
		open: heap.New(func(a, b *conversation) bool { return a.at < b.at || a.at == b.at && a.number < b.number }),
		rng:  rand.New(rand.NewPCG(cfg.Seed, 0x6d6f6f6e6c6f6f70)), //nolint:gosec // a reproducible trace is the purpose
	}
}

// turn returns the conversation with the next turn, and leaves it at the head of the queue.
func (s *source) turn() *conversation {
	if s.open.Len() == 0 || s.arrival <= (*s.open.First()).at {
		c := &conversation{number: s.number, at: s.arrival, input: s.cfg.SystemPromptTokens + s.tokens(s.cfg.UserTokens)}
		if s.cfg.MaxInput > 0 {
			c.input = min(c.input, s.cfg.MaxInput)
		}
		s.number++
		perSecond := s.cfg.Rate / s.cfg.Turns
		s.arrival += microseconds(-ln(1-s.rng.Float64()) / perSecond)
		s.open.Push(c)
	}
	return *s.open.First()
}

// row makes the row of a conversation's turn, and advances the conversation.
func (s *source) row(c *conversation) *mooncake.Row {
	output := s.tokens(s.cfg.OutputTokens)
	at := c.at / 1000
	if grid := s.cfg.Grid.Milliseconds(); grid > 0 {
		at -= at % grid
	}
	r := &mooncake.Row{
		Timestamp: mooncake.Some(float64(at)), InputLength: mooncake.Some(c.input), OutputLength: mooncake.Some(output),
		HashIDs: s.blocks(c),
	}
	if s.cfg.SessionIDs {
		r.SessionID = "conversation-" + strconv.FormatInt(c.number, 10)
	}
	s.advance(c, output)
	return r
}

// blocks returns the ids of a prompt: those of the system prompt and of earlier turns, then new ones in canonical order. A
// partial last block gets an id that is never used again, because the next turn changes the block by filling it.
func (s *source) blocks(c *conversation) []uint64 {
	full := int(c.input / s.block)
	ids := make([]uint64, 0, full+1)
	if c.ids == nil {
		ids = append(ids, s.system...)
	}
	ids = append(ids, c.ids...)
	for len(ids) < full {
		ids = append(ids, s.id)
		s.id++
	}
	if s.system == nil {
		s.system = append([]uint64{}, ids[:s.cfg.SystemPromptTokens/s.block]...)
	}
	c.ids = ids[:full:full]
	if c.input%s.block != 0 {
		ids = append(ids, s.id)
		s.id++
	}
	return ids
}

// advance plans the next turn, or closes the conversation.
func (s *source) advance(c *conversation, output int64) {
	last := s.rng.Float64() < 1/s.cfg.Turns
	c.input += output + s.tokens(s.cfg.UserTokens)
	if last || c.input > maxTokens || s.cfg.MaxInput > 0 && c.input > s.cfg.MaxInput {
		s.open.Pop()
		return
	}
	c.at += output*s.cfg.TokenTime.Microseconds() + microseconds(s.sample(s.cfg.Think))
	s.open.FixFirst()
}

// tokens draws a length of at least 1.
func (s *source) tokens(d LogNormal) int64 {
	return max(1, int64(math.Floor(min(maxTokens, s.sample(d))+0.5)))
}

// sample draws from a log-normal distribution.
func (s *source) sample(d LogNormal) float64 {
	x := float64(d.Median * exp(float64(d.Sigma*s.normal())))
	if d.Max > 0 {
		x = min(x, d.Max)
	}
	return x
}

// normal draws from the standard normal distribution (Marsaglia's polar method).
func (s *source) normal() float64 {
	if s.spared {
		s.spared = false
		return s.spare
	}
	for {
		x, y := float64(2*s.rng.Float64())-1, float64(2*s.rng.Float64())-1
		q := float64(x*x) + float64(y*y)
		if q > 0 && q < 1 {
			f := math.Sqrt(-2 * ln(q) / q)
			s.spare, s.spared = float64(y*f), true
			return float64(x * f)
		}
	}
}

// microseconds converts seconds and rounds them. The result is at most a year, so that sums cannot overflow.
func microseconds(seconds float64) int64 {
	return int64(math.Floor(float64(min(seconds, maxSeconds)*1e6) + 0.5))
}
