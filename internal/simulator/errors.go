// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package simulator

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"time"
)

// apiError is a refusal in OpenAI's shape. Its message never holds text of the request.
type apiError struct {
	status     int
	kind       string // "type" on the wire
	code       string // empty is null
	param      string // empty is null
	message    string
	retryAfter time.Duration // 0: no Retry-After header
	late       bool          // found only after the reply had begun, by engines of [Config].ErrorsInStream
	media, raw string        // a content type and a body of its own, in another shape than OpenAI's
}

func badRequest(param, format string, args ...any) *apiError {
	return &apiError{status: http.StatusBadRequest, kind: "invalid_request_error", param: param, message: fmt.Sprintf(format, args...)}
}

// inStream returns the refusal as a stream that says nothing else, in vLLM's shape.
func (e *apiError) inStream() *apiError {
	type inner struct {
		Message string `json:"message"`
		Type    string `json:"type"`
		Param   any    `json:"param"`
		Code    int    `json:"code"`
	}
	event, err := json.Marshal(map[string]inner{"error": {Message: e.message, Type: "BadRequestError", Code: e.status}})
	if err != nil { // strings always marshal
		return e
	}
	return &apiError{status: http.StatusOK, message: e.message, media: mediaEvents, raw: "data: " + string(event) + "\n\ndata: [DONE]\n\n"}
}

// body returns the error object as JSON.
func (e *apiError) body() []byte {
	optional := func(s string) *string {
		if s == "" {
			return nil
		}
		return &s
	}
	type inner struct {
		Message string  `json:"message"`
		Type    string  `json:"type"`
		Param   *string `json:"param"`
		Code    *string `json:"code"`
	}
	b, err := json.Marshal(map[string]inner{"error": {e.message, e.kind, optional(e.param), optional(e.code)}})
	if err != nil { // strings always marshal
		return []byte(`{"error":{"message":"internal error","type":"server_error","param":null,"code":null}}`)
	}
	return b
}

// write answers a request with the error and returns the number of body bytes.
func (e *apiError) write(w http.ResponseWriter) int {
	media, body := mediaJSON, e.body()
	if e.raw != "" {
		media, body = e.media, []byte(e.raw)
	}
	h := w.Header()
	h.Set("Content-Type", media)
	h.Set("Content-Length", strconv.Itoa(len(body)))
	if e.retryAfter > 0 {
		seconds := (e.retryAfter + time.Second - 1) / time.Second
		h.Set("Retry-After", strconv.FormatInt(int64(seconds), 10))
	}
	w.WriteHeader(e.status)
	n, _ := w.Write(body) //nolint:gosec // no text of the request is in it; and a client that has gone does not want the error either
	return n
}

// Error makes a refusal an error, so that it can end an exchange half-way.
func (e *apiError) Error() string { return e.message }
