// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"errors"
	"fmt"
	"hash/fnv"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/moonloop/moonloop/agent/carry"
	"github.com/moonloop/moonloop/agent/prompt"
	"github.com/moonloop/moonloop/agent/report"
	"github.com/moonloop/moonloop/internal/simulator"
)

// vocabulary is a tokenizer: a text is its words, each with the space before it; a word that is no token is its bytes.
type vocabulary func(unit string) bool

func (v vocabulary) tokens(text string) (ids []uint32) {
	for len(text) > 0 {
		end := strings.IndexAny(text[1:], " .\n") + 1
		if end == 0 {
			end = len(text)
		}
		unit := text[:end]
		text = text[end:]
		if len(unit) == 1 || v(unit) {
			ids = append(ids, v.id(unit))
			continue
		}
		for _, b := range []byte(unit) {
			ids = append(ids, v.id(string(b)))
		}
	}
	return ids
}

func (v vocabulary) id(token string) uint32 {
	h := fnv.New32a()
	_, _ = h.Write([]byte(token))
	return h.Sum32()
}

// share returns a vocabulary of a share of all words, and of some letters.
func share(percent uint32) vocabulary {
	return func(unit string) bool {
		return vocabulary(nil).id("x"+unit)%100 < percent || unit == " A" || unit == "go"
	}
}

// ofLetters is a vocabulary of words of so many letters, with the space.
func ofLetters(n int) vocabulary {
	return func(unit string) bool { return strings.HasPrefix(unit, " ") && len(unit) <= 1+n || unit == "go" }
}

// TestFindWords: whatever an engine's vocabulary, the words that are found are one token each behind any other, there are as many as
// it has within reason, and the look is bounded; where there are too few it says so.
func TestFindWords(t *testing.T) {
	merging := vocabulary(func(string) bool { return true })
	for _, tt := range []struct {
		name       string
		tokens     func(string) []uint32
		byTokens   int // words
		byCounts   int
		letters    int // of each, by tokens
		maxTokens  int // requests
		anchor     string
		bare, none bool
	}{
		{name: "of three letters", tokens: ofLetters(3).tokens, byTokens: 512, byCounts: 512, letters: 3, maxTokens: 4, anchor: "go"},
		{name: "of two letters", tokens: ofLetters(2).tokens, byTokens: 128, byCounts: 128, letters: 2, maxTokens: 4, anchor: "go"},
		{name: "of one letter", tokens: ofLetters(1).tokens, byTokens: 32, byCounts: 32, letters: 1, maxTokens: 4, anchor: "go"},
		{name: "nine in ten", tokens: share(90).tokens, byTokens: 256, byCounts: 32, letters: 4, maxTokens: 4, anchor: "go"},
		{name: "half", tokens: share(50).tokens, byTokens: 256, byCounts: 32, letters: 4, maxTokens: 4, anchor: "go"},
		{name: "one in ten", tokens: share(10).tokens, byTokens: 32, byCounts: 0, letters: 3, maxTokens: 4, anchor: "go"},
		{name: "no capitals", tokens: func(s string) []uint32 { return share(90).tokens(strings.ToLower(s)) }, byTokens: 256, byCounts: 32, letters: 4, maxTokens: 7, anchor: "go"},
		{name: "bytes", tokens: share(0).bytes, byTokens: 32, byCounts: 32, letters: 1, maxTokens: 8, anchor: "a", bare: true},
		{name: "two words a token", tokens: func(s string) []uint32 {
			ids := merging.tokens(s)
			return ids[:(len(ids)+1)/2]
		}, none: true},
		{name: "no tokens", tokens: func(string) []uint32 { return nil }, none: true},
	} {
		for _, way := range []string{byTokenize, byUsage} {
			t.Run(tt.name+"/"+way, func(t *testing.T) {
				const around = 23
				w := &words{
					ask:   func(text string) ([]uint32, error) { return tt.tokens(text), nil },
					count: func(text string) (int64, error) { return around + int64(len(tt.tokens(text))), nil },
				}
				find, want, limit := w.byTokens, tt.byTokens, tt.maxTokens
				if way == byUsage {
					find, want, limit = w.byCounts, tt.byCounts, maxProbes
				}
				units, anchor, err := find(prompt.Candidates())
				if tt.none || want == 0 {
					if l, got := lexicon(units, anchor, prompt.LeastWords); l != nil || !errors.Is(got, errNoWords) || err != nil && !errors.Is(err, errNoWords) {
						t.Errorf("%d units, %v, %v; want too few", len(units), err, got)
					}
				} else {
					l, lexErr := lexicon(units, anchor, prompt.LeastWords)
					if err != nil || lexErr != nil {
						t.Fatal(err, lexErr)
					}
					if l.Len() != want || l.Anchor() != tt.anchor || way == byTokenize && l.Letters() != tt.letters || strings.HasPrefix(l.Text(1), " ") == tt.bare {
						t.Errorf("%d words of %d letters, anchor %q, %q; want %d", l.Len(), l.Letters(), l.Anchor(), l.Text(2), want)
					}
					n := len(tt.tokens(l.Anchor() + l.Text(1)))
					if got := len(tt.tokens(l.Anchor() + l.Text(l.Len()) + l.Text(l.Len()))); got != n-1+2*l.Len() {
						t.Errorf("%d words twice are %d tokens", l.Len(), got-n+1)
					}
				}
				if w.asked > max(limit, len(pivots)*2) || way == byTokenize && limit > 0 && w.asked > limit {
					t.Errorf("%d requests, want %d at most", w.asked, limit)
				}
			})
		}
	}
}

// bytes is a tokenizer of bytes.
func (v vocabulary) bytes(text string) (ids []uint32) {
	for _, b := range []byte(text) {
		ids = append(ids, v.id(string(b)))
	}
	return ids
}

// TestFindOwnWords: an engine that says what its tokens are is asked for words of its own, and for no token that it has not named.
func TestFindOwnWords(t *testing.T) {
	const first = 300
	var own []string
	for i := range 400 {
		own = append(own, fmt.Sprintf(" %c%cq%cz", 'a'+i%20, 'a'+i/20, 'a'+i%7))
	}
	known := func(unit string) bool { return slices.Contains(own, unit) || unit == " A" || unit == "go" }
	small := map[uint32]uint32{vocabulary(nil).id(" A"): first + uint32(len(own))}
	for i, unit := range own {
		small[vocabulary(nil).id(unit)] = first + uint32(i)
	}
	w := &words{
		ask: func(text string) ([]uint32, error) {
			ids := vocabulary(known).tokens(text)
			for i, id := range ids { // ids of a real vocabulary are small
				if _, named := small[id]; !named {
					small[id] = uint32(len(small)) - uint32(len(own))
				}
				ids[i] = small[id]
			}
			return ids, nil
		},
		text: func(ids []uint32) (string, error) {
			var text strings.Builder
			for _, id := range ids {
				if at := int(id) - first; at >= 0 && at < len(own) {
					text.WriteString(own[at])
				} else {
					text.WriteString("\x00 <unused> Caf\xc3\xa9")
				}
			}
			return text.String(), nil
		},
	}
	asked := w.text
	w.text = func(ids []uint32) (string, error) {
		if greatest := slices.Max(ids); greatest >= w.known {
			t.Errorf("id %d is asked for, of which nothing is known; %d is the greatest named", greatest, w.known)
		}
		return asked(ids)
	}
	units, anchor, err := w.byTokens(prompt.Candidates())
	if err != nil {
		t.Fatal(err)
	}
	l, err := lexicon(units, anchor, prompt.LeastWords)
	if err != nil || l.Len() != 256 || l.Letters() != 5 {
		t.Errorf("%+v, %v; want 256 words of 5 letters", l, err)
	}
}

// TestWordsOfOtherTokenizers: on an engine whose tokenizer takes several tokens for the usual words, prompts are made of words that
// it takes one for, with /tokenize and without, and each row has its length. Shards choose the same.
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
					want := report.Words{Count: map[int]int{4: 512, 3: 512, 1: 32}[bytes], Letters: bytes, Found: byTokenize}
					if kind == simulator.LikePlain {
						want.Found = byUsage
					}
					if bytes == 4 {
						want.Found = wordsUsual
					}
					got := *r.report.Run.Words
					if got.Count != want.Count || got.Letters != want.Letters || got.Found != want.Found || got.Anchor == "" || len(got.Digest) != 64 {
						t.Errorf("the report says %+v, want %+v", got, want)
					}
					if noted := slices.ContainsFunc(notes, func(s string) bool { return strings.Contains(s, "words: the usual ones are not") }); noted != (bytes != 4) {
						t.Errorf("notes: %q", notes)
					}
					// Nothing that is not a row is recorded, and there are few.
					for _, rec := range r.other {
						if p := rec.Header.Get("Traceparent"); !strings.HasSuffix(p, "-00") {
							t.Errorf("a calibration request has the traceparent %q", p)
						}
					}
					if n, most := len(r.other), map[string]int{wordsUsual: 2, byTokenize: 4, byUsage: 32}[want.Found]; n > most {
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

// TestNoWords: an engine on which no words are one token each ends the run before the first row, and says so.
func TestNoWords(t *testing.T) {
	e := &talker{double: true, silent: true}
	trace := filepath.Join(t.TempDir(), "trace.jsonl")
	if err := os.WriteFile(trace, []byte(`{"timestamp": 0, "input_length": 600, "output_length": 2, "hash_ids": [0, 1]}`+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := Run(t.Context(), Config{Trace: Trace{Name: trace}, Target: Target{URL: e.start(t)}, RunID: "run"})
	if err == nil || !errors.Is(err, prompt.ErrNotStable) || !strings.Contains(err.Error(), "512 of them cost 1024 tokens; send token ids") || !strings.Contains(err.Error(), "no other words serve: too few words are one token each") {
		t.Errorf("%v", err)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if n := e.paths["/v1/chat/completions"]; n > 2+maxProbes || len(e.prompts) > 0 {
		t.Errorf("%d requests, %d rows", n, len(e.prompts))
	}
}

// TestRepliesWithFoundWords: live replies are checked and carried beside words that were found, and each row has its length.
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
		// A reply may come late; nothing else keeps one from being carried.
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

// TestWordsOfSeveralModels: words are found that serve the tokenizers of all models of a trace.
func TestWordsOfSeveralModels(t *testing.T) {
	tokenizers := map[string]vocabulary{"a": ofLetters(3), "b": ofLetters(2)}
	for _, way := range []string{byTokenize, byUsage} {
		pool := prompt.Candidates()
		for _, model := range []string{"a", "b"} {
			tokens := tokenizers[model].tokens
			w := &words{
				ask:   func(text string) ([]uint32, error) { return tokens(text), nil },
				count: func(text string) (int64, error) { return 5 + int64(len(tokens(text))), nil },
				all:   true,
			}
			find := w.byTokens
			if way == byUsage {
				find = w.byCounts
			}
			var err error
			if pool, _, err = find(pool); err != nil {
				t.Fatalf("%s, %s: %v", way, model, err)
			}
		}
		l, err := lexicon(pool, "go", prompt.LeastWords)
		if err != nil || l.Len() != 128 || l.Letters() != 2 {
			t.Errorf("%s: %v, %v; want 128 words of 2 letters", way, l, err)
		}
	}
}
