// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package send

import (
	"io"
	"net"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/moonloop/moonloop/agent/clock"
)

// TestTruth compares arrivals with the instants at which the server wrote, on one machine and therefore on one clock.
func TestTruth(t *testing.T) {
	const chunks, gap = 40, 3 * time.Millisecond
	clk := clock.New()
	truth := make(chan []time.Duration, 1)
	url := serve(t, func(c net.Conn) {
		requests(c, func(*http.Request, string) bool {
			var wrote []time.Duration
			_, _ = io.WriteString(c, sseHead)
			for range chunks {
				time.Sleep(gap)
				wrote = append(wrote, clk.Now())
				if _, err := io.WriteString(c, chunked("data: "+chunkA+"\n\n")); err != nil {
					return false
				}
			}
			truth <- wrote
			_, _ = io.WriteString(c, chunked("data: "+finish+"\n\n")+lastChunk)
			return false
		})
	})
	// The kernel begins to timestamp some time after the first socket asks for it (much later on a busy machine), and stops when the last
	// socket is closed. So one socket stays open, and a stream that came too early is repeated.
	idle, err := net.Dial("tcp", strings.TrimPrefix(url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = idle.Close() }()
	newConn(idle, newWall(clk), true)
	for _, plain := range []bool{true, false} {
		c, err := New(Config{URL: url, NoKernelStamps: plain}, clk)
		if err != nil {
			t.Fatal(err)
		}
		var x Exchange
		var wrote []time.Duration
		want := runtime.GOOS == "linux" && !plain
		for try := 0; try == 0 || want && !x.KernelStamps && try < 20; try++ {
			c.Do(t.Context(), post("{}"), &x)
			if x.Err != nil || len(x.At) != chunks {
				t.Fatalf("%d chunks: %v", len(x.At), x.Err)
			}
			wrote = <-truth
		}
		c.Close()
		if x.KernelStamps != want {
			t.Errorf("kernel stamps %t, want %t", x.KernelStamps, want)
		}
		if _, used := c.ClockStep(); used != want {
			t.Errorf("ClockStep says kernel stamps in use: %t", used)
		}
		errs := make([]time.Duration, 0, chunks)
		for i := 1; i < chunks; i++ {
			errs = append(errs, (time.Duration(x.At[i]-x.At[i-1]) - (wrote[i] - wrote[i-1])).Abs())
		}
		slices.Sort(errs)
		if p50 := errs[len(errs)/2]; p50 > 5*time.Millisecond {
			t.Errorf("median error of the gaps %v", p50)
		}
		if early := slices.ContainsFunc(x.At, func(at int64) bool { return time.Duration(at) < wrote[0] }); early {
			t.Error("a chunk arrived before the first was written")
		}
		inOrder(t, &x)
	}
}

// TestConnBooks simulates the reads of a connection, and checks what the connection records.
func TestConnBooks(t *testing.T) {
	w := newWall(clock.New())
	reading := func(at int64) int64 { return at - w.Instant(0) } // the inverse of Instant
	now := func() int64 { return reading(int64(w.clk.Now())) }
	c := newConn(nil, w, false)
	first := c.begin(false)

	c.arrived(10, 100, now(), true)
	a, _ := c.look(first)
	if a.number != 1 || !a.kernel || !a.prompt || a.received != 10 {
		t.Errorf("a read that waited and was prompt: %+v", a)
	}
	c.arrived(10, 100, now()-int64(time.Second), true)
	b, _ := c.look(first)
	if b.number != 2 || b.prompt || b.at != a.at {
		t.Errorf("a stamp from before the last one should count as the last one, and not as prompt: %+v after %+v", b, a)
	}
	c.arrived(100, 100, now()+int64(time.Hour), true)
	if d, _ := c.look(first); d.number != 3 || d.at > int64(w.clk.Now()) || d.at < b.at {
		t.Errorf("a stamp from the future should count as now: %+v", d)
	}
	d, _ := c.look(first)
	c.arrived(5, 100, reading(d.at), false)
	if e, _ := c.look(first); e.number != 3 {
		t.Errorf("a read with the stamp of the read before, which filled its buffer, got number %d", e.number)
	}
	c.arrived(100, 100, now(), false)
	c.arrived(5, 100, now(), false)
	if e, _ := c.look(first); e.number != 5 {
		t.Errorf("stamps tell two reads apart, but the number is %d", e.number)
	}
	c.arrived(100, 100, 0, false)
	c.arrived(5, 100, 0, false)
	if e, _ := c.look(first); e.number != 6 || e.kernel || e.prompt {
		t.Errorf("without stamps, the second half of a full buffer: %+v", e)
	}

	second := c.begin(false)
	c.arrived(7, 100, 0, false)
	if e, ok := c.look(first); !ok || e.number != 6 || e.received == 7 {
		t.Errorf("the counters of the last exchange: %+v %t", e, ok)
	}
	if e, ok := c.look(second); !ok || e.number != 7 || e.received != 7 || e.wrote != clock.Never {
		t.Errorf("the counters of the next exchange: %+v %t", e, ok)
	}
	c.begin(false)
	if _, ok := c.look(first); ok {
		t.Error("counters are kept for more than one further exchange")
	}
}

// TestCoalesced: chunks of one read count as coalesced unless the kernel shows that the reader was waiting for them.
func TestCoalesced(t *testing.T) {
	s := stream{chunks: new(atomic.Int64), x: &Exchange{FirstAnswer: clock.Never}, flight: &flight{clk: clock.New()}, req: &Request{ExpectTokens: 8}}
	s.flight.guard.clk = s.flight.clk
	s.chunk.reset()
	for _, a := range []arrival{
		{number: 1}, {number: 1}, {number: 1}, // two coalesced
		{number: 2, kernel: true, prompt: true}, {number: 2, kernel: true, prompt: true}, // one segment
		{number: 3, kernel: true}, {number: 3, kernel: true}, // one coalesced
		{number: 4},
	} {
		s.stamp(a, true)
	}
	if s.x.Coalesced != 3 || len(s.x.At) != 8 {
		t.Errorf("%d of %d chunks coalesced, want 3 of 8", s.x.Coalesced, len(s.x.At))
	}
	s.x.Release()
	if s.x.At != nil || s.x.Read != nil || s.x.Tokens != nil {
		t.Error("Release left an array")
	}
}

// TestCoalescedOnASocket: whatever the timing, only chunks that share a read count as coalesced; without kernel timestamps, all of these
// do.
func TestCoalescedOnASocket(t *testing.T) {
	for _, plain := range []bool{true, false} {
		sent := make(chan struct{})
		url := serve(t, func(c net.Conn) {
			requests(c, func(*http.Request, string) bool {
				_, _ = io.WriteString(c, sseHead+chunked("data: "+chunkA+"\n\n"))
				for range 200 {
					_, _ = io.WriteString(c, chunked("data: "+chunkA+"\n\n"))
				}
				close(sent)
				_, _ = io.WriteString(c, chunked("data: "+finish+"\n\n")+lastChunk)
				return false
			})
		})
		c := client(t, Config{URL: url, NoKernelStamps: plain})
		var x Exchange
		c.Do(t.Context(), post("{}"), &x)
		<-sent
		if x.Err != nil || len(x.At) != 201 {
			t.Fatalf("%d chunks: %v", len(x.At), x.Err)
		}
		same := 0
		for i := 1; i < len(x.Read); i++ {
			if x.Read[i] == x.Read[i-1] {
				same++
			}
		}
		if x.Coalesced > same || plain && x.Coalesced != same {
			t.Errorf("%d chunks coalesced, %d share a read", x.Coalesced, same)
		}
	}
}

// TestTraffic compares the counted bytes with those that the server received and sent.
func TestTraffic(t *testing.T) {
	var got atomic.Int64
	reply := sse(chunkA, finish, done)
	url := serve(t, func(c net.Conn) {
		requests(countingConn{c, &got}, func(*http.Request, string) bool {
			_, err := io.WriteString(c, reply)
			return err == nil
		})
	})
	c := client(t, Config{URL: url})
	body := strings.Repeat("x", 100_000)
	for range 2 {
		got.Store(0)
		var x Exchange
		c.Do(t.Context(), post(body), &x)
		if x.Err != nil || x.BytesSent != got.Load() || x.BytesSent < 100_000 || x.BytesRead != int64(len(reply)) {
			t.Errorf("%d bytes sent, server got %d; %d read of %d: %v", x.BytesSent, got.Load(), x.BytesRead, len(reply), x.Err)
		}
	}
}

type countingConn struct {
	net.Conn
	n *atomic.Int64
}

func (c countingConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.n.Add(int64(n))
	return n, err
}
