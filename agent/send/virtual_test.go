// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package send

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/moonloop/moonloop/agent/clock"
)

// piped returns a dial function whose connections are pipes to handle, for virtual time.
func piped(handle func(c net.Conn)) func(context.Context, string, string) (net.Conn, error) {
	return func(context.Context, string, string) (net.Conn, error) {
		a, b := net.Pipe()
		go func() {
			handle(b)
			_ = b.Close()
		}()
		return a, nil
	}
}

// step is a part of what a server does after a request: it waits, then writes.
type step struct {
	wait  time.Duration
	write string
}

func play(steps []step) func(net.Conn) {
	return func(c net.Conn) {
		requests(c, func(*http.Request, string) bool {
			for _, s := range steps {
				time.Sleep(s.wait)
				if _, err := io.WriteString(c, s.write); err != nil {
					return false
				}
			}
			return true
		})
	}
}

func oneEvent(data string) string { return chunked("data: " + data + "\n\n") }

// TestExactInVirtualTime requires that every instant is exact to the nanosecond: in virtual time there is no excuse for a deviation.
func TestExactInVirtualTime(t *testing.T) {
	for name, by := range ways {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const ttft, itl, tokens = 250 * time.Millisecond, 20 * time.Millisecond, 50
				steps := []step{{100 * time.Millisecond, sseHead}, {0, oneEvent(roleOnly)}, {ttft - 100*time.Millisecond, oneEvent(chunkA)}}
				for range tokens - 1 {
					steps = append(steps, step{itl, oneEvent(chunkA)})
				}
				steps = append(steps, step{itl, oneEvent(finish) + oneEvent(usage)}, step{0, oneEvent(done)}, step{itl, lastChunk})
				clk := clock.New()
				c, err := New(Config{way: by, URL: "http://engine", DialContext: piped(play(steps))}, clk)
				if err != nil {
					t.Fatal(err)
				}
				defer synctest.Wait()
				defer c.Close()
				for range 3 { // the second and third on the same connection
					time.Sleep(time.Second)
					start := clk.Now()
					var x Exchange
					c.Do(t.Context(), post("{}"), &x)
					if x.Err != nil {
						t.Fatal(x.Err)
					}
					want := []time.Duration{start, start, start + 100*time.Millisecond, start + 100*time.Millisecond, start + 100*time.Millisecond, start + ttft}
					got := []time.Duration{x.Start, x.Wire, x.FirstByte, x.Headers, x.FirstEvent, x.FirstAnswer}
					if !slices.Equal(got, want) {
						t.Errorf("start, wire, first byte, headers, first event, first answer = %v, want %v", got, want)
					}
					for i, at := range x.At {
						if want := start + ttft + time.Duration(i)*itl; time.Duration(at) != want {
							t.Errorf("chunk %d at %v, want %v", i, time.Duration(at), want)
						}
					}
					if len(x.At) != tokens || x.Coalesced != 0 || x.KernelStamps {
						t.Errorf("%d chunks, %d coalesced, kernel stamps %t", len(x.At), x.Coalesced, x.KernelStamps)
					}
					if want := start + ttft + (tokens+1)*itl; x.End != want {
						t.Errorf("end %v, want %v (the end of the last HTTP chunk)", x.End, want)
					}
					if p := x.Phases; p.Waiting != 100*time.Millisecond || p.Receiving != x.End-x.FirstByte || p.Connect != 0 {
						t.Errorf("phases %+v", p)
					}
					x.Release()
				}
			})
		})
	}
}

// TestTimeouts gives each timeout its class, and shows what resets it and what does not.
func TestTimeouts(t *testing.T) {
	for name, by := range ways {
		t.Run(name, func(t *testing.T) {
			const s = time.Second
			all := Config{way: by, ConnectTimeout: 1 * s, FirstTokenTimeout: 10 * s, IdleTimeout: 2 * s, TotalTimeout: 60*s + s/2}
			retrying := all
			retrying.Retries = 1
			busy := []step{{0, "HTTP/1.1 503 Busy\r\nContent-Length: 100\r\n\r\n{"}, {100 * s, ""}}
			comment := chunked(": ping\n\n")
			var pings, longPings []step
			for range 30 {
				pings = append(pings, step{s, comment})
			}
			for range 8 {
				longPings = append(longPings, step{s, comment})
			}
			var endless []step
			for range 100 {
				endless = append(endless, step{s, oneEvent(chunkA)})
			}
			for _, c := range []struct {
				name   string
				cfg    Config
				steps  []step
				want   Class
				after  time.Duration
				chunks int
			}{
				{"no first byte", all, []step{{100 * s, sseHead}}, ClassFirstTokenTimeout, 10 * s, 0},
				{"headers and a role are not a token", all, []step{{0, sseHead + oneEvent(roleOnly)}, {100 * s, ""}}, ClassFirstTokenTimeout, 10 * s, 0},
				{"comments do not extend the first-token timeout", all, append([]step{{0, sseHead}}, pings...), ClassFirstTokenTimeout, 10 * s, 0},
				{"a stream that falls silent", all, []step{{0, sseHead}, {s, oneEvent(chunkA)}, {100 * s, ""}}, ClassIdleTimeout, 3 * s, 1},
				{"comments end a silence", all, slices.Concat([]step{{0, sseHead}, {s, oneEvent(chunkA)}}, longPings, []step{{s, oneEvent(finish)}, {0, lastChunk}}), "", 10 * s, 1},
				{"no first-token timeout: silence counts from the first byte", Config{way: by, IdleTimeout: 2 * s}, []step{{30 * s, sseHead + comment}, {100 * s, ""}}, ClassIdleTimeout, 32 * s, 0},
				{"endless stream", all, append([]step{{0, sseHead}}, endless...), ClassTotalTimeout, 60*s + s/2, 60},
				{"silence after the finish reason is not a failure", all, []step{{0, sseHead + oneEvent(chunkA) + oneEvent(finish)}, {100 * s, ""}}, "", 0, 1},
				{"silence after the finish reason is not a failure without any timeout either", Config{way: by}, []step{{0, sseHead + oneEvent(chunkA) + oneEvent(finish)}, {s, oneEvent(usage)}, {100 * s, ""}}, "", s, 1},
				{"[DONE] without finish, and silence", Config{way: by}, []step{{0, sseHead + oneEvent(chunkA) + oneEvent(done)}, {100 * s, ""}}, ClassIncomplete, 0, 1},
				{"silence after an error in the stream", Config{way: by}, []step{{0, sseHead + oneEvent(badEnd)}, {100 * s, ""}}, ClassStreamError, 0, 0},
				{"an error body that does not end", all, []step{{0, "HTTP/1.1 500 Oops\r\nContent-Length: 100\r\n\r\n{"}, {100 * s, ""}}, ClassHTTP, 10 * s, 0},
				{"the body of a busy server that does not end", all, busy, ClassHTTP, 10 * s, 0},
				{"the same before a retry", retrying, busy, ClassFirstTokenTimeout, 10 * s, 0},
				{"the same without a first-token timeout", Config{way: by, Retries: 1, IdleTimeout: 2 * s}, busy, ClassIdleTimeout, 2 * s, 0},
				{"no timeout at all", Config{way: by}, []step{{300 * s, sseHead}, {300 * s, oneEvent(chunkA)}, {300 * s, oneEvent(finish) + lastChunk}}, "", 900 * s, 1},
			} {
				t.Run(c.name, func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						c.cfg.URL, c.cfg.DialContext = "http://engine", piped(play(c.steps))
						cl, err := New(c.cfg, clock.New())
						if err != nil {
							t.Fatal(err)
						}
						defer time.Sleep(time.Hour) // the server wakes up and finds the connection closed
						defer cl.Close()
						var x Exchange
						cl.Do(t.Context(), post("{}"), &x)
						var got Class
						if x.Err != nil {
							got = x.Err.Class
						}
						if got != c.want || len(x.At) != c.chunks {
							t.Errorf("class %q with %d chunks, want %q with %d: %v", got, len(x.At), c.want, c.chunks, x.Err)
						}
						if took := x.End - x.Start; c.after > 0 && took != c.after {
							t.Errorf("over after %v, want %v", took, c.after)
						}
					})
				})
			}
		})
	}
}

// TestOpenEnd checks how long a caller waits for the end of a stream that is complete, and that the connection is kept if the end comes in
// time.
func TestOpenEnd(t *testing.T) {
	for name, by := range ways {
		t.Run(name, func(t *testing.T) {
			const ms = time.Millisecond
			said := sseHead + oneEvent(chunkA) + oneEvent(finish)
			var pings []step
			for range 100 {
				pings = append(pings, step{30 * ms, chunked(": ping\n\n")})
			}
			for _, c := range []struct {
				name   string
				steps  []step
				waited time.Duration // from the request to Do's return
				end    time.Duration // from the request
				usage  bool
				kept   bool
			}{
				{"the end comes at once", []step{{0, said + oneEvent(usage) + oneEvent(done) + lastChunk}}, 0, 0, true, true},
				{"the end comes in time", []step{{0, said + oneEvent(usage) + oneEvent(done)}, {50 * ms, lastChunk}}, 50 * ms, 50 * ms, true, true},
				{"no end after [DONE]", []step{{0, said}, {20 * ms, oneEvent(done)}, {time.Hour, ""}}, 120 * ms, 20 * ms, false, false},
				{"no end after the usage chunk", []step{{0, said}, {40 * ms, oneEvent(usage)}, {time.Hour, ""}}, 140 * ms, 40 * ms, true, false},
				{"comments do not extend the wait for the end", append([]step{{0, said + oneEvent(usage) + oneEvent(done)}}, pings...), 100 * ms, 90 * ms, true, false},
				{"after a finish reason alone the usage is waited for", []step{{0, said}, {4 * time.Second, oneEvent(usage) + oneEvent(done) + lastChunk}}, 4 * time.Second, 4 * time.Second, true, true},
				{"the usage is not waited for longer than the limit", []step{{0, said}, {time.Hour, ""}}, tailLimit, 0, false, false},
				{
					"/v1/responses has no [DONE]",
					[]step{{0, sseHead + oneEvent(`{"type":"response.output_text.delta","delta":"A"}`) + oneEvent(`{"type":"response.completed","response":{"status":"completed","usage":{"input_tokens":9,"output_tokens":1}}}`)}, {time.Hour, ""}},
					100 * ms, 0, true, false,
				},
			} {
				t.Run(c.name, func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						clk := clock.New()
						cl, err := New(Config{way: by, URL: "http://engine", DialContext: piped(play(c.steps))}, clk)
						if err != nil {
							t.Fatal(err)
						}
						defer time.Sleep(2 * time.Hour) // the server wakes up and finds the connection closed
						defer cl.Close()
						var x, next Exchange
						cl.Do(t.Context(), post("{}"), &x)
						if waited := clk.Now() - x.Start; x.Err != nil || waited != c.waited || x.End-x.Start != c.end {
							t.Errorf("returned after %v with an end at %v; want %v and %v: %v", waited, x.End-x.Start, c.waited, c.end, x.Err)
						}
						if (x.Usage.Prompt == 9) != c.usage {
							t.Errorf("usage %+v", x.Usage)
						}
						synctest.Wait()
						cl.Do(t.Context(), post("{}"), &next)
						if next.Err != nil || next.Reused != c.kept || next.Replays != 0 {
							t.Errorf("next: connection reused %t, %d replays: %v", next.Reused, next.Replays, next.Err)
						}
					})
				})
			}
		})
	}
}

func TestConnectTimeout(t *testing.T) {
	for name, by := range ways {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, err := New(Config{
					way: by,
					URL: "http://engine", ConnectTimeout: 3 * time.Second,
					DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
						<-ctx.Done()
						return nil, ctx.Err()
					},
				}, clock.New())
				if err != nil {
					t.Fatal(err)
				}
				defer synctest.Wait()
				var x Exchange
				c.Do(t.Context(), post("{}"), &x)
				if x.Err == nil || x.Err.Class != ClassConnectTimeout || x.End-x.Start != 3*time.Second {
					t.Errorf("%v after %v", x.Err, x.End-x.Start)
				}
				if x.Wire != clock.Never || x.FirstByte != clock.Never || len(x.At) != 0 {
					t.Errorf("instants of a request that was never sent: %+v", x)
				}
			})
		})
	}
}

// TestStalledUpload: if a server does not read the request, the client does not wait forever.
func TestStalledUpload(t *testing.T) {
	for name, by := range ways {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				stop := make(chan struct{})
				c, err := New(Config{way: by, URL: "http://engine", IdleTimeout: 5 * time.Second, DialContext: piped(func(net.Conn) { <-stop })}, clock.New())
				if err != nil {
					t.Fatal(err)
				}
				var x Exchange
				c.Do(t.Context(), post("{}"), &x)
				close(stop)
				synctest.Wait()
				if x.Err == nil || x.Err.Class != ClassIdleTimeout || x.Wire != clock.Never {
					t.Errorf("%v, wire %v", x.Err, x.Wire)
				}
			})
		})
	}
}

func TestCancel(t *testing.T) {
	for name, by := range ways {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				steps := []step{{0, sseHead}, {time.Second, oneEvent(chunkA)}, {time.Second, oneEvent(chunkB)}, {time.Hour, lastChunk}}
				c, err := New(Config{way: by, URL: "http://engine", DialContext: piped(play(steps))}, clock.New())
				if err != nil {
					t.Fatal(err)
				}
				defer c.Close()
				reason := errors.New("second Ctrl-C")
				ctx, cancel := context.WithCancelCause(t.Context())
				time.AfterFunc(3*time.Second, func() { cancel(reason) })
				var x Exchange
				c.Do(ctx, post("{}"), &x)
				if x.Err == nil || x.Err.Class != ClassCancelled || !errors.Is(x.Err, reason) {
					t.Errorf("%v", x.Err)
				}
				if len(x.At) != 2 || x.Reply != "A B" || x.End-x.Start != 3*time.Second {
					t.Errorf("%d chunks, reply %q, over after %v", len(x.At), x.Reply, x.End-x.Start)
				}
				var y Exchange
				c.Do(ctx, post("{}"), &y) // cancelled before it began
				if y.Err == nil || y.Err.Class != ClassCancelled || y.Wire != clock.Never {
					t.Errorf("%v, wire %v", y.Err, y.Wire)
				}
				time.Sleep(2 * time.Hour)
			})
		})
	}
}
