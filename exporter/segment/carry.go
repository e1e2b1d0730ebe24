// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package segment

import (
	"errors"
	"io"
	"os"
	"time"

	"github.com/moonloop/moonloop/capture"
)

// maxCarried is the number of traces that can be carried on, 40 MB of them.
const maxCarried = 1 << 18

// passage is a trace's way from segment to segment.
type passage struct {
	times int       // that it was carried on
	last  time.Time // when a record of it came, or later
}

// carry is the traces that go on in the next segment.
type carry struct {
	from   *open
	size   int64                // of from
	traces map[[16]byte]passage // this one included
	bytes  int64

	tooOften, tooMany int64
}

func newCarry(from *open) *carry {
	return &carry{from: from, size: from.w.Size(), traces: map[[16]byte]passage{}}
}

// find collects the traces that have a record from an instant on, of those that were carried into the segment, and those
// behind its marks.
func (c *carry) find(at time.Time, before map[[16]byte]passage, most int) error {
	left := map[[16]byte]bool{} // behind, and counted
	add := func(trace [16]byte, last time.Time) {
		p, known := c.traces[trace]
		switch n := before[trace].times + 1; {
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
	for trace, p := range before {
		if !p.last.Before(at) {
			add(trace, p.last)
		}
	}
	marks := c.from.since(at)
	for n, m := range marks {
		end := c.size
		if n+1 < len(marks) {
			end = marks[n+1].offset
		}
		err := c.each(m.offset, end, func(trace [16]byte) bool { add(trace, m.last); return false }, nil)
		if err != nil {
			return err
		}
	}
	return nil
}

// batchBytes is what is copied in one write.
const batchBytes = 1 << 20

// copy writes the records of the traces to a new journal.
func (c *carry) copy(file string) (err error) {
	w, err := capture.OpenWriter(file, capture.WriterOptions{NoSync: true})
	if err != nil {
		return err
	}
	defer func() {
		c.bytes = w.Size()
		err = errors.Join(err, w.Close())
	}()
	return c.each(0, c.size, func(trace [16]byte) bool { return c.traces[trace].times > 0 }, w)
}

// each writes those of the records between two offsets, where records begin, that keep wants, which may be none. What is
// damaged is for the compiler to count.
func (c *carry) each(from, to int64, keep func(trace [16]byte) bool, w *capture.Writer) error {
	f, err := os.Open(c.from.file)
	if err != nil {
		return err
	}
	defer f.Close() //nolint:errcheck // only read
	head := c.from.head
	from = max(from, head)
	r := capture.NewReader(c.from.file, io.MultiReader(io.NewSectionReader(f, 0, head), io.NewSectionReader(f, from, to-from)))
	var batch capture.Batch
	for done := false; !done; {
		err := r.Copy(&batch, keep)
		var damage *capture.Damage
		switch {
		case errors.As(err, &damage):
			continue
		case errors.Is(err, io.EOF):
			done = true
		case err != nil:
			return err
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
