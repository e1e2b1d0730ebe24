// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package transform

import (
	"cmp"
	"context"
	"errors"
	"io"
	"io/fs"
	"sync"

	"github.com/moonloop/moonloop/mooncake"
)

// Reading and writing rows takes longer than most transformations. So separate goroutines read rows ahead, and write rows while the next
// ones are made.

// lineRead is a row and its line number.
type lineRead struct {
	*mooncake.Row
	line int64
}

func readLine(rows Rows) (lineRead, error) {
	row, err := rows.Read()
	return lineRead{row, rows.Line()}, err
}

// The limits of a batch of rows between two goroutines: a number of rows, or of bytes. Up to three batches are in flight between two
// goroutines.
const (
	batchRows  = 256
	batchBytes = 1 << 20
)

// batch is a number of rows, and the error that ended them, if there is one.
type batch[T any] struct {
	rows []T
	err  error
}

func nextBatch[T any](next func() (T, error), size func(T) int) (b batch[T]) {
	b.rows = make([]T, 0, batchRows)
	for bytes := 0; len(b.rows) < batchRows && bytes < batchBytes; {
		var row T
		if row, b.err = next(); b.err != nil {
			break
		}
		bytes += size(row)
		b.rows = append(b.rows, row)
	}
	return b
}

// ahead reads rows before they are used.
type ahead[T any] struct {
	batches chan batch[T]
	batch   batch[T]      // the current batch
	stopped chan struct{} // closed by stop
	stop    func()        // waits for the end of the reading; must be called before the source is closed
}

// readAhead starts reading, up to the first error.
func readAhead[T any](next func() (T, error), size func(T) int) *ahead[T] {
	a := &ahead[T]{batches: make(chan batch[T], 1), stopped: make(chan struct{})}
	ended := make(chan struct{})
	a.stop = sync.OnceFunc(func() {
		close(a.stopped)
		<-ended
	})
	go func() {
		defer close(ended)
		for {
			b := nextBatch(next, size)
			select {
			case a.batches <- b:
			case <-a.stopped:
				return
			}
			if b.err != nil {
				return
			}
		}
	}()
	return a
}

// next returns the next row. After an error, including io.EOF, it returns the same error again. After stop, that error is fs.ErrClosed.
func (a *ahead[T]) next() (row T, err error) {
	for len(a.batch.rows) == 0 {
		if a.batch.err != nil {
			return row, a.batch.err
		}
		select {
		case a.batch = <-a.batches:
		case <-a.stopped: // no batch will come
			a.batch.err = fs.ErrClosed
		}
	}
	row, a.batch.rows = a.batch.rows[0], a.batch.rows[1:]
	return row, nil
}

// sizeOf returns the approximate size of a row, in bytes.
func sizeOf(r *mooncake.Row) int {
	return 512 + 8*len(r.HashIDs) + 16*len(r.HashRanges) + 24*len(r.Replies) +
		len(r.TextInput.V) + len(r.Messages) + len(r.Tools) + len(r.Payload) + len(r.Extra)
}

// Each calls write with each remaining row, in a separate goroutine, and returns the first error: that of write, of [Stream.Next], or of
// ctx. It must not be called while another method runs.
func (s *Stream) Each(ctx context.Context, write func(*mooncake.Row) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	batches, written := make(chan []*mooncake.Row, 1), make(chan struct{})
	go func() {
		defer close(written)
		for batch := range batches {
			for _, row := range batch {
				if err := write(row); err != nil {
					cancel(err)
					return
				}
			}
		}
	}()
	var b batch[*mooncake.Row]
	for b.err == nil && ctx.Err() == nil {
		b = nextBatch(s.Next, sizeOf)
		select {
		case batches <- b.rows:
		case <-ctx.Done():
		}
	}
	close(batches)
	<-written
	if errors.Is(b.err, io.EOF) {
		b.err = nil
	}
	return cmp.Or(context.Cause(ctx), b.err)
}
