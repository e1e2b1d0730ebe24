// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package simulator

import (
	"context"
	"errors"
	"io"
	"math"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// Faults that are requested by header, in a stream of 10 tokens. Those that break the stream do so after 5 tokens.
func TestFaultStreams(t *testing.T) {
	for _, test := range []struct {
		fault      Fault
		status     int // 0: no reply
		retryAfter string
		tokens     int
		ends       error // how the client sees the end; nil is clean
		contains   string
		lacks      string
	}{
		{"rate-limit", 429, "2", 0, nil, "too many requests", "DONE"},
		{"unavailable", 503, "2", 0, nil, "unavailable", "DONE"},
		{"server-error", 500, "", 0, nil, "failed", "DONE"},
		{"refuse", 0, "", 0, io.EOF, "", ""},
		{"stream-error", 200, "", 5, nil, `data: {"error"`, "DONE"},
		{"stream-error-done", 200, "", 5, nil, "data: [DONE]", `"finish_reason":"`},
		{"cut", 200, "", 5, io.ErrUnexpectedEOF, "", "DONE"},
		{"stall", 200, "", 10, nil, "data: [DONE]", ""},
		{"silent-end", 200, "", 5, nil, "", "DONE"},
	} {
		t.Run(string(test.fault), func(t *testing.T) {
			e, url := serve(t, Config{Faults: Faults{RetryAfter: 1500 * time.Millisecond, StallFor: time.Millisecond}})
			body := `{"model":"m","prompt":[1,2],"max_tokens":10,"stream":true}`
			resp, reply, err := tryPost(t, url+"/v1/completions", body, HeaderFault, string(test.fault))
			if !errors.Is(err, test.ends) {
				t.Errorf("error %v, want %v", err, test.ends)
			}
			if test.status != 0 && (resp.StatusCode != test.status || resp.Header.Get("Retry-After") != test.retryAfter) {
				t.Errorf("status %d, Retry-After %q", resp.StatusCode, resp.Header.Get("Retry-After"))
			}
			if n := strings.Count(reply, `"text":"`) - strings.Count(reply, `"text":""`); n != test.tokens {
				t.Errorf("%d tokens, want %d", n, test.tokens)
			}
			if !strings.Contains(reply, test.contains) || (test.lacks != "" && strings.Contains(reply, test.lacks)) {
				t.Errorf("reply %s", reply)
			}
			r := lastRecord(t, e)
			if r.Outcome != Faulted || r.Fault != test.fault || r.OutputTokens != test.tokens || r.PromptTokens != 2 {
				t.Errorf("record %+v", r)
			}
			if s := e.Stats(); s.Running != 0 || s.Outcomes[Faulted] != 1 {
				t.Errorf("stats %+v", s)
			}
		})
	}
}

func TestFaultWholeReplies(t *testing.T) {
	for _, test := range []struct {
		fault  Fault
		status int // 0: the connection is dropped
	}{
		{"rate-limit", 429},
		{"refuse", 0},
		{"stream-error", 500},
		{"stream-error-done", 500},
		{"cut", 0},
		{"stall", 200},
		{"silent-end", 0},
	} {
		t.Run(string(test.fault), func(t *testing.T) {
			_, url := serve(t, Config{Faults: Faults{StallFor: time.Millisecond}})
			resp, _, err := tryPost(t, url+"/v1/completions", `{"model":"m","prompt":[1,2],"max_tokens":10}`, HeaderFault, string(test.fault))
			if (err != nil) != (test.status == 0) || (err == nil && resp.StatusCode != test.status) {
				t.Errorf("reply %+v, error %v", resp, err)
			}
		})
	}
	_, url := serve(t, Config{})
	if resp, reply := post(t, url+"/v1/completions", `{}`, HeaderFault, "nonsense"); resp.StatusCode != http.StatusBadRequest || !strings.Contains(reply, "rate-limit") {
		t.Errorf("unknown fault: %d %s", resp.StatusCode, reply)
	}
}

// A stall without an end lasts until the client leaves; one with an end delays what follows.
func TestFaultStall(t *testing.T) {
	config := Config{Latency: Latency{Decode: 10 * ms}, Faults: Faults{After: 1, StallFor: time.Second}}
	virtual(t, config, func(t bubble, e *Engine, c *http.Client) {
		got, _, err := stream(t.Context(), e, c, ids(0, 2), 3, HeaderFault, "stall")
		if err != nil || len(got) != 3 || got[0] != 0 || got[1] != 1010*ms || got[2] != 1020*ms {
			t.Errorf("arrivals %v, error %v", got, err)
		}
	})
	config.Faults.StallFor = 0
	virtual(t, config, func(t bubble, e *Engine, c *http.Client) {
		c.Timeout = time.Hour
		if _, _, err := stream(t.Context(), e, c, ids(0, 2), 3, HeaderFault, "stall"); err == nil {
			t.Error("the stall ended")
		}
		synctest.Wait()
		if r := e.Records()[0]; r.Outcome != ClientGone || r.Fault != "stall" || r.Ended != time.Hour || r.OutputTokens != 1 {
			t.Errorf("record %+v", r)
		}
	})
}

// Faults are drawn at their rates, and are the same with the same seed.
func TestFaultRates(t *testing.T) {
	config := Config{Seed: 7, Faults: Faults{Rates: map[Fault]float64{"cut": 0.1, "rate-limit": 0.25}}}
	draw := func(c *Config) (names []Fault) {
		for seq := range uint64(20_000) {
			kind, _ := c.fault(seq, nil)
			if kind == nil {
				names = append(names, "")
			} else {
				names = append(names, kind.name)
			}
		}
		return names
	}
	count := make(map[Fault]int)
	first, again := draw(&config), draw(&config)
	for i, name := range first {
		count[name]++
		if again[i] != name {
			t.Fatalf("request %d met %q and then %q", i, name, again[i])
		}
	}
	for name, want := range map[Fault]float64{"cut": 0.1, "rate-limit": 0.25, "": 0.65} {
		if got := float64(count[name]) / 20_000; math.Abs(got-want) > 0.015 { // over four standard deviations
			t.Errorf("fault %q: share %v, want %v", name, got, want)
		}
	}
	config.Seed = 8
	same := 0
	for i, name := range draw(&config) {
		if name == first[i] {
			same++
		}
	}
	if same == len(first) {
		t.Error("another seed drew the same faults")
	}
}

func TestFaultPosition(t *testing.T) {
	for _, test := range []struct{ after, tokens, want int }{
		{0, 1, 1}, {0, 2, 1}, {0, 3, 1}, {0, 10, 5}, {3, 10, 3}, {10, 10, 10}, {11, 10, 10},
	} {
		f := Faults{After: test.after}
		if got := f.position(test.tokens); got != test.want {
			t.Errorf("after %d of %d tokens: %d, want %d", test.after, test.tokens, got, test.want)
		}
	}
}

// A fault after the last token comes before the finish reason, with several tokens a chunk too.
func TestFaultAtTheEnd(t *testing.T) {
	e, url := serve(t, Config{TokensPerChunk: 4, Faults: Faults{After: 7}})
	for _, test := range []struct{ maxTokens, want string }{{"7", "7"}, {"20", "7"}, {"3", "3"}} {
		_, reply, err := tryPost(t, url+"/v1/completions", `{"model":"m","prompt":[1],"stream":true,"max_tokens":`+test.maxTokens+`}`, HeaderFault, "silent-end")
		if err != nil || strings.Contains(reply, `"finish_reason":"`) {
			t.Errorf("max_tokens %s: %v, %s", test.maxTokens, err, reply)
		}
		if r := lastRecord(t, e); test.want != string(rune('0'+r.OutputTokens)) {
			t.Errorf("max_tokens %s: %d tokens, want %s", test.maxTokens, r.OutputTokens, test.want)
		}
	}
}

// Faults that change only the shape of a reply, as they look on the wire.
func TestShapes(t *testing.T) {
	for _, test := range []struct {
		fault    Fault
		contains []string
		lacks    []string
	}{
		{"comments", []string{":\n\n: keep-alive\n\ndata: {", "\n\n: keep-alive\n\ndata: [DONE]\n\n"}, nil},
		{"null-events", []string{"data: null\n\ndata: {"}, nil},
		{"fields", []string{"id: 1\nretry: 10\ndata: {"}, nil},
		{"no-space", []string{"data:{", "data:[DONE]"}, []string{"data: "}},
		{"trailing-space", []string{"} \n\n", "[DONE] \n\n"}, []string{"}\n\n"}},
		{"crlf", []string{"}\r\n\r\n", "[DONE]\r\n\r\n"}, []string{"}\n"}},
		{"cr", []string{"}\r\rdata: "}, []string{"\n"}},
		{"byte-order-mark", []string{"\xef\xbb\xbfdata: {"}, []string{"\n\xef\xbb\xbf"}},
		{"split-data", []string{",\ndata: \"object\"", "\n\ndata: [DONE]\n\n"}, nil},
		{"long-line", []string{`,"prompt_token_ids":[1,1`}, nil},
		{"empty-chunks", []string{`"delta":{"content":""}`}, nil},
		{"role-everywhere", []string{`"delta":{"role":"assistant","content":"`}, []string{`"delta":{"content"`}},
		{"usage-null", []string{`"usage":null`, `"total_tokens":`}, nil},
		{"usage-zero", []string{`"completion_tokens":0,`, `"completion_tokens":4,`}, []string{`"usage":null`}},
		{"usage-grows", []string{`"completion_tokens":1,`, `"completion_tokens":3,`}, []string{`"usage":null`}},
		{"usage-on-finish", []string{`"finish_reason":"length"}],"usage":{`}, []string{`"choices":[],`}},
		{"no-usage", nil, []string{"usage"}},
		{"finish-on-last", []string{`"},"logprobs":null,"finish_reason":"length"}]`}, []string{`"delta":{}`}},
		{"no-done", []string{`"choices":[],"usage"`}, []string{"[DONE]"}},
		{"other-finish", []string{`"finish_reason":"abort"`}, []string{`"length"`}},
		{"short-output", []string{`"completion_tokens":2,`, `"finish_reason":"length"`}, nil},
		{"short-prompt", []string{`"prompt_tokens":6,`}, nil}, // of 12
		{"reasoning", []string{`"delta":{"reasoning":"`, `"delta":{"content":"`}, nil},
		{"reasoning-content", []string{`"delta":{"reasoning_content":"`, `"delta":{"content":"`}, nil},
		{"tool-deltas", []string{`"function":{"name":"simulated"`, `"finish_reason":"tool_calls"`}, []string{`"content":" `}},
		{"choices", []string{`{"index":1,"delta":{"content":"`, `{"index":1,"delta":{},"logprobs":null,"finish_reason":"length"}`}, nil},
		{"choice-unfinished", []string{`{"index":1,"delta":{"content":"`}, []string{`{"index":1,"delta":{},`}},
	} {
		t.Run(string(test.fault), func(t *testing.T) {
			e, url := serve(t, Config{})
			body := `{"model":"m","messages":[{"role":"user","content":"a b"}],"max_tokens":4,"stream":true,"stream_options":{"include_usage":true}}`
			resp, reply := post(t, url+"/v1/chat/completions", body, HeaderFault, string(test.fault))
			if resp.StatusCode != http.StatusOK {
				t.Errorf("status %d", resp.StatusCode)
			}
			for _, s := range test.contains {
				if !strings.Contains(reply, s) {
					t.Errorf("reply lacks %q:\n%.2000s", s, reply)
				}
			}
			for _, s := range test.lacks {
				if strings.Contains(reply, s) {
					t.Errorf("reply has %q:\n%.2000s", s, reply)
				}
			}
			if r := lastRecord(t, e); r.Outcome != Faulted || r.Fault != test.fault || r.OutputTokens == 0 {
				t.Errorf("record %+v", r)
			}
		})
	}
}

// Joined chunks have their tokens in one write, and are still counted.
func TestJoinedWrites(t *testing.T) {
	for fault, want := range map[Fault][]int{
		"joined-chunks": {4, 4, 2, 0}, "joined-tokens": {1, 4, 4, 1, 0}, "tiny-writes": {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0},
	} {
		e, url := serve(t, Config{})
		post(t, url+"/v1/completions", `{"model":"m","prompt":[1,2],"max_tokens":10,"stream":true}`, HeaderFault, string(fault))
		r := lastRecord(t, e)
		var got []int
		for _, w := range r.Writes {
			got = append(got, w.Tokens)
		}
		if !slices.Equal(got, want) || r.OutputTokens != 10 {
			t.Errorf("%s: writes of %v tokens, want %v; %d in all", fault, got, want, r.OutputTokens)
		}
	}
}

// With the fault slow-accept, a request is read late, or, if StallFor is 0, not at all.
func TestSlowAccept(t *testing.T) {
	const late = 30 * time.Millisecond
	e, url := serve(t, Config{Faults: Faults{StallFor: late}})
	resp, _ := post(t, url+"/v1/completions", `{"model":"m","prompt":[1,2],"max_tokens":2,"stream":true}`, HeaderFault, "slow-accept")
	if r := lastRecord(t, e); resp.StatusCode != http.StatusOK || r.BodyRead-r.Headers < late {
		t.Errorf("status %d, read %v after its head, want %v", resp.StatusCode, r.BodyRead-r.Headers, late)
	}
	e, url = serve(t, Config{BodyTimeout: late})
	resp, _ = post(t, url+"/v1/completions", `{"model":"m","prompt":[1,2],"max_tokens":2,"stream":true}`, HeaderFault, "slow-accept")
	if r := lastRecord(t, e); resp.StatusCode != http.StatusRequestTimeout || r.Outcome != Faulted {
		t.Errorf("status %d, record %+v", resp.StatusCode, r)
	}

	// Closing the engine ends the wait, although nobody reads, and so nobody notices a client that leaves.
	e, url = serve(t, Config{})
	ctx, cancel := context.WithCancel(t.Context())
	sent := make(chan error, 1)
	go func() {
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, url+"/v1/completions", strings.NewReader(`{"model":"m","prompt":[1,2]}`))
		if err == nil {
			req.Header.Set(HeaderFault, "slow-accept")
			var resp *http.Response
			if resp, err = http.DefaultClient.Do(req); err == nil {
				_ = resp.Body.Close()
			}
		}
		sent <- err
	}()
	for e.seq.Load() == 0 {
		time.Sleep(time.Millisecond)
	}
	cancel()
	if err := <-sent; err == nil {
		t.Error("the request that nobody reads was answered")
	}
	if err := e.Close(); err != nil {
		t.Error(err)
	}
	if r := lastRecord(t, e); r.Outcome != Closed || r.BodyRead != Never {
		t.Errorf("record %+v", r)
	}
}
