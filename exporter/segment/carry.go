// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package segment

import (
	"errors"
	"io"
	"os"

	"github.com/moonloop/moonloop/capture"
)

// maxCarried is the number of traces that can be carried on, 30 MB of ids.
const maxCarried = 1 << 18

// carry is the traces that go on in the next segment.
type carry struct {
	from  *open
	size  int64            // of from
	times map[[16]byte]int // how many times each was carried on, this one included
	bytes int64

	tooOften, tooMany int64
}

// find collects the traces that have a record behind an offset.
func (c *carry) find(s *open, offset int64, before map[[16]byte]int, most int) error {
	c.from, c.size = s, s.w.Size()
	left := map[[16]byte]bool{} // behind, and counted
	return c.each(offset, func(trace [16]byte) bool {
		switch n := before[trace] + 1; {
		case c.times[trace] > 0 || left[trace]:
		case n > most:
			c.tooOften++
			left[trace] = true
		case len(c.times) == maxCarried:
			c.tooMany++ // counted by record where even those who are left are too many
			if len(left) < maxCarried {
				left[trace] = true
			}
		default:
			c.times[trace] = n
		}
		return false
	}, nil)
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
	return c.each(0, func(trace [16]byte) bool { return c.times[trace] > 0 }, w)
}

// each writes those of the records behind an offset, where one begins, that keep wants, which may be none. What is damaged is for the
// compiler to count.
func (c *carry) each(offset int64, keep func(trace [16]byte) bool, w *capture.Writer) error {
	f, err := os.Open(c.from.file)
	if err != nil {
		return err
	}
	defer f.Close() //nolint:errcheck // only read
	head := c.from.head
	r := capture.NewReader(c.from.file, io.MultiReader(
		io.NewSectionReader(f, 0, head), io.NewSectionReader(f, max(offset, head), c.size-max(offset, head)),
	))
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
