// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package journal

import "fmt"

// Batch is records in the form of a journal, for [Writer.AppendBatch]. Unlike Append's they need to be there only while
// they are added, and are encoded without holding up other writers. The zero Batch is empty.
type Batch struct {
	frames  []byte
	record  []byte
	records int
}

// Add adds a copy of a record. One above [MaxRecord] is refused with [ErrTooLarge], and the others stay.
func (b *Batch) Add(r Record) error {
	b.record = r.appendTo(b.record[:0])
	if len(b.record) > MaxRecord {
		return fmt.Errorf("record of %d bytes is above the limit of %d: %w", len(b.record), MaxRecord, ErrTooLarge)
	}
	b.frames = appendFrame(b.frames, b.record)
	b.records++
	return nil
}

// Len returns the number of records.
func (b *Batch) Len() int { return b.records }

// Size returns the number of bytes that the records take in a journal.
func (b *Batch) Size() int { return len(b.frames) }

// Reset empties the batch. Its memory is used again.
func (b *Batch) Reset() { b.frames, b.records = b.frames[:0], 0 }
