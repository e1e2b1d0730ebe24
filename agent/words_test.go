// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/moonloop/moonloop/agent/carry"
	"github.com/moonloop/moonloop/agent/preflight"
	"github.com/moonloop/moonloop/agent/prompt"
	"github.com/moonloop/moonloop/agent/report"
	"github.com/moonloop/moonloop/internal/simulator"
)

// TestWordsOfOtherTokenizers: if the engine's tokenizer makes several tokens of the usual words, prompts consist of words that are one
// token, with /tokenize and without, and each row has its length. All shards choose the same words.
func TestWordsOfOtherTokenizers(t *testing.T) {
	var lines []string
	for i := range 40 {
		lines = append(lines, fmt.Sprintf(`{"timestamp": %d, "input_length": %d, "output_length": 2, "hash_ids": [0, 1, %d]}`, i, 1025+i*7, 2+i))
	}
	like := map[string]simulator.Like{"no tokenize": simulator.LikePlain, "vLLM": simulator.LikeVLLM, "llama.cpp": simulator.LikeLlamaCPP}
	for name, kind := range like {
		for _, bytes := range []int{4, 3, 1} {
			for _, endpoint := range []prompt.Endpoint{prompt.Chat, prompt.Completions} {
				if endpoint == prompt.Completions && bytes != 3 {
					continue
				}
				t.Run(fmt.Sprintf("%s/%d bytes/%s", name, bytes, endpoint), func(t *testing.T) {
					cfg := simulator.Config{Like: kind, Tokenizer: simulator.Tokenizer{WordBytes: bytes}, Cache: simulator.Cache{BlockSize: 16}}
					e := newEngine(t, cfg)
					var notes []string
					replay := Config{
						Prompt: Prompt{Endpoint: endpoint, Form: prompt.Words}, Schedule: Schedule{FileOrder: true},
						Note: func(s string) { notes = append(notes, s) },
					}
					r := e.replay(t, replay, lines...)
					if r.err != nil {
						t.Fatal(r.err)
					}
					for i, res := range r.results {
						if sent, want := r.sent[i], 1025+i*7; sent == nil || sent.PromptTokens != want || res.Result.Prompt != "equal" {
							t.Fatalf("row %d: %+v, want %d tokens", i, res.Result, want)
						}
					}
					if c := r.sent[39].CachedTokens; c < 1024 || c > 1024+16 {
						t.Errorf("%d tokens were shared, want those of two blocks: 1024", c)
					}
					want := report.Words{Count: map[int]int{4: 512, 3: 512, 1: 32}[bytes], Letters: bytes, Found: preflight.ByTokenize}
					if kind == simulator.LikePlain {
						want.Found = preflight.ByUsage
					}
					if bytes == 4 {
						want.Found = preflight.Usual
					}
					got := *r.report.Run.Words
					if got.Count != want.Count || got.Letters != want.Letters || got.Found != want.Found || got.Anchor == "" || len(got.Digest) != 64 {
						t.Errorf("the report says %+v, want %+v", got, want)
					}
					if noted := slices.ContainsFunc(notes, func(s string) bool { return strings.Contains(s, "words: the usual ones are not") }); noted != (bytes != 4) {
						t.Errorf("notes: %q", notes)
					}
					// The other requests are not sampled, and there are few of them.
					for _, rec := range r.other {
						if p := rec.Header.Get("Traceparent"); !strings.HasSuffix(p, "-00") {
							t.Errorf("a calibration request has the traceparent %q", p)
						}
					}
					if n, most := len(r.other), map[string]int{preflight.Usual: 2, preflight.ByTokenize: 4, preflight.ByUsage: 32}[want.Found]; n > most {
						t.Errorf("%d requests for a reply before the rows, want %d at most", n, most)
					}
					if bytes == 3 {
						replay.Trace = Trace{Shard: 1, Shards: 2}
						if again := e.replay(t, replay, lines...); again.err != nil || *again.report.Run.Words != got {
							t.Errorf("a shard: %+v, %v; want %+v", again.report.Run.Words, again.err, got)
						}
					}
				})
			}
		}
	}
}

// TestNoWords: if no words are one token each on the engine, the run ends before the first row, and says so.
func TestNoWords(t *testing.T) {
	e := &talker{double: true, silent: true}
	trace := filepath.Join(t.TempDir(), "trace.jsonl")
	if err := os.WriteFile(trace, []byte(`{"timestamp": 0, "input_length": 600, "output_length": 2, "hash_ids": [0, 1]}`+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := Run(t.Context(), Config{Trace: Trace{Name: trace}, Target: Target{URL: e.start(t)}, RunID: "run"})
	if err == nil || !errors.Is(err, prompt.ErrNotStable) || !strings.Contains(err.Error(), "512 of them cost 1024 tokens; send token ids") || !strings.Contains(err.Error(), "no other words can be used: too few words are one token each") {
		t.Errorf("%v", err)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if n := e.paths["/v1/chat/completions"]; n > 2+preflight.MaxProbes || len(e.prompts) > 0 {
		t.Errorf("%d requests, %d rows", n, len(e.prompts))
	}
}

// TestRepliesWithFoundWords: live replies are checked and carried next to words that were found, and each row has its length.
func TestRepliesWithFoundWords(t *testing.T) {
	for _, endpoint := range []prompt.Endpoint{prompt.Chat, prompt.Completions} {
		cfg := simulator.VLLM()
		cfg.Tokenizer.WordBytes = 3
		r := newEngine(t, cfg).replay(t, Config{
			Trace: Trace{FineBlockSize: fineBlock}, Prompt: Prompt{Endpoint: endpoint, Form: prompt.Words}, Schedule: Schedule{FileOrder: true},
		}, conversations(t)...)
		if r.err != nil {
			t.Fatal(r.err)
		}
		for i, res := range r.results {
			if res.Result.Prompt != "equal" || res.Result.Output != "equal" {
				t.Errorf("%s: row %d: %+v", endpoint, i, res.Result)
			}
		}
		// A reply may be late; nothing else keeps it from being carried.
		f := r.report.Figures().Replies
		late := int64(0)
		if len(f.Invented) == 1 && f.Invented[0].Reason == carry.Late {
			late = f.Invented[0].Count
		}
		if f.Carried == 0 || f.Carried+late != 9 || f.Needed != 9 || r.report.Run.Words.Letters != 3 {
			t.Errorf("%s: %+v, words %+v", endpoint, f, r.report.Run.Words)
		}
	}
}
