// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package send

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/moonloop/moonloop/agent/clock"
)

func TestRetries(t *testing.T) {
	for name, by := range ways {
		t.Run(name, func(t *testing.T) {
			ok := sse(chunkA, finish, done)
			busy := answer("503 Service Unavailable", "application/json", `{"error":{"message":"Loading model","type":"unavailable_error","code":503}}`)
			limited := strings.Replace(answer("429 Too Many Requests", "application/json", `{"error":"slow down"}`), "\r\n", "\r\nRetry-After: 7\r\n", 1)
			patient := strings.Replace(limited, "Retry-After: 7", "Retry-After: 86400", 1)
			date := strings.Replace(limited, "Retry-After: 7", "Retry-After: "+time.Date(2000, 1, 1, 0, 0, 9, 0, time.UTC).Format(http.TimeFormat), 1)
			refused := &net.OpError{Op: "dial", Net: "tcp", Err: errors.New("connection refused")}
			for _, c := range []struct {
				name     string
				retries  int
				answers  []string // empty: the dial fails
				want     Class
				attempts int
				vain     int           // those without a connection
				wire     time.Duration // of the attempt that counts, from Start
			}{
				{"no retries by default", 0, []string{busy, ok}, ClassHTTP, 1, 0, 0},
				{"503 twice, then served", 2, []string{busy, busy, ok}, "", 3, 0, 1500 * time.Millisecond},
				{"503 until no retry is left", 1, []string{busy, busy, ok}, ClassHTTP, 2, 0, 500 * time.Millisecond},
				{"429 with Retry-After in seconds", 1, []string{limited, ok}, "", 2, 0, 7 * time.Second},
				{"429 with Retry-After as a date", 1, []string{date, ok}, "", 2, 0, 9 * time.Second},
				{"Retry-After is bounded", 1, []string{patient, ok}, "", 2, 0, 30 * time.Second},
				{"refused connection, then served", 1, []string{"", ok}, "", 2, 1, 500 * time.Millisecond},
				{"refused connection until no retry is left", 1, []string{"", "", ok}, ClassConnect, 2, 2, clock.Never},
				{"503, then no connection: the server had it once", 1, []string{strings.Replace(busy, "\r\n", "\r\nConnection: close\r\n", 1), ""}, ClassConnect, 2, 1, clock.Never},
				{"400 is not retried", 3, []string{answer("400 Bad Request", "text/plain", "no"), ok}, ClassHTTP, 1, 0, 0},
				{"a broken stream is not retried", 3, []string{sseHead, ok}, ClassTransport, 1, 0, 0},
			} {
				t.Run(c.name, func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						n := 0
						dial := func(pipe func() (net.Conn, error)) (net.Conn, error) {
							if c.answers[n] == "" {
								n++
								return nil, refused
							}
							return pipe()
						}
						handle := piped(func(conn net.Conn) {
							requests(conn, func(*http.Request, string) bool {
								reply := c.answers[n]
								n++
								_, err := io.WriteString(conn, reply)
								return err == nil && reply != sseHead
							})
						})
						cfg := Config{way: by, URL: "http://engine", Retries: c.retries, ConnectTimeout: 100 * time.Millisecond, FirstTokenTimeout: time.Second}
						cfg.DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
							return dial(func() (net.Conn, error) { return handle(ctx, network, addr) })
						}
						cl, err := New(cfg, clock.New())
						if err != nil {
							t.Fatal(err)
						}
						defer synctest.Wait()
						defer cl.Close()
						var x Exchange
						cl.Do(t.Context(), post("{}"), &x)
						var got Class
						if x.Err != nil {
							got = x.Err.Class
						}
						if got != c.want || x.Attempts != c.attempts || x.Unconnected != c.vain || x.Replays != 0 {
							t.Errorf("class %q, %d attempts, %d of them without a connection, %d replays; want %q, %d, %d, 0: %v", got, x.Attempts, x.Unconnected, x.Replays, c.want, c.attempts, c.vain, x.Err)
						}
						wire := x.Wire
						if wire != clock.Never {
							wire -= x.Start
						}
						if wire != c.wire {
							t.Errorf("wire at %v, want %v", wire, c.wire)
						}
					})
				})
			}
		})
	}
}

// TestTimeoutBetweenAttempts: a timeout that ends the wait for another attempt says how the attempt before ended.
func TestTimeoutBetweenAttempts(t *testing.T) {
	for name, by := range ways {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, err := New(Config{
					way: by, URL: "http://engine", Retries: 2, TotalTimeout: time.Second,
					DialContext: piped(func(c net.Conn) {
						requests(c, func(*http.Request, string) bool {
							_, err := io.WriteString(c, "HTTP/1.1 429 Slow Down\r\nRetry-After: 2\r\nContent-Length: 0\r\n\r\n")
							return err == nil
						})
					}),
				}, clock.New())
				if err != nil {
					t.Fatal(err)
				}
				defer synctest.Wait()
				defer c.Close()
				var x Exchange
				c.Do(t.Context(), post("{}"), &x)
				if x.Err == nil || x.Err.Class != ClassTotalTimeout || !strings.HasSuffix(x.Err.Message, "; attempt 1 ended with HTTP status 429") {
					t.Error(x.Err)
				}
			})
		})
	}
}

// TestClosedAfterEachStream is the keep-alive trap: a server that promises to keep the connection, and closes it.
func TestClosedAfterEachStream(t *testing.T) {
	for name, by := range ways {
		t.Run(name, func(t *testing.T) {
			reply := strings.Replace(sse(chunkA, finish, done), "\r\n\r\n", "\r\nKeep-Alive: timeout=5, max=100\r\n\r\n", 1)
			url := serve(t, func(c net.Conn) {
				requests(c, func(*http.Request, string) bool {
					_, _ = io.WriteString(c, reply)
					return false
				})
			})
			c := client(t, Config{way: by, URL: url})
			for i := range 200 {
				var x Exchange
				c.Do(t.Context(), post("{}"), &x)
				if x.Err != nil || x.Attempts != 1 {
					t.Fatalf("request %d: %d attempts: %v", i, x.Attempts, x.Err)
				}
				inOrder(t, &x)
				x.Release()
			}
		})
	}
}

// TestReplay makes the trap certain: the kept connection accepts the request, and dies without an answer.
func TestReplay(t *testing.T) {
	for name, by := range ways {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				conns := 0
				c, err := New(Config{way: by, URL: "http://engine", DialContext: piped(func(conn net.Conn) {
					conns++
					first := conns == 1
					n := 0
					requests(conn, func(*http.Request, string) bool {
						if n++; first && n == 2 {
							time.Sleep(time.Second)
							return false
						}
						_, err := io.WriteString(conn, sse(chunkA, finish, done))
						return err == nil
					})
				})}, clock.New())
				if err != nil {
					t.Fatal(err)
				}
				defer synctest.Wait()
				defer c.Close()
				var x Exchange
				c.Do(t.Context(), post("{}"), &x)
				if x.Err != nil || x.Replays != 0 || x.Reused {
					t.Fatalf("first: %d replays, reused %t: %v", x.Replays, x.Reused, x.Err)
				}
				c.Do(t.Context(), post("{}"), &x)
				if x.Err != nil || x.Attempts != 1 || x.Replays != 1 || x.Resent != 1 || x.Reused {
					t.Errorf("second: %d attempts, %d replays, %d resent, reused %t: %v", x.Attempts, x.Replays, x.Resent, x.Reused, x.Err)
				}
				if x.Wire-x.Start != time.Second || time.Duration(x.At[0]) != x.Wire {
					t.Errorf("wire %v after the start, first chunk %v after the wire; want 1s and 0", x.Wire-x.Start, time.Duration(x.At[0])-x.Wire)
				}
			})
		})
	}
}

// engine answers requests on pipes, and counts those that it got whole. The second request of a connection kills it, as often as
// requested: after its head, or after its body.
type engine struct {
	mu                      sync.Mutex
	diesOfHead, diesOfWhole int
	whole                   int
}

// dies reports whether the connection dies at this request, and then counts down one of the numbers of deaths.
func (e *engine) dies(left *int, request int) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if request != 2 || *left == 0 {
		return false
	}
	*left--
	return true
}

func (e *engine) serve(c net.Conn) {
	br := bufio.NewReader(c)
	for request := 1; ; request++ {
		r, err := http.ReadRequest(br)
		if err != nil || e.dies(&e.diesOfHead, request) {
			return
		}
		if _, err := io.Copy(io.Discard, r.Body); err != nil {
			return
		}
		e.mu.Lock()
		e.whole++
		e.mu.Unlock()
		if e.dies(&e.diesOfWhole, request) {
			return
		}
		time.Sleep(time.Second)
		if _, err := io.WriteString(c, sse(chunkA, finish, done)); err != nil {
			return
		}
	}
}

// TestReplayIsSeen counts what the engine got whole: with retries off, it gets a request at most twice, and that is reported.
func TestReplayIsSeen(t *testing.T) {
	for name, by := range ways {
		t.Run(name, func(t *testing.T) {
			for _, c := range []struct {
				name            string
				body            int
				header          http.Header
				engine          *engine
				want            Class
				replays, resent int
				whole           int // requests that the engine had, the two before included
			}{
				{"a connection dies with the whole request, the next one lives", 100, nil, &engine{diesOfWhole: 1}, "", 1, 1, 4},
				{"both kept connections die with the whole request", 100, nil, &engine{diesOfWhole: 2}, ClassTransport, 1, 1, 4},
				{"both kept connections die with the whole request, and an idempotency key does not permit sending it a third time", 100, http.Header{"Idempotency-Key": {"k"}}, &engine{diesOfWhole: 2}, ClassTransport, 1, 1, 4},
				{"both kept connections die during the upload: the engine never had the request", 1 << 20, nil, &engine{diesOfHead: 2}, "", 2, 0, 3},
				{"one dies during the upload, the other with the whole request", 1 << 20, nil, &engine{diesOfHead: 1, diesOfWhole: 1}, "", 2, 1, 4},
			} {
				if by == byDirect && c.body > maxDirect { // it would go through net/http, which has kept no connection
					continue
				}
				t.Run(c.name, func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						e := c.engine
						cl, err := New(Config{way: by, URL: "http://engine", Header: c.header, DialContext: piped(e.serve)}, clock.New())
						if err != nil {
							t.Fatal(err)
						}
						defer synctest.Wait()
						defer cl.Close()
						var wg sync.WaitGroup
						for range 2 { // two connections to keep
							wg.Go(func() {
								var x Exchange
								cl.Do(t.Context(), post("{}"), &x)
								if x.Err != nil || x.Replays != 0 || x.Resent != 0 {
									t.Errorf("before: %d replays, %d resent: %v", x.Replays, x.Resent, x.Err)
								}
							})
						}
						wg.Wait()
						synctest.Wait()
						var x Exchange
						cl.Do(t.Context(), post(`"`+strings.Repeat("x", c.body)+`"`), &x)
						var got Class
						if x.Err != nil {
							got = x.Err.Class
						}
						if got != c.want || x.Attempts != 1 || x.Replays != c.replays || x.Resent != c.resent || e.whole != c.whole {
							t.Errorf("class %q, %d attempts, %d replays, %d resent, the engine had %d; want %q, 1, %d, %d, %d: %v",
								got, x.Attempts, x.Replays, x.Resent, e.whole, c.want, c.replays, c.resent, c.whole, x.Err)
						}
					})
				})
			}
		})
	}
}
