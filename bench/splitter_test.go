// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"fmt"
	"strings"
	"testing"

	"github.com/moonloop/moonloop/agent/send"
)

// reply returns a reply of three tokens in an engine's format: the second event is split between two chunks.
func reply() string {
	token := `data: {"choices":[{"index":0,"text":"a"}]}` + "\n\n"
	var b strings.Builder
	b.WriteString("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
	for _, chunk := range []string{token, token[:20], token[20:], token + `data: {"choices":[],"usage":{"completion_tokens":3}}` + "\n\n", "data: [DONE]\n\n"} {
		fmt.Fprintf(&b, "%x\r\n%s\r\n", len(chunk), chunk)
	}
	b.WriteString("0\r\n\r\n")
	return b.String()
}

// TestSplitter: the tokens are the same wherever reads split the reply.
func TestSplitter(t *testing.T) {
	text := []byte(reply())
	for step := 1; step <= len(text); step++ {
		s, tokens := splitter{scan: new(send.TokenScanner)}, 0
		for from := 0; from < len(text); from += step {
			n, err := s.feed(text[from:min(len(text), from+step)])
			if err != nil {
				t.Fatalf("reads of %d bytes: %v", step, err)
			}
			tokens += n
		}
		if tokens != 3 || s.at != over {
			t.Fatalf("reads of %d bytes: %d tokens, at %d", step, tokens, s.at)
		}
	}
}

// TestSplitterErrors: a reply that is not a stream is an error.
func TestSplitterErrors(t *testing.T) {
	for text, want := range map[string]string{
		"HTTP/1.1 429 Too Many Requests\r\n":       "429",
		"HTTP/1.1 200 OK\r\n\r\ndata: {}\r\n":      "size of a chunk",
		"HTTP/1.1 200 OK\r\n\r\n0\r\n\r\nHTTP/1.1": "after the reply's end",
	} {
		s := splitter{scan: new(send.TokenScanner)}
		if _, err := s.feed([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}
