// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package simulator

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
)

// apiError is a refusal in OpenAI's format. Its message never contains text of the request.
type apiError struct {
	status     int
	kind       string // "type" on the wire
	code       string // empty is null
	param      string // empty is null
	message    string
	retry      bool   // with Retry-After
	late       bool   // found only after the reply had begun, by engines with [Config].ErrorsInStream
	media, raw string // a content type and a body, which may be empty, in a format other than OpenAI's; no media: OpenAI's format
}

func badRequest(param, format string, args ...any) *apiError {
	return &apiError{status: http.StatusBadRequest, kind: "invalid_request_error", param: param, message: fmt.Sprintf(format, args...)}
}

// inStream returns the refusal as a stream with nothing else, in vLLM's format.
func (e *apiError) inStream() *apiError {
	event := errorBody(e.message, "BadRequestError", nil, e.status)
	return &apiError{status: http.StatusOK, message: e.message, media: mediaEvents, raw: "data: " + string(event) + "\n\ndata: [DONE]\n\n"}
}

// body returns the error object as JSON.
func (e *apiError) body() []byte {
	optional := func(s string) any {
		if s == "" {
			return nil
		}
		return s
	}
	return errorBody(e.message, e.kind, optional(e.param), optional(e.code))
}

func errorBody(message, kind string, param, code any) []byte {
	type inner struct {
		Message string `json:"message"`
		Type    string `json:"type"`
		Param   any    `json:"param"`
		Code    any    `json:"code"`
	}
	b, _ := json.Marshal(map[string]inner{"error": {message, kind, param, code}}) // strings and numbers always marshal
	return b
}

// write answers a request with the error and returns the number of body bytes.
func (e *apiError) write(w http.ResponseWriter) int {
	media, body := mediaJSON, e.body()
	if e.media != "" {
		media, body = e.media, []byte(e.raw)
	}
	return respond(w, e.status, media, body)
}

// respondJSON answers a request with a value that always marshals.
func respondJSON(w http.ResponseWriter, v any) {
	body, _ := json.Marshal(v)
	respond(w, http.StatusOK, mediaJSON, body)
}

// respond answers a request as a whole and returns the number of body bytes.
func respond(w http.ResponseWriter, status int, media string, body []byte) int {
	w.Header().Set("Content-Type", media)
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	n, _ := w.Write(body) // an error means that the client has gone: nobody needs the answer
	return n
}

// Error makes a refusal an error, so that it can end an exchange half-way.
func (e *apiError) Error() string { return e.message }
