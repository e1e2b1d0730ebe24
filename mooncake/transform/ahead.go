// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package transform

import (
	"cmp"
	"context"
	"errors"
	"io"
	"sync"

	"github.com/moonloop/moonloop/mooncake"
)

// Reading rows and writing them take longer than most of what is done to them in between. So goroutines of their own do both: rows are read
// ahead, and written while the next ones are made.

// lineRead is a row and the line that it stands on.
type lineRead struct {
	*mooncake.Row
	line int64
}

func readLine(rows Rows) (lineRead, error) {
	row, err := rows.Read()
	return lineRead{row, rows.Line()}, err
}

// Bounds of a batch of rows that goes from one goroutine to the next: this many rows, or rows of this many bytes. Three batches are under way
// between two goroutines.
const (
	batchRows  = 256
	batchBytes = 1 << 20
)

// batch is a number of rows, and the error that came instead of another one.
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

// ahead reads rows ahead of their use.
type ahead[T any] struct {
	batches chan batch[T]
	batch   batch[T] // that is under way
	stop    func()   // waits for the end of the reading; to be called before what is read is closed
}

// readAhead begins to read, up to the first error.
func readAhead[T any](next func() (T, error), size func(T) int) *ahead[T] {
	a := &ahead[T]{batches: make(chan batch[T], 1)}
	stopped, ended := make(chan struct{}), make(chan struct{})
	a.stop = sync.OnceFunc(func() {
		close(stopped)
		<-ended
	})
	go func() {
		defer close(ended)
		for {
			b := nextBatch(next, size)
			select {
			case a.batches <- b:
			case <-stopped:
				return
			}
			if b.err != nil {
				return
			}
		}
	}()
	return a
}

// next returns the next row. An error, which io.EOF is one of, comes again.
func (a *ahead[T]) next() (row T, err error) {
	for len(a.batch.rows) == 0 {
		if a.batch.err != nil {
			return row, a.batch.err
		}
		a.batch = <-a.batches
	}
	row, a.batch.rows = a.batch.rows[0], a.batch.rows[1:]
	return row, nil
}

// sizeOf is about what a row takes, in bytes.
func sizeOf(r *mooncake.Row) int {
	return 512 + 8*len(r.HashIDs) + 16*len(r.HashRanges) + 24*len(r.Replies) +
		len(r.TextInput.V) + len(r.Messages) + len(r.Tools) + len(r.Payload) + len(r.Extra)
}

// Each calls write with each row that is left, in a goroutine of its own, and returns its first error, that of [Stream.Next], or that
// which ended ctx. It must not be called while another method runs.
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
