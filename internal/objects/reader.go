// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package objects

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/minio/minio-go/v7"
)

const (
	// resumes is how many times in a row a reader reconnects without receiving a byte.
	resumes = 5
	// stall is how long a reader waits for bytes.
	stall = time.Minute
)

// Reader reads an object to its end, over as many connections as that takes. It is not safe for concurrent use.
type Reader struct {
	ctx    context.Context //nolint:containedctx // of the caller, for later connections
	client *client
	at     address
	size   int64
	etag   string // of the object that is read

	body   io.ReadCloser
	watch  *watcher // of the connection
	offset int64
	failed int // attempts that failed since the last byte was received
}

// Size returns the size of the object, in bytes.
func (r *Reader) Size() int64 { return r.size }

// connect opens a connection that begins at the reader's position.
func (r *Reader) connect() (minio.ObjectInfo, error) {
	w := watch(r.ctx, stall)
	var opt minio.GetObjectOptions
	if r.offset > 0 {
		if err := opt.SetRange(r.offset, 0); err != nil { // to the end
			w.end()
			return minio.ObjectInfo{}, err
		}
	}
	body, info, _, err := r.client.GetObject(w.ctx, r.at.bucket, r.at.key, opt)
	if err != nil {
		err = w.cause(err)
		w.end()
		return minio.ObjectInfo{}, err
	}
	r.body, r.watch = body, w
	return info, nil
}

// disconnect ends the connection.
func (r *Reader) disconnect() {
	if r.body == nil {
		return
	}
	r.watch.end()
	_ = r.body.Close() // it was only read
	r.body = nil
}

// Read continues reading. If the connection fails, it opens another connection, as long as the object is unchanged.
func (r *Reader) Read(p []byte) (int, error) {
	for {
		switch {
		case r.offset == r.size:
			return 0, io.EOF
		case r.body == nil:
			info, err := r.connect()
			if err != nil {
				if err := r.again(err); err != nil {
					return 0, err
				}
				continue
			}
			if info.ETag != r.etag || info.Size != r.size-r.offset {
				r.disconnect()
				return 0, fmt.Errorf("%s was replaced while it was read: read it again", r.at)
			}
		}
		n, err := r.body.Read(p[:min(int64(len(p)), r.size-r.offset)])
		r.offset += int64(n)
		if n > 0 {
			r.failed = 0
			r.watch.alive()
			return n, nil // the next read returns the error, if there is one
		}
		if err == nil {
			return 0, nil // p is empty
		}
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		err = r.watch.cause(err)
		r.disconnect()
		if err := r.again(err); err != nil {
			return 0, err
		}
	}
}

// again waits until the next connection may be opened. It returns an error if there must be no further connection.
func (r *Reader) again(err error) error {
	if r.failed++; r.failed > resumes || r.ctx.Err() != nil {
		if c := context.Cause(r.ctx); c != nil {
			err = c
		}
		return fmt.Errorf("after %d of %d bytes: %w", r.offset, r.size, r.client.explain(r.at, "read to its end", err))
	}
	select {
	case <-time.After(100 * time.Millisecond << r.failed):
		return nil
	case <-r.ctx.Done():
		return r.client.explain(r.at, "read to its end", context.Cause(r.ctx))
	}
}

// Close ends the reading.
func (r *Reader) Close() error {
	r.disconnect()
	return nil
}
