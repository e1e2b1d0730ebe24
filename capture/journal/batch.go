// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package journal

import (
	"encoding/binary"
	"errors"
	"fmt"
)

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

// appendFrames appends the records as frames, for a journal with a dictionary, or for one without if p is nil.
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

// RecordSize returns the size of the record at index i in bytes.
func (b *Batch) RecordSize(i int) int { return b.entries[i].record.to - b.entries[i].record.from }

// AddFrom adds copies of the records of another batch with indexes from begin up to, but not including, end.
func (b *Batch) AddFrom(other *Batch, begin, end int) {
	if begin == end {
		return
	}
	first, last := other.entries[begin].record.from, other.entries[end-1].record.to
	shift := len(b.records) - first
	b.records = append(b.records, other.records[first:last]...)
	for _, e := range other.entries[begin:end] {
		e.record.from += shift
		e.record.to += shift
		b.entries = append(b.entries, e)
	}
}

// Truncate removes all records but the first n.
func (b *Batch) Truncate(n int) {
	b.entries = b.entries[:n]
	size := 0
	if n > 0 {
		size = b.entries[n-1].record.to
	}
	b.records = b.records[:size]
}

// A batch that a queue stores is the number of records, then for each record its size, and begin and end of each list in it, all as
// uvarints; then the records. It has no checksum.

// EncodedSize returns the maximum number of bytes that AppendTo appends.
func (b *Batch) EncodedSize() int {
	const most = 5 // bytes of a uvarint below 2^32
	return most*(1+len(b.entries)*(1+2*listCount)) + len(b.records)
}

// AppendTo appends the batch in a form that [Batch.UnmarshalFrom] reads.
func (b *Batch) AppendTo(dst []byte) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(b.entries)))
	for i := range b.entries {
		e := &b.entries[i]
		dst = binary.AppendUvarint(dst, uint64(b.RecordSize(i))) //nolint:gosec // not negative
		for _, list := range e.lists {
			dst = binary.AppendUvarint(dst, uint64(list.from)) //nolint:gosec // likewise
			dst = binary.AppendUvarint(dst, uint64(list.to))   //nolint:gosec // likewise
		}
	}
	return append(dst, b.records...)
}

var errBatch = errors.New("its records are invalid")

// UnmarshalFrom replaces the records of the batch by those that AppendTo wrote. It copies them. After an error the batch is empty.
func (b *Batch) UnmarshalFrom(src []byte) error {
	b.Reset()
	number := func() int {
		v, n := binary.Uvarint(src)
		if n <= 0 || v > MaxRecord {
			src = nil
			return -1
		}
		src = src[n:]
		return int(v)
	}
	n, at := number(), 0
	for range n {
		size := number()
		e := batched{record: extent{at, at + size}}
		for i := range e.lists {
			from, to := number(), number()
			if from > to || to > size {
				size = -1
			}
			e.lists[i] = extent{from, to}
		}
		if size <= 0 {
			b.Reset()
			return errBatch
		}
		at += size
		b.entries = append(b.entries, e)
	}
	if n < 0 || len(src) != at {
		b.Reset()
		return errBatch
	}
	b.records = append(b.records, src...)
	return nil
}

// Reset empties the batch. Its memory is reused.
func (b *Batch) Reset() { b.records, b.entries = b.records[:0], b.entries[:0] }
