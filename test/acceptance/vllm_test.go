// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package acceptance

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// The loop on an engine that we did not write: an application in Python talks to vLLM through the official client with a real
// instrumentation library; `moonloop capture` listens with its defaults; the trace is replayed to the same engine with its
// cache emptied. What the engine cached is asked of the engine.
const (
	vllmBlock     = 32 // tokens; the smallest that it has without a GPU
	conversations = 30
	// atEngineBlock is how far, in points, a replay's hit rate may be from production's where the trace's blocks are as fine as
	// the engine's. What is left are the borders of blocks in text, and replies, which a replay's prompts do not hold.
	atEngineBlock = 3.0
)

// counted is what the engine counted of a request.
type counted struct {
	Input  int64  `json:"input"`
	Output int64  `json:"output"`
	Cached *int64 `json:"cached"`
}

// TestAcceptanceVLLM is the loop on vLLM, see above. Its seed is drawn anew each time and printed; MOONLOOP_SEED repeats one.
func TestAcceptanceVLLM(t *testing.T) {
	home, moonloop, dir := setting(t, "MOONLOOP_VLLM"), setting(t, "MOONLOOP_BIN"), artefacts(t)
	seed := os.Getenv("MOONLOOP_SEED")
	if seed == "" {
		seed = strconv.Itoa(rand.IntN(1_000_000))
	}
	t.Logf("seed %s", seed)
	key := []string{"MOONLOOP_HASH_KEY=" + strings.Repeat("a5", 32)}
	engine := startVLLM(t, home, dir)

	// Production.
	receiver := "127.0.0.1:" + freePort(t)
	trace := filepath.Join(dir, "production.jsonl")
	capture := start(t, dir, "capture", key, moonloop, "capture", "--out", trace, "--keep-journal", "--progress", "none",
		"--grpc", "127.0.0.1:"+freePort(t), "--http", receiver)
	capture.find(t, regexp.MustCompile(`(listening for OTLP over HTTP)`))
	engine.empty(t)
	before := engine.counters(t)
	log := filepath.Join(dir, "app.jsonl")
	app := start(t, dir, "app", []string{"OTEL_EXPORTER_OTLP_ENDPOINT=http://" + receiver},
		filepath.Join(home, "client", "bin", "python"), filepath.Join("vllm", "app.py"), engine.url, strconv.Itoa(conversations), seed, log)
	if code := app.wait(t, 15*time.Minute); code != 0 {
		t.Fatalf("the application ended with status %d\n%s", code, app.tail())
	}
	production := engine.counters(t).since(before)
	capture.stop(t)
	truth := readLines[counted](t, log)

	// What was captured is what the engine counted.
	type row struct {
		Input    int64   `json:"input_length"`
		Output   int64   `json:"output_length"`
		HashIDs  []int64 `json:"hash_ids"`
		Observed struct {
			Cached *int64 `json:"cached_tokens"`
		} `json:"observed"`
	}
	var captured []counted
	for _, r := range readLines[row](t, trace) {
		captured = append(captured, counted{r.Input, r.Output, r.Observed.Cached})
	}
	if want, got := multiset(truth), multiset(captured); !slices.Equal(want, got) {
		t.Errorf("requests as input/output/cached tokens: the engine counted\n%v\nthe trace has\n%v", want, got)
	}
	var cached int64
	for _, r := range truth {
		if r.Cached != nil {
			cached += *r.Cached
		}
	}
	if cached != production.hits {
		t.Errorf("the engine says that it had %d tokens cached, its replies add up to %d", production.hits, cached)
	}

	table := []string{fmt.Sprintf("%-28s %9s %9s %7s", "", "prompt", "cached", "rate"), fmt.Sprintf("%-28s %9d %9d %6.2f%%", "production", production.queries, production.hits, 100*production.rate())}
	for _, size := range []int{512, 128, vllmBlock} {
		name := fmt.Sprintf("block-%d", size)
		compiled := filepath.Join(dir, name+".jsonl")
		compile := start(t, dir, "compile-"+name, key, moonloop, "compile", filepath.Join(dir, "production.journal"),
			"--block-size", strconv.Itoa(size), "--out", compiled, "--progress", "none")
		if code := compile.wait(t, time.Minute); code != 0 {
			t.Fatalf("compile ended with status %d\n%s", code, compile.tail())
		}
		engine.empty(t)
		before := engine.counters(t)
		out := filepath.Join(dir, "run-"+name)
		replay := start(t, dir, "replay-"+name, nil, moonloop, "replay", compiled, "--url", engine.url, "--model", "tiny",
			"--out", out, "--progress", "none")
		// 3 says that the machine was too busy to measure times; counts hold all the same.
		if code := replay.wait(t, 15*time.Minute); code != 0 && code != 3 {
			t.Fatalf("replay ended with status %d\n%s", code, replay.tail())
		}
		spent := engine.counters(t).since(before)
		var summary struct {
			Rows     struct{ Total, Served int }
			Fidelity struct {
				Tokens struct{ Prompt, Output struct{ Equal int } }
				Cache  struct {
					Production struct {
						Production int64 `json:"production_tokens"`
						Replay     int64 `json:"replay_tokens"`
					}
				}
			}
		}
		read(t, filepath.Join(out, "summary.json"), &summary)
		if n := len(truth); summary.Rows.Served != n || summary.Fidelity.Tokens.Prompt.Equal != n || summary.Fidelity.Tokens.Output.Equal != n {
			t.Errorf("blocks of %d: %d requests served, %d with the row's prompt tokens, %d with its output tokens; want %d each",
				size, summary.Rows.Served, summary.Fidelity.Tokens.Prompt.Equal, summary.Fidelity.Tokens.Output.Equal, n)
		}
		c := summary.Fidelity.Cache.Production
		if c.Production != cached || c.Replay != spent.hits {
			t.Errorf("blocks of %d: the summary has %d and %d cached tokens of production and replay; the engine counted %d and %d",
				size, c.Production, c.Replay, cached, spent.hits)
		}
		rate := float64(c.Replay) / float64(production.queries)
		table = append(table, fmt.Sprintf("%-28s %9d %9d %6.2f%%", fmt.Sprintf("replay, blocks of %d", size), production.queries, c.Replay, 100*rate))
		if apart := 100 * (production.rate() - rate); size == vllmBlock && (apart > atEngineBlock || apart < -atEngineBlock) {
			t.Errorf("with blocks as fine as the engine's the hit rates are %.2f points apart, at most %.1f are explained", apart, atEngineBlock)
		}
	}
	t.Logf("%d requests of %d conversations, seed %s\n%s", len(truth), conversations, seed, strings.Join(table, "\n"))
}

// vllm is an engine under way.
type vllm struct{ url string }

// startVLLM starts an engine and waits until it has loaded its model.
func startVLLM(t *testing.T, home, dir string) *vllm {
	t.Helper()
	port := freePort(t)
	e := &vllm{"http://127.0.0.1:" + port}
	server := start(t, dir, "vllm", []string{
		"VLLM_CPU_KVCACHE_SPACE=2", "OMP_NUM_THREADS=1", "HF_HUB_OFFLINE=1", "VLLM_NO_USAGE_STATS=1", "DO_NOT_TRACK=1",
		"VLLM_SERVER_DEV_MODE=1", // which has reset_prefix_cache
	}, filepath.Join(home, "server", "bin", "vllm"), "serve", filepath.Join(home, "model"), "--served-model-name", "tiny",
		"--host", "127.0.0.1", "--port", port, "--enable-prefix-caching", "--enable-prompt-tokens-details", "--enforce-eager",
		"--max-model-len", "16384", "--max-num-seqs", "64", "--block-size", strconv.Itoa(vllmBlock))
	t.Cleanup(func() { server.stop(t) }) // before it is killed, which would leave its workers behind
	for deadline := time.Now().Add(10 * time.Minute); ; time.Sleep(time.Second) {
		if _, err := e.ask(t.Context(), http.MethodGet, "/health"); err == nil {
			return e
		}
		select {
		case <-server.done:
			t.Fatalf("vLLM ended with status %d\n%s", server.code, server.tail())
		default:
		}
		if time.Now().After(deadline) {
			t.Fatalf("vLLM is not ready\n%s", server.tail())
		}
	}
}

func (e *vllm) ask(ctx context.Context, method, path string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, method, e.url+path, nil)
	if err != nil {
		return nil, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", path, response.Status)
	}
	return body, err
}

// empty drops what the engine has cached.
func (e *vllm) empty(t *testing.T) {
	t.Helper()
	if _, err := e.ask(t.Context(), http.MethodPost, "/reset_prefix_cache"); err != nil {
		t.Fatal(err)
	}
}

// tokens are prompt tokens that the engine looked up in its prefix cache, and those that were there.
type tokens struct{ queries, hits int64 }

func (c tokens) since(before tokens) tokens {
	return tokens{c.queries - before.queries, c.hits - before.hits}
}
func (c tokens) rate() float64 { return float64(c.hits) / float64(c.queries) }

// counters reads the engine's own metrics.
func (e *vllm) counters(t *testing.T) tokens {
	t.Helper()
	page, err := e.ask(t.Context(), http.MethodGet, "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	read := func(name string) int64 {
		match := regexp.MustCompile(`(?m)^vllm:` + name + `\{[^}]*\} (\S+)$`).FindSubmatch(page)
		if match == nil {
			t.Fatalf("the engine's metrics have no %s", name)
		}
		v, err := strconv.ParseFloat(string(match[1]), 64)
		if err != nil {
			t.Fatal(err)
		}
		return int64(v)
	}
	return tokens{read("prefix_cache_queries_total"), read("prefix_cache_hits_total")}
}

// multiset writes requests so that those of two lists compare in any order.
func multiset(list []counted) (out []string) {
	for _, r := range list {
		cached := "-"
		if r.Cached != nil {
			cached = strconv.FormatInt(*r.Cached, 10)
		}
		out = append(out, fmt.Sprintf("%d/%d/%s", r.Input, r.Output, cached))
	}
	slices.Sort(out)
	return out
}

func read(t *testing.T, name string, into any) {
	t.Helper()
	content, err := os.ReadFile(name)
	if err == nil {
		err = json.Unmarshal(content, into)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// freePort returns a port that was free a moment ago.
func freePort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	_, port, _ := net.SplitHostPort(l.Addr().String())
	return port
}
