// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package simulator

import (
	"bytes"
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"
)

// For any input, the engine does not panic. It refuses the input with 4xx and a message, or encoding/json accepts the input, too, and a
// prompt that is a text has as many words as the engine counts tokens.
func FuzzRequest(f *testing.F) {
	for _, seed := range []string{
		`{"model":"m","prompt":"a b\tc\n","max_tokens":3}`,
		`{"model":"m","prompt":[1, 2,3 ],"stream":true,"stream_options":{"include_usage":true}}`,
		`{"model":"m","prompt":[[1,2]]}`, `{"model":"m","prompt":["a\u0020b \"c\""]}`, `{"model":"m","prompt":[]}`,
		`{"model":"m","messages":[{"role":"user","content":"x y"},{"role":"tool","content":[{"text":"z"}],"tool_calls":[1]}],"tools":[{"function":{"name":"f"}}]}`,
		`{"model":"m","messages":[{"role":"user"}],"tool_choice":"none","n":1,"cache_salt":"s","min_tokens":1}`,
		`{"a":1,"a":2}`, `[`, `{"model":"m","prompt":[1e3,-1]}`, `{"model":"m","prompt":"` + "\xff" + `"}`, `{} {}`, ``,
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, body string) {
		for _, a := range []api{chat, completions} {
			raw := []byte(body)
			q, refusal := parseRequest(a, LikePlain, raw)
			c := newChain(16, Tokenizer{})
			if refusal == nil {
				refusal = q.render(a, c, Template{})
			}
			if string(raw) != body {
				t.Fatal("the body was changed")
			}
			if refusal != nil {
				if refusal.status < 400 || refusal.status > 499 || refusal.message == "" || !json.Valid(refusal.body()) {
					t.Fatalf("refusal %+v", refusal)
				}
				continue
			}
			if len(c.blocks) != c.tokens/16 {
				t.Fatalf("%d tokens, %d blocks", c.tokens, len(c.blocks))
			}
			var same struct{ Prompt any }
			if err := json.Unmarshal(raw, &same); err != nil {
				t.Fatalf("accepted what encoding/json refuses: %v", err)
			}
			text, isText := same.Prompt.(string)
			if n := len(strings.FieldsFunc(text, func(r rune) bool { return r < 128 && isSpace(byte(r)) })); a == completions && isText && n != c.tokens {
				t.Fatalf("%d tokens, want %d words", c.tokens, n)
			}
		}
	})
}

func TestChain(t *testing.T) {
	blocks := func(size int, texts ...string) ([]uint64, int) {
		c := newChain(size, Tokenizer{})
		for _, text := range texts {
			c.words([]byte(text))
		}
		return c.blocks, c.tokens
	}
	a, n := blocks(2, "one two three four five")
	if n != 5 || len(a) != 2 {
		t.Fatalf("%d tokens, %d blocks", n, len(a))
	}
	for _, test := range []struct {
		name   string
		texts  []string
		common int // leading blocks that agree with a
	}{
		{"the same in pieces", []string{" one\ttwo", "\nthree\r", " four five "}, 2},
		{"longer", []string{"one two three four five six"}, 2},
		{"another second block", []string{"one two three FOUR"}, 1},
		{"the same second block after another first one", []string{"ONE two three four"}, 0},
		{"the same letters in other words", []string{"onetwo three four"}, 0},
	} {
		b, _ := blocks(2, test.texts...)
		common := 0
		for common < min(len(a), len(b)) && a[common] == b[common] {
			common++
		}
		if common != test.common {
			t.Errorf("%s: %d common blocks, want %d", test.name, common, test.common)
		}
	}
	for _, test := range []struct {
		name, model, salt string
		same              bool
	}{
		{"same", "m", "s", true},
		{"another model", "n", "s", false},
		{"another salt", "m", "t", false},
		{"model and salt swapped", "s", "m", false},
	} {
		x, y := []uint64{1, 2}, []uint64{1, 2}
		salted(x, "m", "s")
		salted(y, test.model, test.salt)
		if (x[0] == y[0] && x[1] == y[1]) != test.same {
			t.Errorf("%s: %x and %x", test.name, x, y)
		}
	}
}

// The next turn of a chat begins with the tokens of the previous turn, header of the reply included.
func TestNextTurnExtendsThePrompt(t *testing.T) {
	turn := func(messages string) []uint64 {
		q, refusal := parseRequest(chat, LikePlain, []byte(`{"model":"m","messages":[`+messages+`]}`))
		if refusal != nil {
			t.Fatal(refusal)
		}
		c := newChain(1, Tokenizer{})
		if refusal := q.render(chat, c, DefaultTemplate); refusal != nil {
			t.Fatal(refusal)
		}
		return c.blocks
	}
	first := turn(`{"role":"user","content":"a b"}`)
	second := turn(`{"role":"user","content":"a b"},{"role":"assistant","content":"c"},{"role":"user","content":"d"}`)
	if len(first) != 2+10 || len(second) != 4+5+3*5 {
		t.Fatalf("%d and %d tokens", len(first), len(second))
	}
	for i, id := range first {
		if second[i] != id {
			t.Fatalf("token %d differs", i)
		}
	}
}

func TestRecomputeLast(t *testing.T) {
	for _, test := range []struct {
		tokens int
		cached int
	}{{7, 4}, {8, 4}, {9, 8}} { // blocks of 4: a prompt of 8 must not be cached as a whole
		e, url := serve(t, Config{Cache: Cache{BlockSize: 4, RecomputeLast: true}})
		for range 2 {
			post(t, url+"/v1/completions", `{"model":"m","prompt":`+idsPrompt(ids(0, test.tokens))+`}`)
		}
		if r := lastRecord(t, e); r.CachedTokens != test.cached {
			t.Errorf("%d tokens: %d cached, want %d", test.tokens, r.CachedTokens, test.cached)
		}
	}
}

func TestContinuousUsage(t *testing.T) {
	_, url := serve(t, Config{TokensPerChunk: 2})
	_, reply := post(t, url+"/v1/completions", `{"model":"m","prompt":[1],"max_tokens":4,"stream":true,"stream_options":{"include_usage":true,"continuous_usage_stats":true}}`)
	var counts []int
	for line := range strings.Lines(reply) {
		data, found := strings.CutPrefix(line, "data: {")
		if !found {
			continue
		}
		var chunk struct {
			Usage *struct {
				Completion int `json:"completion_tokens"`
			}
		}
		if err := json.Unmarshal([]byte("{"+data), &chunk); err != nil || chunk.Usage == nil {
			t.Fatalf("%q: %v", line, err)
		}
		counts = append(counts, chunk.Usage.Completion)
	}
	want := []int{1, 3, 4, 4, 4} // three chunks, finish, usage
	if len(counts) != len(want) {
		t.Fatalf("counts %v, want %v", counts, want)
	}
	for i := range want {
		if counts[i] != want[i] {
			t.Fatalf("counts %v, want %v", counts, want)
		}
	}
}

// HTTP/2 without TLS: served, cut off by a fault, and left by the client.
func TestHTTP2(t *testing.T) {
	e, url := serve(t, Config{Faults: Faults{After: 1}})
	transport := &http.Transport{Protocols: new(http.Protocols)}
	transport.Protocols.SetUnencryptedHTTP2(true)
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport}
	for _, test := range []struct {
		name, fault string
		leave       bool
		outcome     Outcome
	}{
		{"served", "", false, Finished},
		{"cut", "cut", false, Faulted},
		{"left by the client", "stall", true, ClientGone},
		{"served after that", "", false, Finished},
	} {
		t.Run(test.name, func(t *testing.T) {
			req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url+"/v1/completions", strings.NewReader(`{"model":"m","prompt":[1],"max_tokens":3,"stream":true}`))
			if err != nil {
				t.Fatal(err)
			}
			if test.fault != "" {
				req.Header.Set(HeaderFault, test.fault)
			}
			resp, err := client.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			var reply bytes.Buffer
			if !test.leave {
				_, err = reply.ReadFrom(resp.Body)
			}
			_ = resp.Body.Close()
			if (err != nil) != (test.outcome == Faulted) {
				t.Errorf("error %v", err)
			}
			r := lastRecord(t, e)
			if r.Outcome != test.outcome || r.Proto != "HTTP/2.0" {
				t.Errorf("record %+v", r)
			}
		})
	}
}

// Without the server's hooks, as a plain handler in another server, the engine works, too.
func TestRecordWithoutConn(t *testing.T) {
	e, err := New(Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "/v1/completions", strings.NewReader(`{"model":"m","prompt":"x","max_tokens":1}`))
	if err != nil {
		t.Fatal(err)
	}
	e.ServeHTTP(discard{make(http.Header)}, r)
	if rec := lastRecord(t, e); rec.Conn != 0 || rec.ConnAccepted != Never || rec.Outcome != Finished || rec.Ended > time.Minute {
		t.Errorf("record %+v", rec)
	}
}
