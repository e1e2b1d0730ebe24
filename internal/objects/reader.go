// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package objects

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"gocloud.dev/blob"
)

const (
	// resumes is how often, one time after the other, a reader goes on after its connection broke and no byte came.
	resumes = 5
	// stall is how long a reader waits for bytes.
	stall = time.Minute
)

// errStalled is the end of a connection on which nothing comes.
var errStalled = fmt.Errorf("no byte came for %s", stall)

// Reader reads an object to its end, over as many connections as that takes. It is not safe for concurrent use.
type Reader struct {
	ctx      context.Context //nolint:containedctx // of the caller, for the connections to come
	bucket   *blob.Bucket
	at       address
	size     int64
	modified time.Time

	body   *blob.Reader
	cancel context.CancelCauseFunc // of the connection
	timer  *time.Timer
	offset int64
	failed int // times since a byte came
}

// Size returns the bytes of the object.
func (r *Reader) Size() int64 { return r.size }

// connect opens a connection that begins where the reader is.
func (r *Reader) connect() (err error) {
	ctx, cancel := context.WithCancelCause(r.ctx)
	timer := time.AfterFunc(stall, func() { cancel(errStalled) })
	body, err := r.bucket.NewRangeReader(ctx, r.at.key, r.offset, -1, nil)
	if err != nil {
		if c := context.Cause(ctx); c != nil {
			err = c
		}
		timer.Stop()
		cancel(nil)
		return err
	}
	r.body, r.cancel, r.timer = body, cancel, timer
	return nil
}

// disconnect ends the connection.
func (r *Reader) disconnect() {
	if r.body == nil {
		return
	}
	r.timer.Stop()
	r.cancel(nil)
	_ = r.body.Close() // it was only read
	r.body = nil
}

// Read reads on. An error of a connection leads to another one, as long as the object is the same.
func (r *Reader) Read(p []byte) (int, error) {
	for {
		switch {
		case r.offset == r.size:
			return 0, io.EOF
		case r.body == nil:
			if err := r.connect(); err != nil {
				if err := r.again(err); err != nil {
					return 0, err
				}
				continue
			}
			if r.body.Size() != r.size || !r.body.ModTime().Equal(r.modified) {
				r.disconnect()
				return 0, fmt.Errorf("%s was replaced while it was read: read it again", r.at)
			}
		}
		n, err := r.body.Read(p[:min(int64(len(p)), r.size-r.offset)])
		r.offset += int64(n)
		if n > 0 {
			r.failed = 0
			r.timer.Reset(stall)
			return n, nil // an error comes again
		}
		if err == nil {
			continue
		}
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		r.disconnect()
		if err := r.again(err); err != nil {
			return 0, err
		}
	}
}

// again waits before another connection, and returns an error where there shall be none.
func (r *Reader) again(err error) error {
	if r.failed++; r.failed > resumes || r.ctx.Err() != nil {
		if c := context.Cause(r.ctx); c != nil {
			err = c
		}
		return fmt.Errorf("after %d of %d bytes: %w", r.offset, r.size, explain(r.at, "read to its end", err))
	}
	select {
	case <-time.After(100 * time.Millisecond << r.failed):
		return nil
	case <-r.ctx.Done():
		return explain(r.at, "read to its end", context.Cause(r.ctx))
	}
}

// Close ends the reading.
func (r *Reader) Close() error {
	r.disconnect()
	return nil
}
