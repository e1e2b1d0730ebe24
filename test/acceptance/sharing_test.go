// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package acceptance

import (
	"bytes"
	"fmt"
	"io"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
)

// A trace says what prompts share, not what an engine had room for: if production's cache is small, or requests are spread over replicas,
// the trace must still share as much as the prompts' own tokens do. The tokens are those of the engine's tokenizer.

// told is a prompt and its reply in tokens.
type told struct{ Prompt, Reply []int }

// sharingRow is what a row of a trace says about sharing, in blocks of sharingBlock tokens.
type sharingRow struct {
	Input  int64 `json:"input_length"`
	Output int64 `json:"output_length"`
	// Continues is how many leading ids are left out, because they are those of the row to which the first reply belongs. That row's
	// replies come before these. 0: the row is in full.
	Continues int64
	Ranges    [][2]int64 `json:"hash_ranges"` // first id, count
	Replies   [][3]int64 // rows back, tokens before it, its tokens
}

const sharingBlock = 16

// inFull completes the rows that continue another one.
func inFull(rows []sharingRow) {
	for i := range rows {
		row := &rows[i]
		if row.Continues == 0 {
			continue
		}
		back, left := row.Replies[0][0], row.Continues
		before := rows[i-int(back)]
		var ranges [][2]int64
		for _, r := range before.Ranges {
			if n := min(r[1], left); n > 0 {
				ranges, left = append(ranges, [2]int64{r[0], n}), left-n
			}
		}
		var replies [][3]int64
		for _, r := range before.Replies {
			replies = append(replies, [3]int64{r[0] + back, r[1], r[2]})
		}
		row.Ranges, row.Replies = append(ranges, row.Ranges...), append(replies, row.Replies...)
	}
}

// promised returns for each row how many of its leading tokens are, according to the trace, in an earlier row's prompt or its reply.
func promised(rows []sharingRow) (hits []int64) {
	seen := make(map[int64]bool)
	for _, row := range rows {
		known, reading := int64(0), true
		for _, r := range row.Ranges {
			for id := r[0]; id < r[0]+r[1]; id++ {
				if reading = reading && seen[id]; reading {
					known++
				}
				seen[id] = true
			}
		}
		hit := min(known*sharingBlock, row.Input)
		for _, r := range row.Replies {
			if at, end := r[1], r[1]+r[2]; at < hit+sharingBlock {
				hit = max(hit, end)
			}
		}
		hits = append(hits, hit)
	}
	return hits
}

// shared returns for each prompt how many of its leading tokens are the beginning of an earlier prompt and the reply to it.
func shared(list []told) (hits []int64) {
	for i, one := range list {
		most := 0
		for _, earlier := range list[:i] {
			whole := slices.Concat(earlier.Prompt, earlier.Reply)
			n := 0
			for n < len(whole) && n < len(one.Prompt) && whole[n] == one.Prompt[n] {
				n++
			}
			most = max(most, n)
		}
		hits = append(hits, int64(most))
	}
	return hits
}

// uncut fails unless a trace shares what the prompts' tokens share, and production's engines had cached at least that many points less:
// otherwise the test would show nothing. It returns a line for a table.
func (e *realEngine) uncut(t *testing.T, truth []*served, trace, log string, least float64) (line string) {
	t.Helper()
	tokens, rows := readLines[told](t, log+".tokens"), readLines[sharingRow](t, trace)
	equal(t, "prompts in tokens", len(tokens), len(truth))
	equal(t, "rows", len(rows), len(truth))
	if t.Failed() {
		t.FailNow()
	}
	inFull(rows)
	want, got, taken := shared(tokens), promised(rows), make([]bool, len(rows))
	var prompt, inText, inTrace, cached int64
	near, turns, missed := 0, 0, 0
	for i, s := range truth {
		if apart := int64(len(tokens[i].Prompt)) - s.Input; apart < -1 || apart > 1 { // a tokenizer may add a first token or not
			t.Fatalf("request %d has %d tokens, the engine counted %d", i, len(tokens[i].Prompt), s.Input)
		}
		at := -1
		for j, row := range rows {
			if !taken[j] && row.Input == s.Input && row.Output == s.Output {
				at = j
				break
			}
		}
		if at < 0 {
			t.Fatalf("no row of %d and %d tokens is left", s.Input, s.Output)
		}
		taken[at] = true
		prompt, inText, inTrace, cached = prompt+s.Input, inText+want[i], inTrace+got[at], cached+s.cached()
		if apart := got[at] - want[i]; apart >= -2*sharingBlock && apart <= 2*sharingBlock {
			near++
		} else {
			t.Logf("conversation %d turn %d: prompt %d, shared in the text %d, in the trace %d, in the cache %d", s.Conversation, s.Turn, s.Input, want[i], got[at], s.cached())
		}
		if s.before != nil {
			turns++
			if s.cached() < s.before.Input-max(64, e.block) {
				missed++
			}
		}
	}
	rate := func(n int64) float64 { return 100 * float64(n) / float64(prompt) }
	share := float64(near) / float64(len(truth))
	line = fmt.Sprintf("| %s | %d | %.2f %% | %d of %d | %.2f %% | %.2f %% | %.0f %% |", e.name, len(truth), rate(cached), missed, turns, rate(inText), rate(inTrace), 100*share)
	t.Log(line)
	if apart := rate(inTrace) - rate(inText); apart < -1 || apart > 1 {
		t.Errorf("the trace shares %.2f %% of the prompts' tokens, the text %.2f %%; want at most 1 point between them", rate(inTrace), rate(inText))
	}
	if share < 0.9 {
		t.Errorf("the shared tokens of %.0f %% of the requests are within two blocks of those of the text, want 90 %%", 100*share)
	}
	if rate(inText)-rate(cached) < least {
		t.Errorf("void: production hit %.2f %% of the prompt tokens, and %.2f %% are shared; want %.0f points or more between them", rate(cached), rate(inText), least)
	}
	return line
}

// showSharing writes the lines of uncut, as a table for docs/fidelity.md.
func showSharing(t *testing.T, lines ...string) {
	t.Helper()
	t.Log("\n| | requests | production hit | turns that missed the prompt before | the prompts share | the trace shares | requests within two blocks |\n" +
		"|---|---|---|---|---|---|---|\n" + strings.Join(lines, "\n"))
}

// TestAcceptanceSmallCache: vLLM has room for only some of the conversations, and llama.cpp has slots for some of them. The replay begins
// with an empty cache that is as small as production's.
func TestAcceptanceSmallCache(t *testing.T) {
	dir := artefacts(t)
	var sharing, table []string
	for _, run := range []struct {
		name string
		home string
		at   func(t *testing.T, home, dir string) *realEngine
	}{
		{"vLLM", os.Getenv("MOONLOOP_VLLM"), func(t *testing.T, home, dir string) *realEngine {
			t.Helper()
			// One prompt of 16,384 tokens must fit; ten conversations of some 4,000 do not.
			return startVLLM(t, home, dir, "vLLM, 520 blocks of 32", 32, "--num-gpu-blocks-override", "520")
		}},
		{"llama.cpp", os.Getenv("MOONLOOP_LLAMACPP"), func(t *testing.T, home, dir string) *realEngine {
			t.Helper()
			e := startLlamaCPP(t, home, dir, "--cache-ram", "0") // what a slot loses is lost
			e.name, e.atOnce = "llama.cpp, 4 slots for 10 conversations", 10
			return e
		}},
	} {
		t.Run(run.name, func(t *testing.T) {
			if run.home == "" {
				t.Skip("no installation of this engine is named: run this with make acceptance-between")
			}
			folder := filepath.Join(dir, run.name)
			mkdir(t, folder)
			e := run.at(t, run.home, folder)
			e.conversations = 14
			seed := seeds(t)[0]
			truth, trace, log := e.production(t, run.home, folder, seed, "--tokens")
			sharing = append(sharing, e.uncut(t, truth, trace, log, 5))
			extra, err := os.ReadFile(log + ".extra")
			if err != nil {
				t.Fatal(err)
			}
			// What is evicted first depends on the concurrent requests, to the millisecond, so one hit of a whole prompt more or less is
			// chance; a replay that shared only what production hit, or hit all that is shared, would be further away.
			table = append(table, e.replay(t, folder, trace, e.name, string(extra), variant{name: e.name, bounds: bounds{points: 8}}, truth, instrumentation() != "openai-v2"))
		})
	}
	showSharing(t, sharing...)
	showTable(t, table)
}

// TestAcceptanceReplicas: requests go to two engines in turn, whatever these have cached.
func TestAcceptanceReplicas(t *testing.T) {
	home, dir := setting(t, "MOONLOOP_VLLM"), artefacts(t)
	var replicas []*realEngine
	var targets []*url.URL
	for i := range 2 {
		folder := filepath.Join(dir, fmt.Sprint("replica-", i))
		mkdir(t, folder)
		e := startVLLM(t, home, folder, fmt.Sprint("replica ", i), 32)
		target, err := url.Parse(e.url)
		if err != nil {
			t.Fatal(err)
		}
		replicas, targets = append(replicas, e), append(targets, target)
	}
	var next atomic.Uint64
	proxy := httptest.NewServer(&httputil.ReverseProxy{
		FlushInterval: -1,
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(targets[next.Add(1)%uint64(len(targets))])
			// The body is read whole, because the reply is lost if the body is still being read when the reply begins.
			body, err := io.ReadAll(r.In.Body)
			if err != nil {
				t.Error(err)
			}
			r.Out.Body = io.NopCloser(bytes.NewReader(body))
		},
	})
	t.Cleanup(proxy.Close)
	both := &realEngine{name: "vLLM, two replicas in turn", url: proxy.URL, block: 32, conversations: 12, atOnce: 8}
	both.empty = func(t *testing.T) {
		t.Helper()
		for _, e := range replicas {
			e.empty(t)
		}
	}
	both.hits = func(t *testing.T) (n int64) {
		t.Helper()
		for _, e := range replicas {
			n += e.hits(t)
		}
		return n
	}
	truth, trace, log := both.production(t, home, filepath.Join(dir, "both"), seeds(t)[0], "--tokens")
	showSharing(t, both.uncut(t, truth, trace, log, 5))
}
