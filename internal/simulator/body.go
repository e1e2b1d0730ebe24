// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package simulator

import (
	"bytes"
	"errors"
	"net/http"
	"os"
	"sync"
	"time"
)

// bodies holds buffers for request bodies. A buffer is in use only while its request is parsed.
var bodies = sync.Pool{New: func() any { return new([]byte) }}

const (
	maxPooledBody  = 4 << 20   // larger buffers are left to the garbage collector
	firstBodyBytes = 128 << 10 // memory that is reserved for an announced length before anything has arrived
)

var errSlowBody = &apiError{status: http.StatusRequestTimeout, kind: "invalid_request_error", message: "the body took too long to arrive"}

// boundBody sets a time limit for the arrival of a request's body, whether or not anything reads it. A connection without deadlines, such
// as a test's recorder, gets no limit.
func (e *Engine) boundBody(w http.ResponseWriter, r *http.Request) {
	if r.Body != nil && r.Body != http.NoBody {
		_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(e.config.BodyTimeout))
	}
}

// readBody reads a request's whole body into buf, at most Config.BodyLimit bytes, and removes the time limit.
func (e *Engine) readBody(w http.ResponseWriter, r *http.Request, rc *http.ResponseController, buf []byte) ([]byte, error) {
	if enc := r.Header.Get("Content-Encoding"); enc != "" && enc != "identity" {
		return buf, &apiError{status: http.StatusUnsupportedMediaType, kind: "invalid_request_error", message: "Content-Encoding is not supported: send the body as it is"}
	}
	if n := min(r.ContentLength+bytes.MinRead, firstBodyBytes); n > int64(cap(buf)) {
		buf = make([]byte, 0, n)
	}
	body := bytes.NewBuffer(buf)
	_, err := body.ReadFrom(http.MaxBytesReader(w, r.Body, e.config.BodyLimit))
	switch tooLarge, ok := errors.AsType[*http.MaxBytesError](err); {
	case ok:
		refusal := badRequest("", "the body is larger than %d bytes", tooLarge.Limit)
		refusal.status = http.StatusRequestEntityTooLarge
		err = refusal
	case errors.Is(err, os.ErrDeadlineExceeded) && e.closing.Err() == nil:
		err = errSlowBody
	case err == nil:
		// The time limit must be removed now: it would end net/http's watch for a client that leaves. After an error the limit stays,
		// because net/http reads the rest of the body to keep the connection usable.
		_ = rc.SetReadDeadline(time.Time{})
	}
	return body.Bytes(), err
}
