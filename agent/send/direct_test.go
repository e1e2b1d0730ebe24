// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package send

import (
	"bufio"
	"context"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/moonloop/moonloop/agent/clock"
)

// TestSameOnTheWire: both ways of sending a request give the server the same lines and the same body.
func TestSameOnTheWire(t *testing.T) {
	sent := func(by way, cfg Config, header []Field) (lines []string) {
		got := make(chan []string, 1)
		cfg.way = by
		cfg.URL = serve(t, func(c net.Conn) {
			br := bufio.NewReader(c)
			var lines []string
			length := 0
			for {
				line, err := br.ReadString('\n')
				if err != nil {
					return
				}
				if n, ok := strings.CutPrefix(line, "Content-Length: "); ok {
					length, _ = strconv.Atoi(strings.TrimSpace(n))
				}
				if line == "\r\n" {
					break
				}
				lines = append(lines, line)
			}
			body := make([]byte, length)
			if _, err := io.ReadFull(br, body); err != nil {
				t.Error(err)
			}
			slices.Sort(lines[3:]) // after the request line, the host and the agent; the order of the other lines is arbitrary
			got <- append(lines, string(body))
			_, _ = io.WriteString(c, sse(chunkA, finish, done))
		}) + "/x y/é?k=v w"
		c := client(t, cfg)
		req := post(`{"prompt":"` + strings.Repeat("a", 5000) + `"}`)
		req.Header = header
		if want := by == byDirect; c.direct.takes(req) != want {
			t.Errorf("a request with %v and %v goes directly: %t", cfg.Header, header, !want)
		}
		var x Exchange
		c.Do(t.Context(), req, &x)
		if x.Err != nil {
			t.Fatal(x.Err)
		}
		lines = <-got
		lines[1] = "Host"                                              // each has a server of its own
		if n := int64(len(strings.Join(lines, ""))); x.BytesSent < n { // the sent bytes also include the host's address and an empty line
			t.Errorf("%d bytes sent, the server got %d and more", x.BytesSent, n)
		}
		return lines
	}
	for _, c := range []struct {
		cfg    Config
		header []Field
	}{
		{Config{}, nil},
		{Config{APIKey: "secret", Header: http.Header{"x-team": {"a", "b"}, "Empty": {""}}}, []Field{{"Traceparent", "00-1"}, {"X-Request-Id", "r-1"}}},
		{Config{Reuse: ReuseNever, Header: http.Header{"User-Agent": {"other"}, "Accept": {"*/*"}}}, []Field{{"X-One", "1"}}},
	} {
		if diff := cmp.Diff(sent(byNetHTTP, c.cfg, c.header), sent(byDirect, c.cfg, c.header)); diff != "" {
			t.Errorf("(-net/http +direct):\n%s", diff)
		}
	}
}

// TestGoesByNetHTTP: a request that changes how a connection is used, or cannot be written unchanged, goes through net/http. So does a
// request on something other than a socket, or one that is not sent in one write.
func TestGoesByNetHTTP(t *testing.T) {
	header := func(name, value string) http.Header { return http.Header{name: {value}} }
	for name, c := range map[string]struct {
		cfg  Config
		req  []Field
		body int
	}{
		"TLS":                       {cfg: Config{URL: "https://h"}},
		"HTTP/2":                    {cfg: Config{HTTP2: true}},
		"no socket":                 {cfg: Config{DialContext: new(net.Dialer).DialContext}},
		"stamps after the read":     {cfg: Config{NoKernelStamps: true}},
		"a connection header":       {cfg: Config{Header: header("connection", "close")}},
		"expectation":               {cfg: Config{Header: header("Expect", "100-continue")}},
		"a request's own host":      {req: []Field{{"Host", "other"}}},
		"a request's own API key":   {cfg: Config{APIKey: "k"}, req: []Field{{"Authorization", "other"}}},
		"a field of two lines":      {req: []Field{{"X", "a\nb"}}},
		"a field with a last blank": {req: []Field{{"X", "a "}}},
		"no body":                   {body: -1},
		"a long body":               {body: maxDirect + 1},
	} {
		if c.cfg.URL == "" {
			c.cfg.URL = "http://h"
		}
		req := post(strings.Repeat("x", max(0, c.body+10*btoi(c.body == 0))))
		req.Header = c.req
		if client(t, c.cfg).direct.takes(req) {
			t.Errorf("%s: it goes directly", name)
		}
	}
	if req := post(strings.Repeat("x", maxDirect)); client(t, Config{URL: "http://h"}).direct.takes(req) != haveSockets {
		t.Error("a short body goes by net/http")
	}
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

// TestIdleConnectionsEnd: a connection is kept as long as net/http keeps one, and no longer. None is kept after Close.
func TestIdleConnectionsEnd(t *testing.T) {
	for name, by := range ways {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var open, dialled atomic.Int64
				dial := piped(func(c net.Conn) {
					open.Add(1)
					dialled.Add(1)
					play([]step{{time.Second, sse(chunkA, finish, done)}})(c)
					open.Add(-1)
				})
				c, err := New(Config{URL: "http://engine", DialContext: dial, way: by}, clock.New())
				if err != nil {
					t.Fatal(err)
				}
				do := func() {
					var x Exchange
					c.Do(t.Context(), post("{}"), &x)
					if x.Err != nil {
						t.Error(x.Err)
					}
				}
				go do()
				time.Sleep(time.Millisecond)
				do()
				synctest.Wait()
				time.Sleep(idleConnTimeout - 2*time.Second)
				do()
				synctest.Wait()
				if open.Load() != 2 || dialled.Load() != 2 {
					t.Errorf("%d of %d connections are open, want 2 of 2", open.Load(), dialled.Load())
				}
				time.Sleep(3 * time.Second)
				synctest.Wait()
				if open.Load() != 1 {
					t.Errorf("%d connections are open when one has been idle for %v, want 1", open.Load(), idleConnTimeout)
				}
				time.Sleep(idleConnTimeout)
				synctest.Wait()
				if open.Load() != 0 {
					t.Errorf("%d connections are open when all have been idle, want none", open.Load())
				}
				go do()
				time.Sleep(time.Millisecond)
				c.Close()
				time.Sleep(2 * time.Second)
				synctest.Wait()
				if open.Load() != 0 {
					t.Errorf("%d connections are open when their client has been closed, want none", open.Load())
				}
			})
		})
	}
}

// TestEndsBetween: if a server closes an idle connection, or sends something on it without a request, the next request uses a new
// connection, and does not count as sent again.
func TestEndsBetween(t *testing.T) {
	for name, end := range map[string]func(net.Conn) bool{
		"closed": func(net.Conn) bool { return false },
		"408": func(c net.Conn) bool {
			_, err := io.WriteString(c, "HTTP/1.1 408 Request Timeout\r\nConnection: close\r\nContent-Length: 0\r\n\r\n")
			return err == nil
		},
	} {
		ended := make(chan bool, 1)
		url := serve(t, func(c net.Conn) {
			requests(c, func(*http.Request, string) bool {
				if _, err := io.WriteString(c, sse(chunkA, finish, done)); err != nil {
					return false
				}
				time.Sleep(20 * time.Millisecond) // so that it is not part of the reply
				defer func() { ended <- true }()
				return end(c)
			})
		})
		c := client(t, Config{URL: url})
		for n := range 2 {
			var x Exchange
			c.Do(context.WithoutCancel(t.Context()), post("{}"), &x)
			if x.Err != nil || x.Replays != 0 || x.Resent != 0 || x.Reused {
				t.Errorf("%s, request %d: %d replays, %d resent, reused %t: %v", name, n, x.Replays, x.Resent, x.Reused, x.Err)
			}
			<-ended
			time.Sleep(20 * time.Millisecond) // the end of a connection takes its time
		}
	}
}

// TestEndsAtAnyTime: however the end of a kept connection falls between the steps of the next request, that request is answered, or fails after
// it was sent again; it never waits for a reply that cannot come.
func TestEndsAtAnyTime(t *testing.T) {
	pause := func() { time.Sleep(time.Duration(rand.IntN(200)) * time.Microsecond) }
	url := serve(t, func(c net.Conn) {
		requests(c, func(*http.Request, string) bool {
			if _, err := io.WriteString(c, sse(chunkA, finish, done)); err != nil {
				return false
			}
			switch rand.IntN(4) {
			case 0:
				pause()
				return false
			case 1: // it reads on, and cannot answer
				pause()
				return c.(*net.TCPConn).CloseWrite() == nil
			}
			return true
		})
	})
	c := client(t, Config{URL: url, TotalTimeout: 20 * time.Second})
	c.manner.reused() // else a connection that ends soon after its first stream would be the last one that is kept
	var all sync.WaitGroup
	var served, reused atomic.Int64
	for range 8 {
		all.Go(func() {
			for i := range 200 {
				req := post("{}")
				if i%2 > 0 {
					req.Gate = new(Gate)
					all.Go(func() {
						pause()
						req.Gate.Open(c.clk.Now())
					})
				}
				var x Exchange
				c.Do(t.Context(), req, &x)
				switch {
				case x.Err == nil:
					served.Add(1)
				case x.Resent == 0:
					t.Errorf("request %d, which was not sent again: %v", i, x.Err)
				}
				reused.Add(int64(btoi(x.Reused)))
			}
		})
	}
	all.Wait()
	if served.Load() < 1000 || reused.Load() < 100 {
		t.Errorf("%d served of 1600, %d by a kept connection", served.Load(), reused.Load())
	}
}

// TestInformational: informational replies before the final one are passed over, as by net/http, and their size is bounded.
func TestInformational(t *testing.T) {
	for name, by := range ways {
		const informational = "HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n"
		for n, served := range map[int]bool{1: true, 20: true, maxHeaders/len(informational) + 1: false} {
			x := once(t, post("{}"), Config{way: by}, strings.Repeat(informational, n)+sse(chunkA, finish, done), true)
			if (x.Err == nil) != served {
				t.Errorf("%s, %d informational replies: %v", name, n, x.Err)
			}
		}
	}
}
