// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package send

import (
	"bufio"
	"bytes"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
)

// Whatever is read without net/http is read as net/http reads it: headers, body, how it ends, and what follows it.
func FuzzUsual(f *testing.F) {
	const chunks = "5\r\ndata:\r\n1\r\n\n\r\n0\r\n\r\n"
	for _, seed := range []string{
		"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\nTransfer-Encoding: chunked\r\n\r\n" + chunks,
		"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nserver: uvicorn\r\nconnection: Keep-Alive\r\ntransfer-encoding: chunked\r\n\r\n" + chunks + "HTTP",
		"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nx-backend-id: a\r\nX-Backend-Id:  b \r\nContent-Length: 2\r\n\r\n{}{}",
		"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{}",
		"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
		"HTTP/1.1 200 \r\nTransfer-Encoding: chunked\r\n\r\n0\r\nA: b\r\n\r\n",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nda",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 2\r\n\r\n" + chunks,
		"HTTP/1.1 200 OK\r\nContent-Length: +2\r\n\r\n{}",
		"HTTP/1.1 200 OK\r\n Content-Length: 2\r\nContent-Length: 2\r\n\r\n{}",
		"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\n{}",
		"HTTP/1.1 200 OK\r\nTrailer: A\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nA: b\r\n\r\n",
		"HTTP/1.1 200 OK\r\nA:\tb\r\nContent-Length: 2\r\n\r\n{}",
		"HTTP/1.1 200 OK\r\n: b\r\nContent-Length: 2\r\n\r\n{}",
		"HTTP/1.1 200 OK\r\nContent-Length : 2\r\n\r\n{}",
		"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\n{}",
		"HTTP/1.1 200 OK\r\n\r\n",
		"\r\n\r\n",
		"HTTP/1.1 503 Busy\r\nContent-Length: 2\r\n\r\n{}",
		"HTTP/1.1 200 OK\nContent-Length: 2\n\n{}",
	} {
		f.Add([]byte(seed), false)
		f.Add([]byte(seed), true)
	}
	wanted := []string{"Content-Type", promptTokensHeader, "X-Backend-Id"}
	before := &link{br: bufio.NewReader(strings.NewReader("HTTP/1.1 200 OK\r\nContent-Type: a\r\nX-Backend-Id: b\r\nTransfer-Encoding: chunked\r\n\r\n"))}
	_, _ = before.br.Peek(1)
	if !before.usual(wanted) {
		f.Fatal("not usual")
	}
	used := before.head // nothing of it may be in the next reply
	f.Fuzz(func(t *testing.T, reply []byte, slowly bool) {
		l := &link{br: bufio.NewReader(bytes.NewReader(reply)), head: used}
		_, _ = l.br.Peek(1)
		if !l.usual(wanted) {
			if n := l.br.Buffered(); n != min(len(reply), l.br.Size()) {
				t.Errorf("the reply is left to net/http, which would find only %d of its bytes", n)
			}
			return
		}
		got := &l.resp
		theirs := bufio.NewReader(bytes.NewReader(reply))
		want, err := http.ReadResponse(theirs, posted)
		if err != nil {
			t.Fatalf("net/http refuses the reply: %v", err)
		}
		defer func() { _ = want.Body.Close() }()
		if got.StatusCode != want.StatusCode || got.ContentLength != want.ContentLength || want.Close || len(want.Trailer) > 0 {
			t.Errorf("status %d, length %d; net/http: %+v", got.StatusCode, got.ContentLength, want)
		}
		for _, name := range wanted {
			if !slices.Equal(got.Header[name], want.Header[name]) {
				t.Errorf("%s: %q, net/http: %q", name, got.Header[name], want.Header[name])
			}
		}
		read := func(body io.Reader) (string, bool) {
			if slowly {
				body = iotest.OneByteReader(body)
			}
			text, err := io.ReadAll(body)
			return string(text), err == nil
		}
		text, whole := read(got.Body)
		theirText, theirWhole := read(want.Body)
		if l.body.odd { // trailers that were not announced: net/http reads them, or fails; here the connection ends
			theirWhole = whole
		}
		if text != theirText || whole != theirWhole {
			t.Errorf("the body %q, whole %v; net/http: %q, %v", text, whole, theirText, theirWhole)
		}
		if whole && !l.body.odd && l.br.Buffered() != theirs.Buffered() {
			t.Errorf("%d bytes follow; net/http: %d", l.br.Buffered(), theirs.Buffered())
		}
	})
}

// The replies of engines are read without net/http.
func TestUsual(t *testing.T) {
	for reply, usual := range map[string]bool{
		"HTTP/1.1 200 OK\r\ndate: Sat, 28 Nov 2026 17:00:00 GMT\r\nserver: uvicorn\r\ncontent-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\n\r\n": true, // vLLM
		"HTTP/1.1 200 OK\r\nKeep-Alive: timeout=5, max=100\r\nContent-Type: text/event-stream\r\nServer: llama.cpp\r\nTransfer-Encoding: chunked\r\n\r\n":                   true,
		"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 1\r\n\r\n":                                                                                    true,
		"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\n\r\n":                                                                                    false,
		"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 1\r\n":                                                                                        false, // the rest has not come yet
		"HTTP/1.1 429 Too Many Requests\r\nContent-Length: 1\r\n\r\n":                                                                                                       false,
	} {
		l := &link{br: bufio.NewReader(strings.NewReader(reply))}
		_, _ = l.br.Peek(1)
		if got := l.usual(nil); got != usual {
			t.Errorf("%q: usual %v, want %v", reply, got, usual)
		}
	}
}
