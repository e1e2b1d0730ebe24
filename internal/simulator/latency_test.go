// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package simulator

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/moonloop/moonloop/internal/testpipe"
)

// bubble is the test inside a bubble of virtual time.
type bubble struct{ *testing.T }

// virtual runs f in virtual time with an engine and a client connected to it.
func virtual(t *testing.T, config Config, f func(t bubble, e *Engine, c *http.Client)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		e, err := New(config)
		if err != nil {
			t.Fatal(err)
		}
		network := testpipe.New()
		stop := network.Serve(e.NewServer())
		transport := &http.Transport{DialContext: network.Dial}
		f(bubble{t}, e, &http.Client{Transport: transport})
		if err := e.Close(); err != nil {
			t.Error(err)
		}
		transport.CloseIdleConnections()
		stop()
		synctest.Wait()
	})
}

// stream sends a streaming completion of token ids and returns the arrival of each event with a token.
func stream(ctx context.Context, e *Engine, c *http.Client, prompt []int, maxTokens int, headers ...string) (arrivals []time.Duration, rest string, err error) {
	body := fmt.Sprintf(`{"model":"m","prompt":%s,"max_tokens":%d,"stream":true}`, idsPrompt(prompt), maxTokens)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://engine/v1/completions", strings.NewReader(body))
	if err != nil {
		return nil, "", err
	}
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	resp, err := c.Do(req)
	if err != nil {
		return nil, "", err
	}
	defer func() { _ = resp.Body.Close() }()
	r := bufio.NewReader(resp.Body)
	for {
		line, err := r.ReadString('\n')
		switch {
		case strings.Contains(line, `"text":"`) && !strings.Contains(line, `"text":""`):
			arrivals = append(arrivals, time.Since(e.Start()))
		case line != "\n":
			rest += line
		}
		if err == io.EOF {
			return arrivals, rest, nil
		}
		if err != nil {
			return arrivals, rest, err
		}
	}
}

func ids(from, n int) []int {
	s := make([]int, n)
	for i := range s {
		s[i] = from + i
	}
	return s
}

const ms = time.Millisecond

// One request after the other: every instant follows from the formulas.
func TestLatencyAlone(t *testing.T) {
	config := Config{
		Cache:   Cache{BlockSize: 4},
		Latency: Latency{Prefill: 10 * ms, PrefillPerToken: 2 * ms, Decode: 5 * ms, DecodePerSequence: ms},
	}
	virtual(t, config, func(t bubble, e *Engine, c *http.Client) {
		for i, want := range [][]time.Duration{
			{30 * ms, 36 * ms, 42 * ms}, // 10 + 2·10 uncached; steps of 5 + 1·1
			{14 * ms, 20 * ms, 26 * ms}, // 8 of 10 tokens cached
		} {
			time.Sleep(time.Second - e.now()%time.Second)
			sent := e.now()
			got, rest, err := stream(t.Context(), e, c, ids(0, 10), 3)
			if err != nil || !strings.HasSuffix(rest, "data: [DONE]\n") {
				t.Fatalf("request %d: %v, rest %q", i, err, rest)
			}
			for j := range got {
				got[j] -= sent
			}
			if d := cmp.Diff(want, got); d != "" {
				t.Errorf("request %d: arrivals (-want +got):\n%s", i, d)
			}
			synctest.Wait()
			r := e.Records()[i]
			var writes []time.Duration
			for _, w := range r.Writes {
				if w.Tokens > 0 {
					writes = append(writes, w.At-sent)
				}
			}
			if d := cmp.Diff(want, writes); d != "" {
				t.Errorf("request %d: writes (-want +got):\n%s", i, d)
			}
			if r.Headers != sent || r.BodyRead != sent || r.Admitted != sent || r.PrefillDone != sent+want[0] || r.Ended != sent+want[2] {
				t.Errorf("request %d: record %+v", i, r)
			}
			if !r.Time.Equal(e.Start().Add(sent)) || r.Conn == 0 || r.ConnAccepted > r.Headers {
				t.Errorf("request %d: time %v, conn %d accepted %v", i, r.Time, r.Conn, r.ConnAccepted)
			}
		}
	})
}

// Several requests that overlap; each prompt has one token more than the one before.
func TestLatencyTogether(t *testing.T) {
	for _, test := range []struct {
		name   string
		config Config
		starts []time.Duration
		n      int // output tokens
		want   [][]time.Duration
	}{
		{
			name:   "parallel prefill",
			config: Config{Latency: Latency{PrefillPerToken: 10 * ms}},
			starts: []time.Duration{0, 1 * ms, 2 * ms}, n: 1,
			want: [][]time.Duration{{10 * ms}, {21 * ms}, {32 * ms}}, // i ms + (i+1)·10
		},
		{
			name:   "serial prefill",
			config: Config{Latency: Latency{PrefillPerToken: 10 * ms, SerialPrefill: true}},
			starts: []time.Duration{0, 1 * ms, 2 * ms, 100 * ms}, n: 1,
			want: [][]time.Duration{{10 * ms}, {30 * ms}, {60 * ms}, {140 * ms}}, // one after the other; the last finds the lane free
		},
		{
			name:   "one runs, the others wait",
			config: Config{MaxRunning: 1, Latency: Latency{Prefill: 10 * ms, Decode: 5 * ms}},
			starts: []time.Duration{0, 1 * ms, 2 * ms}, n: 3,
			want: [][]time.Duration{{10 * ms, 15 * ms, 20 * ms}, {30 * ms, 35 * ms, 40 * ms}, {50 * ms, 55 * ms, 60 * ms}},
		},
		{
			// Steps that are planned while both decode, from 13 to 60, take 2·10.
			name:   "a step grows with the sequences in it",
			config: Config{Latency: Latency{DecodePerSequence: 10 * ms, Prefill: 10 * ms}},
			starts: []time.Duration{0, 3 * ms}, n: 4,
			want: [][]time.Duration{{10 * ms, 20 * ms, 40 * ms, 60 * ms}, {13 * ms, 33 * ms, 53 * ms, 73 * ms}},
		},
		{
			// Two sequences, room for one in the batch: they take turns, each step costs 2·(6+1) instead of 6+1.
			name:   "batch limit",
			config: Config{Latency: Latency{Decode: 6 * ms, DecodePerSequence: ms, MaxBatch: 1}},
			starts: []time.Duration{0, 1 * ms}, n: 3,
			want: [][]time.Duration{{0, 7 * ms, 21 * ms}, {1 * ms, 15 * ms, 29 * ms}},
		},
		{
			name:   "tokens per chunk",
			config: Config{TokensPerChunk: 3, Latency: Latency{Decode: 5 * ms}},
			starts: []time.Duration{0}, n: 6,
			want: [][]time.Duration{{0, 15 * ms, 25 * ms}}, // 1 + 3 + 2 tokens
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			virtual(t, test.config, func(t bubble, e *Engine, c *http.Client) {
				got := make([][]time.Duration, len(test.starts))
				var group sync.WaitGroup
				for i, start := range test.starts {
					group.Go(func() {
						time.Sleep(start - e.now())
						var err error
						if got[i], _, err = stream(t.Context(), e, c, ids(1000*i, i+1), test.n); err != nil {
							t.Error(err)
						}
					})
				}
				group.Wait()
				if d := cmp.Diff(test.want, got); d != "" {
					t.Errorf("arrivals (-want +got):\n%s", d)
				}
			})
		})
	}
}

// If blocks are committed on admission, an equal prompt hits them at once; otherwise only when the first prompt's prefill has ended.
func TestCommitInstant(t *testing.T) {
	for _, after := range []bool{false, true} {
		config := Config{Cache: Cache{BlockSize: 4, CommitAfterPrefill: after}, Latency: Latency{Prefill: 10 * ms}}
		virtual(t, config, func(t bubble, e *Engine, c *http.Client) {
			var group sync.WaitGroup
			for _, start := range []time.Duration{0, 5 * ms, 11 * ms} {
				group.Go(func() {
					time.Sleep(start)
					if _, _, err := stream(t.Context(), e, c, ids(0, 8), 1); err != nil {
						t.Error(err)
					}
				})
			}
			group.Wait()
			synctest.Wait()
			want := []int{0, 8, 8}
			if after {
				want = []int{0, 0, 8}
			}
			var got []int
			for _, r := range e.Records() {
				got = append(got, r.CachedTokens)
			}
			if d := cmp.Diff(want, got); d != "" {
				t.Errorf("after prefill %v: cached tokens (-want +got):\n%s", after, d)
			}
		})
	}
}

// A client that leaves releases its room at once, in any phase.
func TestDisconnect(t *testing.T) {
	config := Config{MaxRunning: 1, Latency: Latency{Prefill: 100 * ms, Decode: 10 * ms}}
	for _, test := range []struct {
		name       string
		leave      time.Duration // of the first request
		output     int
		lastStarts time.Duration // admission of the last request, which needs the room of the first
	}{
		{"in prefill", 50 * ms, 0, 50 * ms},
		{"in decode", 125 * ms, 3, 125 * ms},
	} {
		t.Run(test.name, func(t *testing.T) {
			virtual(t, config, func(t bubble, e *Engine, c *http.Client) {
				var group sync.WaitGroup
				group.Go(func() {
					ctx, cancel := context.WithTimeout(t.Context(), test.leave)
					defer cancel()
					if _, _, err := stream(ctx, e, c, ids(0, 4), 1000); err == nil {
						t.Error("the first request was served")
					}
				})
				group.Go(func() { // waits, and leaves while it waits
					time.Sleep(ms)
					ctx, cancel := context.WithTimeout(t.Context(), 10*ms)
					defer cancel()
					if _, _, err := stream(ctx, e, c, ids(0, 4), 1000); err == nil {
						t.Error("the waiting request was served")
					}
				})
				group.Go(func() {
					time.Sleep(2 * ms)
					if _, _, err := stream(t.Context(), e, c, ids(0, 4), 1); err != nil {
						t.Error(err)
					}
				})
				group.Wait()
				synctest.Wait()
				r := e.Records()
				if len(r) != 3 {
					t.Fatalf("%d records", len(r))
				}
				if r[0].Outcome != ClientGone || r[0].OutputTokens != test.output || r[0].Ended != test.leave {
					t.Errorf("first: %+v", r[0])
				}
				if r[1].Outcome != ClientGone || r[1].Admitted != Never || r[1].Ended != 11*ms {
					t.Errorf("waiting: %+v", r[1])
				}
				if r[2].Outcome != Finished || r[2].Admitted != test.lastStarts {
					t.Errorf("last: %+v", r[2])
				}
				if s := e.Stats(); s.Running != 0 || s.Waiting != 0 {
					t.Errorf("stats %+v", s)
				}
			})
		})
	}
}

func TestQueueFull(t *testing.T) {
	config := Config{MaxRunning: 1, MaxWaiting: 1, Latency: Latency{Prefill: 10 * ms}}
	virtual(t, config, func(t bubble, e *Engine, c *http.Client) {
		var group sync.WaitGroup
		for i := range 3 {
			group.Go(func() {
				time.Sleep(time.Duration(i) * ms)
				_, rest, err := stream(t.Context(), e, c, ids(0, 4), 1)
				if err != nil || strings.Contains(rest, "too many requests") != (i == 2) {
					t.Errorf("request %d: %v, %q", i, err, rest)
				}
			})
		}
		group.Wait()
		synctest.Wait()
		if r := e.Records()[2]; r.Status != 429 || r.Outcome != Rejected {
			t.Errorf("record %+v", r)
		}
	})
}

// Close ends running requests at once, and later ones are refused.
func TestClose(t *testing.T) {
	virtual(t, Config{Latency: Latency{Decode: time.Hour}}, func(t bubble, e *Engine, c *http.Client) {
		done := make(chan error)
		go func() {
			_, rest, err := stream(t.Context(), e, c, ids(0, 4), 1000)
			if strings.Contains(rest, "[DONE]") {
				t.Error("the reply looks complete")
			}
			done <- err
		}()
		time.Sleep(time.Minute)
		if err := e.Close(); err != nil {
			t.Error(err)
		}
		if err := <-done; err == nil {
			t.Error("the stream ended cleanly")
		}
		if r := e.Records(); len(r) != 1 || r[0].Outcome != Closed || r[0].Ended != time.Minute || r[0].OutputTokens != 1 {
			t.Errorf("records %+v", r)
		}
		_, rest, err := stream(t.Context(), e, c, ids(0, 4), 1)
		if err != nil || !strings.Contains(rest, "closed") {
			t.Errorf("after Close: %v, %q", err, rest)
		}
	})
}

// A body that never ends is abandoned, and a client that does not read does not delay Close.
func TestSlowClients(t *testing.T) {
	virtual(t, Config{BodyTimeout: 5 * time.Second}, func(t bubble, e *Engine, c *http.Client) {
		conn, err := c.Transport.(*http.Transport).DialContext(t.Context(), "", "")
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = conn.Close() }()
		go func() {
			_, _ = io.WriteString(conn, "POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{")
		}()
		reply, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			t.Fatal(err)
		}
		_ = reply.Body.Close()
		if reply.StatusCode != http.StatusRequestTimeout || e.now() != 5*time.Second {
			t.Errorf("status %d after %v", reply.StatusCode, e.now())
		}

		deaf, err := c.Transport.(*http.Transport).DialContext(t.Context(), "", "")
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = deaf.Close() }()
		body := `{"model":"m","prompt":"x","stream":true}`
		_, err = fmt.Fprintf(deaf, "POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute) // the handler blocks in its first write
		if s := e.Stats(); s.Running != 1 {
			t.Errorf("stats %+v", s)
		}
		if err := e.Close(); err != nil {
			t.Error(err)
		}
		if r := e.Records(); r[len(r)-1].Outcome != Closed {
			t.Errorf("record %+v", r[len(r)-1])
		}
	})
}

func TestRoleChunk(t *testing.T) {
	const body = `{"model":"m","messages":[{"role":"user","content":"hello"}],"max_tokens":2,"stream":true}`
	for _, test := range []struct {
		role RoleChunk
		want Writes
	}{
		{RoleWithFirstToken, Writes{{10 * ms, 1}, {15 * ms, 1}, {15 * ms, 0}}},
		{RoleImmediately, Writes{{0, 0}, {10 * ms, 1}, {15 * ms, 1}, {15 * ms, 0}}},
	} {
		virtual(t, Config{RoleChunk: test.role, Latency: Latency{Prefill: 10 * ms, Decode: 5 * ms}}, func(t bubble, e *Engine, c *http.Client) {
			resp, err := c.Post("http://engine/v1/chat/completions", "application/json", strings.NewReader(body))
			if err != nil {
				t.Fatal(err)
			}
			reply, _ := io.ReadAll(resp.Body)
			_ = resp.Body.Close()
			if n := strings.Count(string(reply), `"role":"assistant"`); n != 1 {
				t.Errorf("%d role chunks", n)
			}
			synctest.Wait()
			if d := cmp.Diff(test.want, e.Records()[0].Writes); d != "" {
				t.Errorf("role %d: writes (-want +got):\n%s", test.role, d)
			}
		})
	}
}
