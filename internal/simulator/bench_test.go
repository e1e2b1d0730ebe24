// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package simulator

import (
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// BenchmarkPrompt measures the cost of one request up to its cache lookup: decoding, tokenising and hashing the body.
//
//	go test -run - -bench Prompt ./internal/simulator
func BenchmarkPrompt(b *testing.B) {
	for _, tokens := range []int{12_000, 126_000} {
		text := `"` + words(tokens-1) + `"`
		numbers := make([]int, tokens)
		for i := range numbers {
			numbers[i] = 100_000 + i%28_000
		}
		for _, bench := range []struct {
			name string
			api  api
			body string
		}{
			{"chat", chat, `{"model":"m","messages":[{"role":"user","content":` + text + `}],"max_tokens":5}`},
			{"text", completions, `{"model":"m","prompt":` + text + `,"max_tokens":5}`},
			{"ids", completions, `{"model":"m","prompt":` + idsPrompt(numbers) + `,"max_tokens":5}`},
		} {
			b.Run(fmt.Sprintf("%s/%d", bench.name, tokens), func(b *testing.B) {
				body := []byte(bench.body)
				b.SetBytes(int64(len(body)))
				b.ReportAllocs()
				cache := newBlockCache(0)
				for b.Loop() {
					q, refusal := parseRequest(bench.api, LikePlain, body)
					if refusal != nil {
						b.Fatal(refusal)
					}
					c := newChain(512, Tokenizer{})
					if refusal := q.render(bench.api, c, DefaultTemplate); refusal != nil {
						b.Fatal(refusal)
					}
					salted(c.blocks, q.facts.Model, q.cacheSalt)
					cache.admit(c.blocks)
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*tokens), "ns/token")
			})
		}
	}
}

// discard is a response writer that accepts everything at once.
type discard struct{ header http.Header }

func (d discard) Header() http.Header       { return d.header }
func (discard) Write(p []byte) (int, error) { return len(p), nil }
func (discard) WriteHeader(int)             {}
func (discard) Flush()                      {}

// BenchmarkStream measures the engine's own cost of each streamed token, without a connection.
func BenchmarkStream(b *testing.B) {
	e, err := New(Config{Record: Recording{Keep: -1}})
	if err != nil {
		b.Fatal(err)
	}
	defer e.Close()
	const tokens = 1000
	body := []byte(fmt.Sprintf(`{"model":"m","prompt":[1,2,3],"max_tokens":%d,"stream":true}`, tokens))
	for b.Loop() {
		r := httptest.NewRequest(http.MethodPost, "/v1/completions", bytes.NewReader(body))
		e.ServeHTTP(discard{make(http.Header)}, r)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*tokens), "ns/token")
}

// BenchmarkLoopback measures a whole request of a 12,000-token prompt over a loopback connection, client included.
func BenchmarkLoopback(b *testing.B) {
	_, url := serve(b, Config{Record: Recording{Keep: -1}})
	body := `{"model":"m","prompt":"` + words(11_999) + `","max_tokens":1}`
	b.SetBytes(int64(len(body)))
	for b.Loop() {
		if resp, reply := post(b, url+"/v1/completions", body); resp.StatusCode != http.StatusOK || !strings.Contains(reply, `"prompt_tokens":12000`) {
			b.Fatal(reply)
		}
	}
}
