// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package acceptance

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// proxyFault is one thing that goes wrong between agent and engine.
type proxyFault struct {
	name string
	// class is the class that the record must have; empty if the request is still served.
	class string
	// instead answers in the engine's place; it reports whether the connection can still be used.
	instead func(c *client) bool
	// after runs once the reply's first event has passed. It reports whether the connection can still be used.
	after func(c *client) bool
	// whole changes a whole reply on its way.
	whole func(c *client, body io.Reader) error
	// late holds the request back before the engine sees it.
	late time.Duration
	// media replaces the reply's content type.
	media string
}

const (
	brokenEvent = `data: {"error":{"message":"broken on the way","type":"server_error","code":"proxy"}}` + "\n\n"
	refusal     = "HTTP/1.1 %s\r\nContent-Type: %s\r\nContent-Length: %d\r\n%s\r\n%s"
	lastChunk   = "0\r\n\r\n"
)

// proxyFaults are injected into one request in a hundred each.
var proxyFaults = []proxyFault{
	{name: "refuse", class: "transport", instead: (*client).hangUp},
	{name: "reset", class: "transport", instead: (*client).reset},
	{name: "rate limit", class: "rate_limited", instead: answer("429 Too Many Requests", "application/json", `{"error":{"message":"slow down","type":"rate_limit_error","code":"rate_limit"}}`, "Retry-After: 1\r\n")},
	{name: "unavailable", class: "503", instead: answer("503 Service Unavailable", "application/json", `{"error":"loading"}`, "")},
	{name: "server error", class: "500", instead: answer("500 Internal Server Error", "text/html", "<html>oops</html>", "")},
	{name: "plain 404", class: "404", instead: answer("404 Not Found", "text/plain", "Not Found", "")},
	{name: "page", class: "protocol", instead: answer("200 OK", "text/html", "<html>sign in</html>", "")},
	{name: "no HTTP", class: "protocol", instead: func(c *client) bool { c.say("SSH-2.0-proxy\r\n"); return false }},
	{name: "silence", class: "first_token_timeout", instead: (*client).wait},

	{name: "cut", class: "transport", after: (*client).hangUp},
	{name: "cut and reset", class: "transport", after: (*client).reset},
	{name: "silent death", class: "incomplete", after: func(c *client) bool { c.say(lastChunk); return true }},
	{name: "error event", class: "stream_error", after: func(c *client) bool { c.chunk(brokenEvent); c.say(lastChunk); return true }},
	{name: "error event and [DONE]", class: "stream_error", after: func(c *client) bool { c.chunk(brokenEvent + "data: [DONE]\n\n"); c.say(lastChunk); return true }},
	{name: "broken event", class: "protocol", after: func(c *client) bool { c.chunk("data: {\"choices\":[{\n\n"); c.say(lastChunk); return true }},
	{name: "broken framing", class: "protocol", after: func(c *client) bool { c.say("zz\r\nxx\r\n"); return false }},
	{name: "endless line", class: "limit", after: (*client).endless},
	{name: "stall", class: "idle_timeout", after: (*client).wait},
	{name: "wrong content type", class: "protocol", media: "text/plain"},

	{name: "slow accept", late: 300 * time.Millisecond},
	{name: "tiny writes", whole: func(c *client, body io.Reader) error {
		// Only the first bytes: a whole reply would occupy a core for a second, which would affect the others.
		if err := c.pass(io.LimitReader(body, 2000), 1, nil); err != nil {
			return err
		}
		return c.pass(body, 0, nil)
	}},
	{name: "CRLF", whole: func(c *client, body io.Reader) error {
		return c.pass(body, 0, func(b []byte) []byte { return bytes.ReplaceAll(b, []byte("\n"), []byte("\r\n")) })
	}},
	{name: "comments", whole: func(c *client, body io.Reader) error {
		c.chunk(": keep-alive\n\n")
		return c.pass(body, 0, nil)
	}},
	{name: "all at once", whole: func(c *client, body io.Reader) error {
		all, err := io.ReadAll(body)
		if err != nil {
			return err
		}
		return c.pass(bytes.NewReader(all), len(all), nil)
	}},
}

// answer returns a function that answers with a reply of the proxy's own.
func answer(status, media, body, header string) func(c *client) bool {
	return func(c *client) bool {
		c.say(fmt.Sprintf(refusal, status, media, len(body), header, body))
		return true
	}
}

// faultProxy is between agent and engine, forwards HTTP/1.1, and breaks what its table says. A row's number alone determines how it is
// broken, so a request that is sent again meets the same fault.
type faultProxy struct {
	url, engine string
	off         bool // pass everything

	mu   sync.Mutex
	seen map[int64][]string // by row: the fault of each attempt, "" for none
}

// startFaultProxy serves until the test ends.
func startFaultProxy(t *testing.T, engineURL string, off bool) *faultProxy {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &faultProxy{
		url: "http://" + listener.Addr().String(), engine: strings.TrimPrefix(engineURL, "http://"),
		off: off, seen: map[int64][]string{},
	}
	var connections sync.WaitGroup
	open := map[net.Conn]bool{}
	connections.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			p.mu.Lock()
			open[conn] = true
			p.mu.Unlock()
			connections.Go(func() {
				p.serve(conn)
				_ = conn.Close()
				p.mu.Lock()
				delete(open, conn)
				p.mu.Unlock()
			})
		}
	})
	t.Cleanup(func() {
		_ = listener.Close()
		p.mu.Lock()
		for conn := range open {
			_ = conn.Close()
		}
		p.mu.Unlock()
		connections.Wait()
	})
	return p
}

// rowOf returns the row of a request: its X-Request-Id from the agent ends with it.
func rowOf(header string) (int64, bool) {
	_, row, found := cutLast(header, "-")
	n, err := strconv.ParseInt(row, 10, 64)
	return n, found && err == nil
}

func cutLast(s, sep string) (before, after string, found bool) {
	if i := strings.LastIndex(s, sep); i >= 0 {
		return s[:i], s[i+len(sep):], true
	}
	return s, "", false
}

// faultOf returns the fault of a row, nil for none. 100 consecutive rows meet each fault once.
func faultOf(row int64) *proxyFault {
	if i := (37*row + 11) % 100; i < int64(len(proxyFaults)) {
		return &proxyFaults[i]
	}
	return nil
}

// draw returns the fault of a request, and records it.
func (p *faultProxy) draw(r *http.Request) *proxyFault {
	row, ok := rowOf(r.Header.Get("X-Request-Id"))
	if !ok { // calibration, or the list of models
		return nil
	}
	fault, name := faultOf(row), ""
	if p.off {
		fault = nil
	}
	if fault != nil {
		name = fault.name
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.seen[row] = append(p.seen[row], name)
	return fault
}

// client is the agent's side of a connection.
type client struct {
	net.Conn

	in *bufio.Reader
}

// serve forwards requests, each connection of the agent over one to the engine.
func (p *faultProxy) serve(conn net.Conn) {
	c := &client{conn, bufio.NewReader(conn)}
	var engine net.Conn
	var replies *bufio.Reader
	leave := func() {
		if engine != nil {
			_ = engine.Close()
			engine = nil
		}
	}
	defer leave()
	for {
		request, err := http.ReadRequest(c.in)
		if err != nil {
			return
		}
		fault := p.draw(request)
		if fault != nil && fault.instead != nil {
			if _, err := io.Copy(io.Discard, request.Body); err != nil || !fault.instead(c) {
				return
			}
			continue
		}
		if fault != nil {
			time.Sleep(fault.late)
		}
		if engine == nil {
			if engine, err = net.Dial("tcp", p.engine); err != nil {
				return
			}
			replies = bufio.NewReader(engine)
		}
		if request.Write(engine) != nil {
			return
		}
		reply, err := http.ReadResponse(replies, request)
		if err != nil {
			return
		}
		cut, usable := c.relay(reply, fault)
		if cut {
			leave() // before the body's end, for which the agent's next request must not wait
		}
		_ = reply.Body.Close() // at its end, or on a closed connection
		if !usable {
			return
		}
	}
}

// relay forwards a reply. It reports whether the engine's connection still has the rest of it, and whether the agent's connection can
// still be used.
func (c *client) relay(reply *http.Response, fault *proxyFault) (cut, usable bool) {
	if fault != nil && fault.media != "" {
		reply.Header.Set("Content-Type", fault.media)
	}
	var head bytes.Buffer
	fmt.Fprintf(&head, "HTTP/1.1 %s\r\nTransfer-Encoding: chunked\r\n", reply.Status)
	reply.Header.Del("Content-Length")
	_ = reply.Header.Write(&head) // a buffer takes everything
	head.WriteString("\r\n")
	c.say(head.String())
	switch {
	case fault == nil || fault.after == nil && fault.whole == nil:
		if c.pass(reply.Body, 0, nil) != nil {
			return true, false
		}
	case fault.whole != nil:
		if fault.whole(c, reply.Body) != nil {
			return true, false
		}
	default:
		if first, err := firstEvent(reply.Body); err == nil {
			c.chunk(first)
		}
		return true, fault.after(c)
	}
	c.say(lastChunk)
	return false, true
}

// firstEvent reads a stream up to the end of its first event.
func firstEvent(body io.Reader) (string, error) {
	var event []byte
	one := make([]byte, 1)
	for !bytes.HasSuffix(event, []byte("\n\n")) {
		if _, err := io.ReadFull(body, one); err != nil {
			return "", err
		}
		event = append(event, one[0])
	}
	return string(event), nil
}

// pass writes a body as it arrives, in chunks of at most piece bytes (0 = no limit), after applying change.
func (c *client) pass(body io.Reader, piece int, change func([]byte) []byte) error {
	buffer := make([]byte, 32<<10)
	for {
		n, err := body.Read(buffer)
		if n > 0 {
			text := buffer[:n]
			if change != nil {
				text = change(text)
			}
			for len(text) > 0 {
				size := len(text)
				if piece > 0 {
					size = min(size, piece)
				}
				if _, err := fmt.Fprintf(c, "%x\r\n%s\r\n", size, text[:size]); err != nil {
					return err
				}
				text = text[size:]
			}
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// say writes bytes unchanged. If the agent has gone, the next read shows it.
func (c *client) say(text string) { _, _ = io.WriteString(c, text) }

func (c *client) chunk(text string) { c.say(fmt.Sprintf("%x\r\n%s\r\n", len(text), text)) }

func (c *client) hangUp() bool { return false }

func (c *client) reset() bool {
	_ = c.Conn.(*net.TCPConn).SetLinger(0)
	return false
}

// wait is silent until the agent disconnects.
func (c *client) wait() bool {
	_, _ = io.Copy(io.Discard, c.in)
	return false
}

// endless writes a line without an end, until the agent disconnects.
func (c *client) endless() bool {
	c.chunk(`data: {"padding":"`)
	for piece := strings.Repeat("x", 256<<10); ; {
		if _, err := fmt.Fprintf(c, "%x\r\n%s\r\n", len(piece), piece); err != nil {
			return false
		}
	}
}
