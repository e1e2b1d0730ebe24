// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package send

// These tests look at what the kernel has when a gate has been opened.

import (
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/moonloop/moonloop/agent/clock"
)

// armed waits until a request is ready at its gate: only its write is left.
func armed(t *testing.T, g *Gate) {
	t.Helper()
	for range 5000 {
		g.mu.Lock()
		ready := g.armed != nil
		g.mu.Unlock()
		if ready {
			return
		}
		time.Sleep(time.Millisecond)
	}
	t.Fatal("the request does not reach its gate")
}

// TestOpenWrites: when Open returns, the server's kernel has the whole request, whether the request's goroutine has run or not.
func TestOpenWrites(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c := client(t, Config{URL: "http://" + l.Addr().String()})
	body := strings.Repeat("b", maxDirect)
	req := post(body)
	req.Gate = new(Gate)
	var x Exchange
	var all sync.WaitGroup
	all.Go(func() { c.Do(t.Context(), req, &x) })
	server, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	armed(t, req.Gate)
	if n := waiting(t, server); n != 0 {
		t.Errorf("%d bytes came before the gate was open", n)
	}
	req.Gate.Open(c.clk.Now())
	if n := waiting(t, server); n < len(body) {
		t.Errorf("%d bytes had come when the gate was open, want a body of %d and its headers", n, len(body))
	}
	if _, err := io.WriteString(server, sse(chunkA, finish, done)); err != nil {
		t.Fatal(err)
	}
	all.Wait()
	if x.Err != nil || x.Wire == clock.Never || x.WireLate || x.BytesSent < int64(len(body)) {
		t.Errorf("wire %v, late %t, %d bytes sent: %v", x.Wire, x.WireLate, x.BytesSent, x.Err)
	}
}

// TestOpenDoesNotWait: where the kernel has no room for a request, Open returns, and the rest follows when there is room.
func TestOpenDoesNotWait(t *testing.T) {
	got := make(chan string, 1)
	before := make(chan int64, 1) // bytes before the request
	read := make(chan struct{})
	url := serve(t, func(c net.Conn) {
		<-read
		if _, err := io.CopyN(io.Discard, c, <-before); err != nil {
			t.Error(err)
		}
		requests(c, func(_ *http.Request, body string) bool {
			got <- body
			_, err := io.WriteString(c, sse(chunkA, finish, done))
			return err == nil
		})
	})
	c := client(t, Config{URL: url})
	c.direct.dial = func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := new(net.Dialer).DialContext(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		k := newConn(conn, c.wall, true)
		if err := conn.(*net.TCPConn).SetWriteBuffer(1); err != nil {
			return nil, err
		}
		before <- fill(t, k)
		return k, nil
	}
	req := post(strings.Repeat("b", maxDirect))
	req.Gate = new(Gate)
	var x Exchange
	var all sync.WaitGroup
	all.Go(func() { c.Do(t.Context(), req, &x) })
	armed(t, req.Gate)
	req.Gate.Open(c.clk.Now())
	select {
	case <-req.Gate.decided():
		t.Error("the gate says that the request was sent, but the kernel has no room for it")
	default:
	}
	close(read)
	all.Wait()
	if x.Err != nil || len(<-got) != maxDirect {
		t.Error(x.Err)
	}
}

// TestDiesAtGate: a kept connection that ends while its request waits at the gate is replaced before the gate opens. The request does not
// count as sent again, because the server cannot have begun it.
func TestDiesAtGate(t *testing.T) {
	end := make(chan struct{})
	var served atomic.Int64
	url := serve(t, func(c net.Conn) {
		first := served.Load() == 0
		requests(c, func(*http.Request, string) bool {
			served.Add(1)
			_, err := io.WriteString(c, sse(chunkA, finish, done))
			if first {
				<-end
			}
			return err == nil && !first
		})
	})
	c := client(t, Config{URL: url})
	var x Exchange
	c.Do(t.Context(), post("{}"), &x)
	req := post("{}")
	req.Gate = new(Gate)
	var all sync.WaitGroup
	all.Go(func() { c.Do(t.Context(), req, &x) })
	armed(t, req.Gate)
	close(end)
	req.Gate.mu.Lock()
	dead := req.Gate.armed
	req.Gate.mu.Unlock()
	for range 5000 {
		req.Gate.mu.Lock()
		now := req.Gate.armed
		req.Gate.mu.Unlock()
		if now != nil && now != dead {
			break
		}
		time.Sleep(time.Millisecond)
	}
	at := c.clk.Now()
	req.Gate.Open(at)
	all.Wait()
	if x.Err != nil || x.Reused || x.Replays != 0 || x.Resent != 0 || x.Start != at || x.Phases.Connect == 0 {
		t.Errorf("reused %t, %d replays, %d resent, start %v, want %v: %v", x.Reused, x.Replays, x.Resent, x.Start, at, x.Err)
	}
	if n := served.Load(); n != 2 {
		t.Errorf("the server had %d requests, want 2", n)
	}
}

// waiting returns how many bytes the kernel has for a connection's reader.
func waiting(t *testing.T, c net.Conn) (n int) {
	t.Helper()
	raw, err := c.(*net.TCPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	if err := raw.Control(func(fd uintptr) { n, err = unix.IoctlGetInt(int(fd), unix.TIOCINQ) }); err != nil || n < 0 {
		t.Fatal(n, err)
	}
	return n
}

// fill writes until the kernel accepts no more, and returns how much that was.
func fill(t *testing.T, c *conn) (all int64) {
	t.Helper()
	for blank := make([]byte, 1<<16); ; {
		n, err := c.WriteNow(blank)
		if err != nil {
			t.Fatal(err)
		}
		if all += int64(n); n < len(blank) {
			return all
		}
	}
}

// TestBusy: an exchange is at rest while it waits for a reply in which no gaps are measured, and busy otherwise.
func TestBusy(t *testing.T) {
	for _, c := range []struct {
		name string
		cfg  Config
		req  func(*Request)
		rest bool
	}{
		{"one token", Config{}, func(r *Request) { r.ExpectTokens = 1 }, true},
		{"one token, with a gate", Config{}, func(r *Request) { r.ExpectTokens, r.Gate = 1, new(Gate) }, true},
		{"no stream", Config{}, func(r *Request) { r.Stream = false }, true},
		{"a stream of tokens", Config{}, func(r *Request) { r.ExpectTokens = 2 }, false},
		{"a stream of unknown length", Config{}, func(r *Request) { r.ExpectTokens = 0 }, false},
		{"closed on purpose", Config{}, func(r *Request) { r.ExpectTokens, r.HangUp = 1, time.Hour }, false},
		{"whose reply is needed", Config{}, func(r *Request) { r.ExpectTokens, r.KeepReply = 1, true }, false},
		{"with a short timeout", Config{TotalTimeout: time.Second - 1}, func(r *Request) { r.ExpectTokens = 1 }, false},
		{"by net/http", Config{way: byNetHTTP}, func(r *Request) { r.ExpectTokens = 1 }, false},
		{"without kernel timestamps", Config{NoKernelStamps: true}, func(r *Request) { r.ExpectTokens = 1 }, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			var busy atomic.Int64
			came, reply := make(chan struct{}), make(chan struct{})
			c.cfg.URL = serve(t, func(conn net.Conn) {
				requests(conn, func(*http.Request, string) bool {
					close(came)
					<-reply
					_, _ = io.WriteString(conn, sse(chunkA))
					return false
				})
			})
			req := post("hello")
			req.KeepReply = false
			c.req(req)
			req.Busy = &busy
			engine := client(t, c.cfg)
			engine.brevity.score.Store(maxScore)
			var x Exchange
			var all sync.WaitGroup
			all.Go(func() {
				busy.Add(1)
				engine.Do(t.Context(), req, &x)
			})
			want := int64(1)
			if c.rest {
				want = 0
			}
			if req.Gate != nil {
				armed(t, req.Gate)
				if n := busy.Load(); n != want {
					t.Errorf("%d busy while it waits for its gate, want %d", n, want)
				}
				req.Gate.Open(engine.clk.Now())
			}
			<-came
			if n := busy.Load(); n != want {
				t.Errorf("%d busy while it waits for the reply, want %d", n, want)
			}
			close(reply)
			all.Wait()
			if n := busy.Load(); n != 1 {
				t.Errorf("%d busy after the reply, want 1", n)
			}
		})
	}
}

// TestBrevity: exchanges rest only if the server's replies come as a whole, and no longer if they do not.
func TestBrevity(t *testing.T) {
	var pieces atomic.Bool
	var busy, rested atomic.Int64
	url := serve(t, func(conn net.Conn) {
		requests(conn, func(*http.Request, string) bool {
			if busy.Load() == 0 {
				rested.Add(1)
			}
			head, rest, _ := strings.Cut(sse(chunkA, finish, done), "\r\n\r\n")
			if !pieces.Load() {
				_, err := io.WriteString(conn, head+"\r\n\r\n"+rest)
				return err == nil
			}
			_, _ = io.WriteString(conn, head+"\r\n\r\n")
			time.Sleep(2 * time.Millisecond)
			_, err := io.WriteString(conn, rest)
			return err == nil
		})
	})
	c := client(t, Config{URL: url})
	send := func(n int) (rests int64) {
		before := rested.Load()
		for range n {
			req := post("hello")
			req.KeepReply, req.ExpectTokens, req.Busy = false, 1, &busy
			var x Exchange
			busy.Add(1)
			c.Do(t.Context(), req, &x)
			busy.Add(-1)
			if x.Err != nil {
				t.Fatal(x.Err)
			}
		}
		return rested.Load() - before
	}
	if n := send(provenScore); n > 0 {
		t.Errorf("%d of the first %d exchanges were at rest", n, provenScore)
	}
	n := send(2 * sampled)
	for range 20 { // on a busy machine, many replies are not read at once
		if n > 0 {
			break
		}
		n = send(2 * sampled)
	}
	if n == 0 || n == 2*sampled {
		t.Errorf("%d of %d exchanges were at rest, want most, and not those of the sample", n, 2*sampled)
	}
	pieces.Store(true)
	for range 20 { // samples of late replies
		if send(sampled/2) == 0 {
			return
		}
	}
	t.Error("exchanges are at rest although replies come in pieces")
}
