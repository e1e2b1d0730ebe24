// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"bytes"
	"context"
	"errors"
	"io"
	"mime"
	"net/http"

	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
)

// GetHTTPHandler returns what puts the gate before the handlers of an HTTP server, behind what decompresses.
func (g *Gate) GetHTTPHandler(context.Context) (func(context.Context, http.Handler) (http.Handler, error), error) {
	return func(_ context.Context, next http.Handler) (http.Handler, error) {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { g.serve(w, r, next) }), nil
	}, nil
}

// serve passes a request on for which there is room. While its body comes room is taken piece by piece.
func (g *Gate) serve(w http.ResponseWriter, r *http.Request, next http.Handler) {
	m := g.paths[r.URL.Path]
	if m == nil || r.Method != http.MethodPost {
		next.ServeHTTP(w, r)
		return
	}
	h := holder{gate: g}
	defer h.release()
	body, err := h.read(r.Body)
	var refused *refusal
	switch {
	case errors.As(err, &refused):
	case err != nil:
		// The stock handler answers as it always does: too long, cut, badly compressed.
		r.Body = io.NopCloser(io.MultiReader(bytes.NewReader(body), &failing{err}))
	default:
		r.Body = io.NopCloser(bytes.NewReader(body))
		refused = h.admit(body, m, isJSON(r))
	}
	if refused != nil {
		g.refused(refused.reason)
		h.release()
		// To the end, which the server's limit on bodies has: a sender whose connection breaks while it sends gets no answer, and
		// tries again what will never fit.
		_, _ = io.Copy(io.Discard, r.Body)
		refused.write(w, isJSON(r))
		return
	}
	s := &statusWriter{ResponseWriter: w}
	next.ServeHTTP(s, r)
	if s.status == http.StatusBadRequest {
		g.refused(ReasonMalformed)
	}
}

// failing is the end of a body that cannot be read to its end.
type failing struct{ err error }

func (f *failing) Read([]byte) (int, error) { return 0, f.err }

// statusWriter keeps the status of a reply.
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

// holder is the room that one request has.
type holder struct {
	gate  *Gate
	bytes int64
}

func (h *holder) release() {
	h.gate.giveBack(h.bytes)
	h.bytes = 0
}

func (h *holder) take(bytes int64) *refusal {
	if h.bytes+bytes > h.gate.limit {
		return errTooLarge
	}
	if err := h.gate.take(bytes); err != nil {
		return err
	}
	h.bytes += bytes
	return nil
}

// copies of a body: the one here, which grows, the stock handler's, and the texts decoded.
const copies = 4

// read reads a body, and takes room for its copies before they are made.
func (h *holder) read(from io.Reader) ([]byte, error) {
	var body bytes.Buffer
	const piece = 64 << 10
	for {
		if err := h.take(copies * piece); err != nil {
			return nil, err
		}
		n, err := io.CopyN(&body, from, piece)
		if err != nil {
			h.gate.giveBack(copies * (piece - n))
			h.bytes -= copies * (piece - n)
		}
		switch {
		case errors.Is(err, io.EOF):
			return body.Bytes(), nil
		case err != nil:
			return body.Bytes(), err
		}
	}
}

// admit takes room for what a body becomes.
func (h *holder) admit(body []byte, m *message, isJSON bool) *refusal {
	var bytes int64
	var refused *refusal
	if left := h.gate.limit - h.bytes; isJSON {
		bytes, refused = scanJSON(body, left)
	} else {
		bytes, refused = scan(body, m, left)
	}
	if refused != nil {
		return refused
	}
	return h.take(bytes)
}

const (
	typeJSON  = "application/json"
	typeProto = "application/x-protobuf"
)

func isJSON(r *http.Request) bool {
	kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	return err == nil && kind == typeJSON
}

// write answers as OTLP over HTTP asks for: with a status message in the encoding of the request.
func (r *refusal) write(w http.ResponseWriter, isJSON bool) {
	message, kind := status.New(r.code(), r.message).Proto(), typeProto
	body, err := proto.Marshal(message)
	if isJSON {
		kind = typeJSON
		body, err = protojson.Marshal(message)
	}
	code := http.StatusBadRequest
	switch r.reason {
	case ReasonBusy:
		code = http.StatusServiceUnavailable
		w.Header().Set("Retry-After", "1")
	case ReasonTooLarge:
		code = http.StatusRequestEntityTooLarge
	case ReasonTooDeep, ReasonMalformed:
	}
	w.Header().Set("Content-Type", kind)
	w.WriteHeader(code)
	if err == nil {
		_, _ = w.Write(body) // who does not read it has gone
	}
}
