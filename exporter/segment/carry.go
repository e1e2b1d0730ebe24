// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package segment

import (
	"context"
	"errors"
	"io"
	"os"
	"slices"
	"time"

	"github.com/moonloop/moonloop/capture/journal"
)

// maxCarried is the number of traces that can be carried on, 40 MB of them.
const maxCarried = 1 << 18

// passage is a trace's way from segment to segment.
type passage struct {
	times int       // that it was carried on
	last  time.Time // when a record of it came, or later
}

// carry is the traces that go on in the next segment, and the journal that they are copied to.
type carry struct {
	from   *open
	now    time.Time            // of the cut
	size   int64                // of from, then
	marks  []mark               // of the grace period before
	before map[[16]byte]passage // the traces that were carried into from

	traces map[[16]byte]passage // those that are carried on, this time included
	bytes  int64                // of what was copied of them

	file string
	w    *journal.Writer
	done int64  // size of from up to which what came after the cut was copied
	late []mark // of that, in the new journal

	tooOften, tooMany int64
}

// newCarry begins a cut of the open segment. j.mu is held.
func (j *Journal) newCarry(now time.Time) *carry {
	s := j.open
	c := &carry{from: s, now: now, size: s.w.Size(), before: j.carried, traces: map[[16]byte]passage{}}
	c.done = c.size
	if j.opt.Grace > 0 {
		c.marks = slices.Clone(s.since(now.Add(-j.opt.Grace)))
	}
	return c
}

// find collects the traces that have a record from an instant on, of those that were carried into the segment, and those
// behind its marks.
func (c *carry) find(ctx context.Context, at time.Time, most int) error {
	left := map[[16]byte]bool{} // behind, and counted
	add := func(trace [16]byte, last time.Time) {
		p, known := c.traces[trace]
		switch n := c.before[trace].times + 1; {
		case known:
			if last.After(p.last) {
				c.traces[trace] = passage{p.times, last}
			}
		case left[trace]:
		case n > most:
			c.tooOften++
			left[trace] = true
		case len(c.traces) == maxCarried:
			c.tooMany++ // counted by record where even those who are left are too many
			if len(left) < maxCarried {
				left[trace] = true
			}
		default:
			c.traces[trace] = passage{n, last}
		}
	}
	for trace, p := range c.before {
		if !p.last.Before(at) {
			add(trace, p.last)
		}
	}
	for n, m := range c.marks {
		end := c.size
		if n+1 < len(c.marks) {
			end = c.marks[n+1].offset
		}
		err := c.each(ctx, m.offset, end, func(trace [16]byte) bool { add(trace, m.last); return false }, nil)
		if err != nil {
			return err
		}
	}
	return nil
}

// batchBytes is what is copied in one write.
const batchBytes = 1 << 20

// copy begins a new journal with the records of the traces.
func (c *carry) copy(ctx context.Context, file string) (err error) {
	_ = os.Remove(file) // of an attempt that failed
	if c.w, err = journal.OpenWriter(file, journal.WriterOptions{NoSync: true}); err != nil {
		return err
	}
	c.file = file
	err = c.each(ctx, 0, c.size, func(trace [16]byte) bool { return c.traces[trace].times > 0 }, c.w)
	c.bytes = c.w.Size()
	return err
}

// follow copies what came into the segment after the cut, up to a size of it.
func (c *carry) follow(ctx context.Context, size int64, now time.Time) error {
	if size == c.done {
		return nil
	}
	first := c.now
	if n := len(c.late); n > 0 {
		first = c.late[n-1].last
	}
	c.late = append(c.late, mark{first, now, c.w.Size()})
	err := c.each(ctx, c.done, size, func([16]byte) bool { return true }, c.w)
	c.done = size
	return err
}

// discard gives the new journal up.
func (c *carry) discard() {
	if c.w != nil {
		_ = c.w.Close()
		_ = os.Remove(c.file)
		c.w = nil
	}
}

// each writes those of the records between two offsets, where records begin, that keep wants, which may be none. What is
// damaged is for the compiler to count.
func (c *carry) each(ctx context.Context, from, to int64, keep func(trace [16]byte) bool, w *journal.Writer) error {
	f, err := os.Open(c.from.file)
	if err != nil {
		return err
	}
	defer f.Close() //nolint:errcheck // only read
	head := c.from.head
	from = max(from, head)
	r := journal.NewReader(c.from.file, io.MultiReader(io.NewSectionReader(f, 0, head), io.NewSectionReader(f, from, to-from)))
	var batch journal.Batch
	for n, done := 0, false; !done; {
		err := r.Copy(&batch, keep)
		var damage *journal.Damage
		switch {
		case errors.As(err, &damage):
			continue
		case errors.Is(err, io.EOF):
			done = true
		case err != nil:
			return err
		}
		if n++; n%4096 == 0 && ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if batch.Size() >= batchBytes || done && batch.Len() > 0 {
			if err := w.AppendBatch(&batch); err != nil {
				return err
			}
			batch.Reset()
		}
	}
	return nil
}
