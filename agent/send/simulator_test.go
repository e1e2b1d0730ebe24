// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package send

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/moonloop/moonloop/internal/simulator"
)

// rehearse starts the simulated engine and returns its URL.
func rehearse(t *testing.T, cfg simulator.Config) (*simulator.Engine, string) {
	t.Helper()
	e, err := simulator.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := e.NewServer()
	served := make(chan error, 1)
	go func() { served <- server.Serve(ln) }()
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
		_ = server.Close()
		if err := <-served; !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	})
	return e, "http://" + ln.Addr().String()
}

// rehearsal is how a fault of the simulator must appear to the client in a chat of 8 words with 10 output tokens.
type rehearsal struct {
	class  Class // empty: served
	status int
	code   string
	chunks int
	finish string
	usage  Usage
}

// TestSimulatorFaults runs the client against every fault of the simulator: which requests are served, and the class of the others.
func TestSimulatorFaults(t *testing.T) {
	for name, by := range ways {
		t.Run(name, func(t *testing.T) {
			const prompt = 18 // 8 words and the template
			counted := Usage{Prompt: prompt, Completion: 10, Cached: 0, Reasoning: Unknown}
			plain := rehearsal{status: 200, chunks: 10, finish: "length", usage: counted}
			with := func(change func(*rehearsal)) rehearsal { r := plain; change(&r); return r }
			refused := func(c Class, status int, code string) rehearsal {
				return rehearsal{class: c, status: status, code: code, usage: NoUsage}
			}
			broken := func(c Class, code string) rehearsal { // after half of the reply
				return rehearsal{class: c, status: 200, code: code, chunks: 5, usage: NoUsage}
			}
			want := map[simulator.Fault]rehearsal{
				"rate-limit":     refused(ClassRateLimited, 429, "rate_limit_exceeded"),
				"unavailable":    refused(ClassHTTP, 503, "unavailable"),
				"overloaded":     refused(ClassHTTP, 529, "overloaded"),
				"server-error":   refused(ClassHTTP, 500, "server_error"),
				"refuse":         refused(ClassTransport, 0, ""),
				"not-found":      refused(ClassHTTP, 404, ""),
				"error-integer":  refused(ClassHTTP, 400, "BadRequestError"),
				"error-digits":   refused(ClassHTTP, 500, "internal_error"),
				"error-flat":     refused(ClassHTTP, 400, "BadRequest"),
				"error-string":   refused(ClassHTTP, 401, ""),
				"error-ok":       refused(ClassStreamError, 200, "server_error"),
				"html":           refused(ClassProtocol, 200, ""),
				"malformed-json": refused(ClassProtocol, 200, ""),
				"wrong-type":     refused(ClassProtocol, 200, ""),

				"stream-error":      broken(ClassStreamError, "engine_error"),
				"stream-error-done": broken(ClassStreamError, "engine_error"),
				"cut":               broken(ClassTransport, ""),
				"stall":             broken(ClassIdleTimeout, ""),
				"silent-end":        broken(ClassIncomplete, ""),
				"done-only":         broken(ClassIncomplete, ""),
				"malformed-event":   broken(ClassProtocol, ""),
				"bad-framing":       broken(ClassProtocol, ""),
				"endless-line":      broken(ClassLimit, ""),

				"slow-accept":   plain,
				"tiny-writes":   plain,
				"joined-tokens": with(func(r *rehearsal) { r.chunks = 4 }), // 1, 4, 4, 1
				"joined-chunks": plain,
				"close-after":   plain,

				"comments":          plain,
				"null-events":       plain,
				"fields":            plain,
				"no-space":          plain,
				"trailing-space":    plain,
				"crlf":              plain,
				"cr":                plain,
				"byte-order-mark":   plain,
				"split-data":        plain,
				"long-line":         plain,
				"empty-chunks":      plain,
				"role-everywhere":   plain,
				"usage-null":        plain,
				"usage-zero":        plain,
				"usage-grows":       plain,
				"usage-on-finish":   plain,
				"no-usage":          with(func(r *rehearsal) { r.usage = NoUsage }),
				"finish-on-last":    plain,
				"no-done":           plain,
				"other-finish":      with(func(r *rehearsal) { r.class, r.finish = ClassAbort, "abort" }),
				"short-output":      with(func(r *rehearsal) { r.chunks, r.usage.Completion = 5, 5 }),
				"short-prompt":      with(func(r *rehearsal) { r.usage.Prompt = prompt / 2 }),
				"reasoning":         plain,
				"reasoning-content": plain,
				"tool-deltas":       with(func(r *rehearsal) { r.chunks, r.finish = 11, "tool_calls" }), // the name is output too
				"choices":           plain,
				"choice-unfinished": with(func(r *rehearsal) { r.class = ClassIncomplete }),
			}
			names, _, _ := simulator.FaultNames()
			for _, name := range names {
				if _, known := want[name]; !known {
					t.Errorf("no expectation of fault %s", name)
				}
			}
			e, url := rehearse(t, simulator.Config{Faults: simulator.Faults{StallFor: 400 * time.Millisecond}})
			const body = `{"model":"m","messages":[{"role":"user","content":"a b c d e f g h"}],"max_tokens":10,"stream":true,"stream_options":{"include_usage":true}}`
			for name, want := range want {
				verdict := "served"
				if want.class != "" {
					verdict = string(want.class)
				}
				t.Run(fmt.Sprintf("%s: %s", name, verdict), func(t *testing.T) {
					c := client(t, Config{way: by, URL: url, IdleTimeout: 100 * time.Millisecond})
					if name != "stall" {
						c.cfg.IdleTimeout = time.Minute // a busy machine is silent too
					}
					req := post(body)
					req.Header = []Field{{simulator.HeaderFault, string(name)}}
					var x Exchange
					c.Do(context.WithoutCancel(t.Context()), req, &x)
					got := rehearsal{status: x.Status, chunks: len(x.At), finish: x.FinishReason, usage: x.Usage}
					if x.Err != nil {
						got.class, got.code = x.Err.Class, x.Err.Code
					}
					if got != want {
						t.Errorf("got %+v, want %+v; %v", got, want, x.Err)
					}
					if x.Err == nil {
						inOrder(t, &x)
					}
				})
			}
			if err := e.WaitIdle(t.Context()); err != nil {
				t.Fatal(err)
			}
			for _, r := range e.Records() {
				if r.Outcome != simulator.Faulted && r.Outcome != simulator.ClientGone {
					t.Errorf("the engine served fault %s as %s", r.Fault, r.Outcome)
				}
			}
		})
	}
}

// Comments, role chunks and empty chunks before the first token do not count as the first token.
func TestSimulatorFirstTokenIsContent(t *testing.T) {
	const prefill = 50 * time.Millisecond
	_, url := rehearse(t, simulator.Config{Latency: simulator.Latency{Prefill: prefill}})
	for _, fault := range []string{"comments", "empty-chunks"} {
		c := client(t, Config{URL: url})
		req := post(`{"model":"m","messages":[{"role":"user","content":"a"}],"max_tokens":2,"stream":true}`)
		req.Header = []Field{{simulator.HeaderFault, fault}}
		var x Exchange
		c.Do(t.Context(), req, &x)
		if x.Err != nil || len(x.At) != 2 {
			t.Fatalf("%s: %v, %d chunks", fault, x.Err, len(x.At))
		}
		if ttft := time.Duration(x.At[0]) - x.Wire; ttft < prefill {
			t.Errorf("%s: first token %v after the wire, the prefill alone takes %v", fault, ttft, prefill)
		}
		if head := x.Headers - x.Wire; head >= time.Duration(x.At[0])-x.Wire {
			t.Errorf("%s: the head came with the first token, so that this test shows nothing", fault)
		}
	}
}

// If a server closes each connection after its reply, without notice, no request has to wait: requests are sent again at once on another
// connection, and that is counted.
func TestSimulatorCloseAfter(t *testing.T) {
	for name, by := range ways {
		t.Run(name, func(t *testing.T) {
			e, url := rehearse(t, simulator.Config{Faults: simulator.Faults{Rates: map[simulator.Fault]float64{"close-after": 1}}})
			c := client(t, Config{way: by, URL: url, RetryWait: time.Hour}) // a retry would show
			const n = 200
			for range n {
				var x Exchange
				c.Do(t.Context(), post(`{"model":"m","messages":[{"role":"user","content":"a"}],"max_tokens":2,"stream":true}`), &x)
				if x.Err != nil || x.Attempts != 1 {
					t.Fatalf("attempts %d, %v", x.Attempts, x.Err)
				}
			}
			if err := e.WaitIdle(t.Context()); err != nil {
				t.Fatal(err)
			}
			conns := make(map[uint64]int)
			for _, r := range e.Records() {
				conns[r.Conn]++
			}
			if len(conns) != n || len(e.Records()) != n {
				t.Errorf("%d requests on %d connections, want %d on as many", len(e.Records()), len(conns), n)
			}
		})
	}
}

// Over HTTP/2, a dropped connection is a reset stream, and so is a bad frame.
func TestSimulatorHTTP2(t *testing.T) {
	_, url := rehearse(t, simulator.Config{})
	for fault, want := range map[string]Class{"cut": ClassTransport, "silent-end": ClassIncomplete, "bad-framing": ClassTransport, "crlf": "", "refuse": ClassTransport} {
		c := client(t, Config{URL: url, HTTP2: true})
		req := post(`{"model":"m","messages":[{"role":"user","content":"a"}],"max_tokens":4,"stream":true}`)
		req.Header = []Field{{simulator.HeaderFault, fault}}
		var x Exchange
		c.Do(t.Context(), req, &x)
		var got Class
		if x.Err != nil {
			got = x.Err.Class
		}
		if got != want {
			t.Errorf("%s over HTTP/2: class %q, want %q; %v", fault, got, want, x.Err)
		}
	}
}

// Faults that change the shape of a stream change its bytes on the wire, not its text.
func TestSimulatorShapesKeepTheText(t *testing.T) {
	_, url := rehearse(t, simulator.Config{})
	text := func(fault string) string {
		c := client(t, Config{URL: url})
		req := post(`{"model":"m","prompt":"a b","max_tokens":12,"stream":true}`)
		req.Path = "/v1/completions"
		if fault != "" {
			req.Header = []Field{{simulator.HeaderFault, fault}}
		}
		var x Exchange
		c.Do(t.Context(), req, &x)
		if x.Err != nil {
			t.Fatalf("%s: %v", fault, x.Err)
		}
		return x.Reply
	}
	plain := text("")
	for _, fault := range []string{
		"tiny-writes", "joined-tokens", "joined-chunks", "comments", "null-events", "fields", "no-space",
		"trailing-space", "crlf", "cr", "byte-order-mark", "split-data", "long-line", "empty-chunks", "choices",
	} {
		if got := text(fault); got != plain || len(strings.Fields(got)) != 12 {
			t.Errorf("%s: %q, want %q", fault, got, plain)
		}
	}
}

// Reasoning is a first token, but not the first token of the answer.
func TestSimulatorReasoning(t *testing.T) {
	_, url := rehearse(t, simulator.Config{Latency: simulator.Latency{Decode: 5 * time.Millisecond}})
	for _, fault := range []string{"reasoning", "reasoning-content"} {
		req := post(`{"model":"m","messages":[{"role":"user","content":"a"}],"max_tokens":6,"stream":true}`)
		req.Header = []Field{{simulator.HeaderFault, fault}}
		var x Exchange
		client(t, Config{URL: url}).Do(t.Context(), req, &x)
		if x.Err != nil || len(x.At) != 6 || x.FirstAnswer != time.Duration(x.At[3]) {
			t.Errorf("%s: %v, chunks %v, first answer %d", fault, x.Err, x.At, x.FirstAnswer)
		}
	}
}
