// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package send

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/moonloop/moonloop/agent/clock"
)

// serve runs the function handle for each connection of a loopback listener, and returns the listener's base URL. At the end of the test it
// closes the connections that are still open, and waits for the function.
func serve(t *testing.T, handle func(c net.Conn)) string {
	t.Helper()
	ln := listen(t)
	serveOn(t, ln, handle)
	return "http://" + ln.Addr().String()
}

// listen returns a listener on the loopback interface.
func listen(t *testing.T) net.Listener {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return ln
}

func serveOn(t *testing.T, ln net.Listener, handle func(c net.Conn)) {
	t.Helper()
	var mu sync.Mutex
	open := map[net.Conn]bool{}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			open[c] = true
			mu.Unlock()
			wg.Go(func() {
				handle(c)
				_ = c.Close()
				mu.Lock()
				delete(open, c)
				mu.Unlock()
			})
		}
	})
	t.Cleanup(func() {
		_ = ln.Close()
		mu.Lock()
		for c := range open {
			_ = c.Close()
		}
		mu.Unlock()
		wg.Wait()
	})
}

// requests reads requests off a connection, bodies included, and calls a function for each until the function returns false.
func requests(c net.Conn, answer func(r *http.Request, body string) bool) {
	br := bufio.NewReader(c)
	for {
		r, err := http.ReadRequest(br)
		if err != nil {
			return
		}
		body, err := io.ReadAll(r.Body)
		if err != nil || !answer(r, string(body)) {
			return
		}
	}
}

const sseHead = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\nTransfer-Encoding: chunked\r\n\r\n"

// chunked frames each piece as one HTTP chunk.
func chunked(pieces ...string) string {
	var b strings.Builder
	for _, p := range pieces {
		if p != "" {
			fmt.Fprintf(&b, "%x\r\n%s\r\n", len(p), p)
		}
	}
	return b.String()
}

const lastChunk = "0\r\n\r\n"

// sse returns a whole reply that is a stream with one event for each line of data.
func sse(lines ...string) string {
	var b strings.Builder
	for _, l := range lines {
		b.WriteString(chunked("data: " + l + "\n\n"))
	}
	return sseHead + b.String() + lastChunk
}

// ways are the ways in which an exchange can be sent, by name.
var ways = map[string]way{"net http": byNetHTTP, "direct": byDirect}

// client makes a client that is closed with the test.
func client(t testing.TB, cfg Config) *Client {
	t.Helper()
	c, err := New(cfg, clock.New())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// post returns a request with this body.
func post(body string) *Request {
	return &Request{
		Path: "/v1/chat/completions", Stream: true, ExpectTokens: 8, KeepReply: true,
		Body: Body{Size: int64(len(body)), Open: func() io.Reader { return strings.NewReader(body) }},
	}
}

// once sends one request to a server that answers every request with the same bytes, and then closes or keeps the connection.
func once(t *testing.T, req *Request, cfg Config, reply string, keep bool) *Exchange {
	t.Helper()
	cfg.URL = serve(t, func(c net.Conn) {
		requests(c, func(*http.Request, string) bool {
			_, err := io.WriteString(c, reply)
			return err == nil && keep
		})
	})
	var x Exchange
	client(t, cfg).Do(context.WithoutCancel(t.Context()), req, &x)
	return &x
}
