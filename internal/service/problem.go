// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package service

import (
	"encoding/json"
	"fmt"
	"net/http"
	"time"
)

// problem is an error in the form of RFC 9457. Its title is the text of its status.
type problem struct {
	Title  string `json:"title"`
	Status int    `json:"status"`
	Detail string `json:"detail"`
	// Running are the ids of the runs that prevent another one from starting.
	Running []string `json:"running,omitempty"`
}

// Error returns the detail.
func (p problem) Error() string { return p.Detail }

// problemf makes a problem.
func problemf(status int, format string, args ...any) problem {
	return problem{Status: status, Detail: fmt.Sprintf(format, args...)}
}

// write answers with the problem.
func (p problem) write(w http.ResponseWriter) {
	p.Title = http.StatusText(p.Status)
	answer(w, "application/problem+json", p.Status, p)
}

// writeTime bounds the time for a client to receive an answer; for a stream, the time for each part of it.
const writeTime = 30 * time.Second

// answer writes a value as JSON.
func answer(w http.ResponseWriter, kind string, status int, value any) {
	content, err := json.MarshalIndent(value, "", "  ")
	if err != nil { // our own types always can be encoded
		content, kind, status = []byte(err.Error()), "text/plain; charset=utf-8", http.StatusInternalServerError
	}
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(writeTime)) // a long upload has used up the deadline set at its start
	w.Header().Set("Content-Type", kind)
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_, _ = w.Write(append(content, '\n')) // a client that has disconnected gets nothing
}
