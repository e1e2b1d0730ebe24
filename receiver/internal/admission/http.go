// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"io"
	"mime"
	"net/http"
	"os"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
)

// GetHTTPHandler returns the middleware that puts the gate between an HTTP server's decompression and its handlers.
func (g *Gate) GetHTTPHandler(context.Context) (func(context.Context, http.Handler) (http.Handler, error), error) {
	return func(_ context.Context, next http.Handler) (http.Handler, error) {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { g.serve(w, r, next) }), nil
	}, nil
}

// serve forwards a request if there is memory for it. Memory is reserved piece by piece while the body arrives.
func (g *Gate) serve(w http.ResponseWriter, r *http.Request, next http.Handler) {
	reach(r.Context())
	m := g.paths[r.URL.Path]
	kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	isOTLP := r.Method == http.MethodPost && err == nil && (kind == typeJSON || kind == typeProto)
	if isOTLP && m == nil {
		g.opt.Refused(ReasonNotServed)
		discard(r.Body)
		errNotServed.write(w, kind)
		return
	}
	if !isOTLP {
		if forward(w, r, next) == http.StatusUnsupportedMediaType { // the stock handler decides which types it accepts
			g.opt.Refused(ReasonMediaType)
		}
		return
	}
	control := http.NewResponseController(w)
	u := g.begin(func() { _ = control.SetReadDeadline(past) })
	defer u.detach()
	// If the writer does not support deadlines, the server's own applies, here and below.
	_ = control.SetReadDeadline(u.begun.Add(g.opt.HTTPTimeout))
	body, err := u.read(r.Body)
	var refused *refusal
	switch {
	case errors.As(err, &refused):
	case errors.Is(err, os.ErrDeadlineExceeded):
		refused = cmp.Or(u.received(), errSlow)
	case isTooLong(err):
		refused = errTooLong
	case err != nil:
		// The stock handler responds as usual to a body that is cut off or badly compressed.
		r.Body = io.NopCloser(io.MultiReader(bytes.NewReader(body), &failing{err}))
	default:
		r.Body = io.NopCloser(bytes.NewReader(body))
		if refused = u.received(); refused == nil {
			refused = u.admit(body, m, kind == typeJSON)
		}
	}
	if refused != nil {
		g.opt.Refused(refused.reason)
		u.free()
		discard(r.Body)
		refused.write(w, kind)
		return
	}
	_ = u.received() // also if the body was cut off
	// The deadline is for the body only: it must not cancel the pipeline's work on the request.
	_ = control.SetReadDeadline(time.Time{})
	var decoded atomic.Bool
	r = r.WithContext(context.WithValue(r.Context(), decodedKey{}, &decoded))
	if status := forward(w, r, next); status >= http.StatusBadRequest && !decoded.Load() {
		g.opt.Refused(ReasonMalformed)
	}
}

// discard reads the body of a refused request to its end, within the server's limits on its size and time. If the connection broke while the
// sender sends, the sender would not get the response, and would retry a request that is always refused.
func discard(body io.Reader) { _, _ = io.Copy(io.Discard, body) }

type decodedKey struct{}

// Decoded notes that the request of a context was decoded, so that an error of a later component is not taken for a malformed request.
func Decoded(ctx context.Context) {
	if decoded, ok := ctx.Value(decodedKey{}).(*atomic.Bool); ok {
		decoded.Store(true)
	}
}

func isTooLong(err error) bool {
	_, ok := errors.AsType[*http.MaxBytesError](err)
	return ok
}

// forward calls the next handler, and returns the status of its response.
func forward(w http.ResponseWriter, r *http.Request, next http.Handler) int {
	s := &statusWriter{ResponseWriter: w}
	next.ServeHTTP(s, r)
	return s.status
}

// past is a deadline in the past.
var past = time.Unix(1, 0)

// failing stands for the rest of a body that could not be read: it returns the error.
type failing struct{ err error }

func (f *failing) Read([]byte) (int, error) { return 0, f.err }

// statusWriter records the status of a reply.
type statusWriter struct {
	http.ResponseWriter
	status int
}

// WriteHeader notes the status.
func (w *statusWriter) WriteHeader(status int) {
	w.status = status
	w.ResponseWriter.WriteHeader(status)
}

// Unwrap is for [http.ResponseController].
func (w *statusWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// bodyCopies is the number of copies of a body: two here while the buffer grows, the stock handler's, and the decoded texts.
const bodyCopies = 4

// Sizes of the pieces for which memory is reserved: small ones at first, so that a sender of very little reserves very little.
const (
	firstPiece = 4 << 10
	lastPiece  = 64 << 10
)

// read reads a body. It reserves memory for its copies before they are made.
func (u *upload) read(from io.Reader) ([]byte, error) {
	var body bytes.Buffer
	from = &counted{from, &u.got}
	for piece := int64(firstPiece); ; piece = min(2*piece, lastPiece) {
		if err := u.reserve(bodyCopies * piece); err != nil {
			return nil, err
		}
		n, err := io.CopyN(&body, from, piece)
		if err != nil {
			u.release(bodyCopies * (piece - n))
		}
		switch {
		case errors.Is(err, io.EOF):
			return body.Bytes(), nil
		case err != nil:
			return body.Bytes(), err
		}
	}
}

// counted counts the bytes that are read.
type counted struct {
	io.Reader
	bytes *atomic.Int64
}

func (c *counted) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p)
	c.bytes.Add(int64(n))
	return n, err
}

// admit reserves memory for the decoded form of the body.
func (u *upload) admit(body []byte, m *message, isJSON bool) (refused *refusal) {
	// The body itself uses the memory reserved so far.
	left, size := u.gate.opt.Limit-bodyCopies*int64(len(body)), int64(0)
	if isJSON {
		size, refused = scanJSON(body, left)
	} else {
		size, refused = scan(body, m, left)
	}
	if refused != nil {
		return refused
	}
	return u.reserve(size)
}

const (
	typeJSON  = "application/json"
	typeProto = "application/x-protobuf"
)

// write responds as OTLP over HTTP requires: with a status message in the encoding of the request.
func (r *refusal) write(w http.ResponseWriter, kind string) {
	grpc, code := r.status()
	marshal := proto.Marshal
	if kind == typeJSON {
		marshal = protojson.Marshal
	}
	body, err := marshal(status.New(grpc, r.message).Proto())
	if code == http.StatusServiceUnavailable {
		w.Header().Set("Retry-After", "1")
	}
	if r.reason == ReasonSlow {
		w.Header().Set("Connection", "close") // the rest of the body is still on its way
	}
	w.Header().Set("Content-Type", kind)
	w.WriteHeader(code)
	if err == nil {
		_, _ = w.Write(body) // an error means that the sender is gone
	}
}
