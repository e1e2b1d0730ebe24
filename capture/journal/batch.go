// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package journal

import "fmt"

// Batch is a list of encoded records for [Writer.AppendBatch], or for a message. Unlike those of Append, the records are needed only while
// they are added, and are encoded without blocking other writers. The zero Batch is empty.
type Batch struct {
	records []byte // one after the other
	entries []batched
	packer  packer // of messages
}

// batched is one record of a batch.
type batched struct {
	record extent            // in the batch
	lists  [listCount]extent // in the record
}

// Add adds a copy of a record. It refuses a record above [MaxRecord] with [ErrTooLarge], and keeps the others.
func (b *Batch) Add(r Record) error {
	from := len(b.records)
	e := r.appendTo(b.records)
	n := len(e.b) - from
	b.records = e.b
	if n > MaxRecord {
		b.records = b.records[:from]
		return fmt.Errorf("record of %d bytes is above the limit of %d: %w", n, MaxRecord, ErrTooLarge)
	}
	for i := range e.lists {
		if e.lists[i].to > 0 {
			e.lists[i].from -= from
			e.lists[i].to -= from
		}
	}
	b.entries = append(b.entries, batched{extent{from, len(b.records)}, e.lists})
	return nil
}

// appendFrames appends the records as frames, for a journal with a dictionary or without.
func (b *Batch) appendFrames(dst []byte, p *packer) []byte {
	for i := range b.entries {
		e := &b.entries[i]
		record := b.records[e.record.from:e.record.to]
		if p == nil {
			dst = appendFrame(dst, record, checksum(0, record))
		} else {
			dst = p.appendFrame(dst, record, &e.lists)
		}
	}
	return dst
}

// Len returns the number of records.
func (b *Batch) Len() int { return len(b.entries) }

// Size returns the size of the records in bytes. In a journal they take about as much, or less.
func (b *Batch) Size() int { return len(b.records) }

// Reset empties the batch. Its memory is reused.
func (b *Batch) Reset() { b.records, b.entries = b.records[:0], b.entries[:0] }
