// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/moonloop/moonloop/internal/simulator"
	"github.com/moonloop/moonloop/study"
)

// routed is a router in front of engines. It sends each request to the next engine, and names that engine in a header of the reply.
type routed struct {
	engines []*simulator.Engine
	url     string
}

func startRouter(t *testing.T, header string, caches ...simulator.Cache) *routed {
	t.Helper()
	r := &routed{}
	var proxies []http.Handler
	for i, cache := range caches {
		e, err := simulator.New(simulator.Config{Models: []string{"sim"}, Cache: cache, Record: simulator.Recording{Keep: 1000}})
		if err != nil {
			t.Fatal(err)
		}
		server := httptest.NewServer(e)
		t.Cleanup(func() { server.Close(); _ = e.Close() })
		u, err := url.Parse(server.URL)
		if err != nil {
			t.Fatal(err)
		}
		proxy := &httputil.ReverseProxy{Rewrite: func(p *httputil.ProxyRequest) { p.SetURL(u) }, FlushInterval: -1}
		proxy.ModifyResponse = func(response *http.Response) error {
			if header != "" {
				response.Header.Set(header, fmt.Sprintf("pod-%d", i))
			}
			return nil
		}
		r.engines, proxies = append(r.engines, e), append(proxies, proxy)
	}
	var next atomic.Int64
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		proxies[int(next.Add(1))%len(proxies)].ServeHTTP(w, q)
	}))
	t.Cleanup(front.Close)
	r.url = front.URL
	return r
}

// replayThrough runs a replay, one request at a time. On a busy machine the times are not valid (status 3); counts are.
func replayThrough(t *testing.T, trace, url, out, more string) {
	t.Helper()
	text := "replay " + trace + " --url " + url + " --model sim --endpoint completions --no-fixed-schedule --concurrency 1 --progress none --out " + out + more
	var said bytes.Buffer
	if status := run(t.Context(), strings.Fields(text), strings.NewReader(""), &said, &said); status != exitOK && status != exitInvalid {
		t.Fatalf("%s: status %d\n%s", text, status, said.String())
	}
}

// commandLine runs a command line, which must end with the status want, and returns its output.
func commandLine(t *testing.T, want int, text string) string {
	t.Helper()
	var out, errs bytes.Buffer
	if status := run(t.Context(), strings.Fields(text), strings.NewReader(""), &out, &errs); status != want {
		t.Fatalf("%s: status %d, want %d\n%s%s", text, status, want, out.String(), errs.String())
	}
	return out.String() + errs.String()
}

// TestRouter: the figures of each instance equal the counts of the engines behind a real router. The simulated caches hit as many tokens as
// the engines' caches: exactly as many if these are infinite, else about as many.
func TestRouter(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	trace := filepath.Join(dir, "trace.jsonl")
	commandLine(t, 0, "generate --rows 120 --rate 20 --think 2,0.5 --system-prompt 1100 --user 700,0.6,2000 --output 5,0.6,9 --max-input 8000 --out "+trace)
	cached := map[string]int64{}
	for name, test := range map[string]struct {
		header, flag string
		cache        simulator.Cache
	}{
		"infinite caches":          {"X-Inference-Pod", "", simulator.Cache{BlockSize: 512}},
		"small caches":             {"X-Inference-Pod", "", simulator.Cache{BlockSize: 512, Blocks: 12}},
		"a header named by a flag": {"Served-By", " --instance-header Served-By", simulator.Cache{BlockSize: 512}},
	} {
		t.Run(name, func(t *testing.T) {
			r := startRouter(t, test.header, test.cache, test.cache, test.cache)
			out := filepath.Join(t.TempDir(), "run")
			replayThrough(t, trace, r.url, out, test.flag)
			var got struct{ Runs []study.Router }
			capacity := 512 * test.cache.Blocks
			if err := json.Unmarshal([]byte(commandLine(t, 0, fmt.Sprintf("router %s --json --cache-tokens %d --html %s.html", out, capacity, out))), &got); err != nil {
				t.Fatal(err)
			}
			g := got.Runs[0]
			if g.Rows != 120 || g.LeftOut != 0 || len(g.Instances) != 3 || g.Cached == nil || g.Capacity != int64(capacity) {
				t.Fatalf("%+v", g)
			}
			for i, e := range r.engines {
				var rows, prompt, cached int64
				for _, rec := range e.Records() {
					if rec.Request.Stream {
						rows, prompt, cached = rows+1, prompt+int64(rec.PromptTokens), cached+int64(rec.CachedTokens)
					}
				}
				one := g.Instances[i]
				if one.Name != fmt.Sprintf("pod-%d", i) || one.Rows != rows || one.PromptTokens != prompt || *one.Cached != cached {
					t.Errorf("%+v, and by the engine %d rows, %d tokens, %d cached", one, rows, prompt, cached)
				}
				// If blocks are dropped, the order of requests counts, and requests may overlap slightly.
				if off := one.Routed - cached; off != 0 && capacity == 0 || max(off, -off) > prompt/50 {
					t.Errorf("%s has %d tokens by simulation, %d by the engine, of %d", one.Name, one.Routed, cached, prompt)
				}
			}
			cached[name] = *g.Cached
			if *g.Cached <= 0 || g.Routed >= g.Best || g.Best > g.Infinite {
				t.Errorf("cached %d, as routed %d, best %d, infinite %d", *g.Cached, g.Routed, g.Best, g.Infinite)
			}
			if g.Imbalance < 1 || g.Imbalance > 1.5 {
				t.Errorf("imbalance %v of a round-robin router", g.Imbalance)
			}
		})
	}
	if cached["small caches"] >= cached["infinite caches"] {
		t.Errorf("the test proves nothing, since no block was dropped: %v", cached)
	}
	t.Run("refused", func(t *testing.T) {
		r := startRouter(t, "", simulator.Cache{})
		out := filepath.Join(t.TempDir(), "run")
		replayThrough(t, trace, r.url, out, " --max-requests 5")
		if text := commandLine(t, exitUsage, "router "+out); !strings.Contains(text, "no request says which instance served it") || !strings.Contains(text, "--instance-header") {
			t.Error(text)
		}
		named := startRouter(t, "X-Inference-Pod", simulator.Cache{})
		other := filepath.Join(t.TempDir(), "other")
		replayThrough(t, trace, named.url, other, " --max-requests 5")
		whole := filepath.Join(t.TempDir(), "whole")
		replayThrough(t, trace, named.url, whole, "")
		if text := commandLine(t, exitUsage, "router "+other+" "+whole); !strings.Contains(text, "they replayed different traces") {
			t.Error(text)
		}
	})
}
