// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package send

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/moonloop/moonloop/agent/clock"
)

// TestGate holds a request back in virtual time: its connection is made before the gate opens, but nothing is sent.
func TestGate(t *testing.T) {
	for name, by := range ways {
		t.Run(name, func(t *testing.T) {
			const wait, reply = 40 * time.Millisecond, 300 * time.Millisecond
			for _, reused := range []bool{false, true} {
				synctest.Test(t, func(t *testing.T) {
					clk := clock.New()
					var dialled, arrived atomic.Int64 // instants, ns
					steps := []step{{reply, sseHead + oneEvent(chunkA) + oneEvent(finish) + oneEvent(done) + lastChunk}}
					dial := piped(func(c net.Conn) {
						dialled.Store(int64(clk.Now()))
						play(steps)(noteReads{c, func() { arrived.CompareAndSwap(0, int64(clk.Now())) }})
					})
					c, err := New(Config{
						way: by,
						URL: "http://engine", DialContext: dial,
						// Each would fire if it counted from the beginning.
						FirstTokenTimeout: reply + time.Millisecond, TotalTimeout: reply + 5*time.Millisecond,
					}, clk)
					if err != nil {
						t.Fatal(err)
					}
					defer synctest.Wait()
					defer c.Close()
					if reused {
						var x Exchange
						c.Do(t.Context(), post("{}"), &x)
						arrived.Store(0)
					}
					began := clk.Now()
					req := post("{}")
					req.Gate = new(Gate)
					time.AfterFunc(wait, func() { req.Gate.Open(clk.Now()) })
					var x Exchange
					c.Do(t.Context(), req, &x)
					due := began + wait
					if x.Err != nil || x.Start != due || x.Wire != due || x.FirstByte != due+reply || x.Reused != reused {
						t.Errorf("start %v, wire %v, first byte %v, want %v, %v, %v; reused %t: %v", x.Start, x.Wire, x.FirstByte, due, due, due+reply, x.Reused, x.Err)
					}
					if got := time.Duration(arrived.Load()); got != due {
						t.Errorf("the first byte reached the server at %v, want %v", got, due)
					}
					if got := time.Duration(dialled.Load()); !reused && got != began {
						t.Errorf("dialled at %v, want %v", got, began)
					}
				})
			}
		})
	}
}

// noteReads calls a function after each read that returned bytes.
type noteReads struct {
	net.Conn
	note func()
}

func (c noteReads) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if n > 0 {
		c.note()
	}
	return n, err
}

// TestGateShut ends a request through its gate and through its context, before the request has a connection and while it has one.
func TestGateShut(t *testing.T) {
	for name, by := range ways {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var got atomic.Int64
				server := piped(func(c net.Conn) {
					n, _ := io.Copy(io.Discard, c)
					got.Add(n)
				})
				slow := func(ctx context.Context, network, addr string) (net.Conn, error) {
					time.Sleep(time.Second)
					return server(ctx, network, addr)
				}
				for name, dial := range map[string]func(context.Context, string, string) (net.Conn, error){"connected": server, "dialling": slow} {
					for _, cancelled := range []bool{false, true} {
						c, err := New(Config{way: by, URL: "http://engine", DialContext: dial}, clock.New())
						if err != nil {
							t.Fatal(err)
						}
						ctx, cancel := context.WithCancel(t.Context())
						req := post("{}")
						req.Gate = new(Gate)
						end := req.Gate.Shut
						if cancelled {
							end = cancel
						}
						time.AfterFunc(time.Millisecond, end)
						var x Exchange
						c.Do(ctx, req, &x)
						if x.Err == nil || x.Wire != clock.Never || !cancelled && !errors.Is(x.Err, errShut) {
							t.Errorf("%s, cancelled %t: wire %v: %v", name, cancelled, x.Wire, x.Err)
						}
						if at := req.Gate.since(7); at != 7 {
							t.Errorf("%s: a gate that is not open says that it is, since %v", name, at)
						}
						cancel()
						c.Close()
						time.Sleep(2 * time.Second)
					}
				}
				synctest.Wait()
				if n := got.Load(); n != 0 {
					t.Errorf("%d bytes of requests that were given up reached the server", n)
				}
			})
		})
	}
}

// TestGateShutKeepsConnections: a request that is cancelled on a kept connection is not tried on others.
func TestGateShutKeepsConnections(t *testing.T) {
	for name, by := range ways {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var dials atomic.Int64
				steps := []step{{time.Millisecond, sseHead + oneEvent(chunkA) + oneEvent(finish) + oneEvent(done) + lastChunk}}
				pipe := piped(play(steps))
				c, err := New(Config{way: by, URL: "http://engine", DialContext: func(ctx context.Context, n, a string) (net.Conn, error) {
					dials.Add(1)
					return pipe(ctx, n, a)
				}}, clock.New())
				if err != nil {
					t.Fatal(err)
				}
				defer synctest.Wait()
				defer c.Close()
				var all sync.WaitGroup
				for range 5 { // five kept connections
					all.Go(func() {
						var x Exchange
						c.Do(t.Context(), post("{}"), &x)
					})
				}
				all.Wait()
				ctx, cancel := context.WithCancel(t.Context())
				req := post("{}")
				req.Gate = new(Gate)
				time.AfterFunc(time.Millisecond, func() {
					cancel()
					req.Gate.Shut()
				})
				var x Exchange
				c.Do(ctx, req, &x)
				if x.Err == nil || x.Replays != 0 {
					t.Errorf("%d replays: %v", x.Replays, x.Err)
				}
				for range 4 {
					all.Go(func() {
						var x Exchange
						c.Do(t.Context(), post("{}"), &x)
					})
				}
				all.Wait()
				if n := dials.Load(); n != 5 {
					t.Errorf("%d connections were made, want 5: one was given up, four are left", n)
				}
			})
		})
	}
}

// TestGateRetry: a refusal after the gate is retried as without a gate, with timeouts that start when the gate opens.
func TestGateRetry(t *testing.T) {
	for name, by := range ways {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				clk := clock.New()
				n := 0
				c, err := New(Config{
					way: by,
					URL: "http://engine", Retries: 2, RetryWait: time.Second, IdleTimeout: 1500 * time.Millisecond, TotalTimeout: 2100 * time.Millisecond,
					DialContext: piped(func(c net.Conn) {
						requests(c, func(*http.Request, string) bool {
							reply := sse(chunkA, finish, done)
							if n++; n == 1 {
								reply = "HTTP/1.1 503 Busy\r\nRetry-After: 2\r\nContent-Length: 0\r\n\r\n"
							}
							_, err := io.WriteString(c, reply)
							return err == nil
						})
					}),
				}, clk)
				if err != nil {
					t.Fatal(err)
				}
				defer synctest.Wait()
				defer c.Close()
				req := post("{}")
				req.Gate = new(Gate)
				time.AfterFunc(500*time.Millisecond, func() { req.Gate.Open(clk.Now()) })
				var x Exchange
				c.Do(t.Context(), req, &x)
				if x.Err != nil || x.Attempts != 2 || x.Start != 500*time.Millisecond || x.End != 2500*time.Millisecond {
					t.Errorf("%d attempts, from %v to %v: %v", x.Attempts, x.Start, x.End, x.Err)
				}
			})
		})
	}
}

// TestOneWrite: on a plain connection, a request is one write of all its headers and its whole body, unless one of them is very long.
func TestOneWrite(t *testing.T) {
	for _, tc := range []struct {
		name         string
		header, body int
		writes       int // 0 = not checked
	}{
		{"short", 10, 2 << 10, 1},
		{"headers beyond net/http's buffer", 9 << 10, 2 << 10, 1},
		{"headers too long to wait for the body", 40 << 10, 2 << 10, 0},
		{"a long prompt", 10, 20 << 10, 1},
		{"a prompt of several buffers", 10, 100 << 10, 0},
	} {
		var writes atomic.Int64
		var mu sync.Mutex
		var got string
		url := serve(t, func(c net.Conn) {
			requests(c, func(r *http.Request, body string) bool {
				mu.Lock()
				got = r.Header.Get("X-Long") + body
				mu.Unlock()
				_, err := io.WriteString(c, sse(chunkA, finish, done))
				return err == nil
			})
		})
		dial := func(ctx context.Context, network, addr string) (net.Conn, error) {
			c, err := new(net.Dialer).DialContext(ctx, network, addr)
			return countWrites{c, &writes}, err
		}
		c := client(t, Config{URL: url, DialContext: dial})
		for range 2 {
			writes.Store(0)
			req := post(strings.Repeat("b", tc.body))
			req.Header = []Field{{"X-Long", strings.Repeat("h", tc.header)}}
			var x Exchange
			c.Do(t.Context(), req, &x)
			if x.Err != nil {
				t.Fatalf("%s: %v", tc.name, x.Err)
			}
			mu.Lock()
			if want := strings.Repeat("h", tc.header) + strings.Repeat("b", tc.body); got != want {
				t.Errorf("%s: the server got %d bytes, want %d", tc.name, len(got), len(want))
			}
			mu.Unlock()
			// net.Buffers writes one piece at a time if the connection is not net's own.
			if n := int(writes.Load()); tc.writes > 0 && n != 2*tc.writes {
				t.Errorf("%s: %d writes, want %d of two pieces", tc.name, n, tc.writes)
			}
			if x.BytesSent < int64(tc.header+tc.body) {
				t.Errorf("%s: %d bytes sent", tc.name, x.BytesSent)
			}
		}
	}
}

type countWrites struct {
	net.Conn
	n *atomic.Int64
}

func (c countWrites) Write(p []byte) (int, error) {
	c.n.Add(1)
	return c.Conn.Write(p)
}

// TestGateTLS: with TLS, too, the server sees nothing of a request before its gate is open.
func TestGateTLS(t *testing.T) {
	var arrived atomic.Int64
	clk := clock.New()
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		arrived.Store(int64(clk.Now()))
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", mediaEvents)
		_, _ = io.WriteString(w, "data: "+chunkA+"\n\ndata: "+finish+"\n\ndata: [DONE]\n\n")
	}))
	defer server.Close()
	c := client(t, Config{URL: server.URL, TLS: &tls.Config{RootCAs: server.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs}})
	for range 2 {
		req := post(strings.Repeat("b", 50<<10))
		req.Gate = new(Gate)
		var opened atomic.Int64
		time.AfterFunc(50*time.Millisecond, func() {
			opened.Store(int64(clk.Now()))
			req.Gate.Open(clk.Now())
		})
		var x Exchange
		c.Do(t.Context(), req, &x)
		if x.Err != nil {
			t.Fatal(x.Err)
		}
		if arrived.Load() < opened.Load() {
			t.Errorf("the request was there %v before its gate was opened", time.Duration(opened.Load()-arrived.Load()))
		}
	}
}
