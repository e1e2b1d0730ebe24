// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/moonloop/moonloop/agent/preflight"
	"github.com/moonloop/moonloop/agent/prompt"
	"github.com/moonloop/moonloop/internal/simulator"
)

// textFile writes a file of words of very different lengths, and returns its name.
func textFile(t *testing.T) string {
	t.Helper()
	var b strings.Builder
	for i := range 3000 {
		fmt.Fprintf(&b, "Internationalization of %s%d, \"quoted\" and aberrations; unit number %d.\n", strings.Repeat("w", 1+i%9), i, i)
	}
	name := filepath.Join(t.TempDir(), "text.txt")
	if err := os.WriteFile(name, []byte(b.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

// TestDataset: prompts of real text have exactly as many tokens as the rows say, and share the blocks that the hash ids name, on engines
// whose tokenizers split a word into several tokens.
func TestDataset(t *testing.T) {
	var lines []string
	for i := range 20 {
		lines = append(lines, fmt.Sprintf(`{"timestamp": %d, "input_length": %d, "output_length": 2, "hash_ids": [0, 1, %d]}`, i, 1025+i*7, 2+i))
	}
	file := textFile(t)
	for name, kind := range map[string]simulator.Like{"vLLM": simulator.LikeVLLM, "llama.cpp": simulator.LikeLlamaCPP} {
		for _, endpoint := range []prompt.Endpoint{prompt.Chat, prompt.Completions} {
			t.Run(name+"/"+string(endpoint), func(t *testing.T) {
				t.Parallel()
				e := newEngine(t, simulator.Config{Like: kind, Tokenizer: simulator.Tokenizer{WordBytes: 4}, Cache: simulator.Cache{BlockSize: 16}})
				r := e.replay(t, Config{Prompt: Prompt{Endpoint: endpoint, Dataset: file}, Schedule: Schedule{FileOrder: true}}, lines...)
				if r.err != nil {
					t.Fatal(r.err)
				}
				for i, res := range r.results {
					if sent, want := r.sent[i], 1025+i*7; sent == nil || sent.PromptTokens != want || res.Result.Prompt != "equal" {
						t.Fatalf("row %d: %+v, want %d tokens", i, res.Result, want)
					}
				}
				if c := r.sent[19].CachedTokens; c < 1024 || c > 1024+16 {
					t.Errorf("%d tokens were shared, want those of two blocks: 1024", c)
				}
				if n := strings.Count(string(r.sent[3].Body), "Internationalization"); n < 10 {
					t.Errorf("the dataset's first word occurs %d times in a prompt, want 10 or more", n)
				}
				d := r.report.Run.Dataset
				if d == nil || d.File != file || d.CountedBy != preflight.ByTokenize || d.Checked != checkedText || d.Counted != d.Checked || d.Tokens < 10000 || d.Invented > 0.05 {
					t.Errorf("the report says %+v", d)
				}
			})
		}
	}
}

// checkedText is the number of tokens of text that a preflight has counted.
const checkedText = 3000

// TestDatasetNeedsCounts: there is no replay against an engine that cannot count a text, and the error says what to do.
func TestDatasetNeedsCounts(t *testing.T) {
	e := newEngine(t, simulator.Config{Like: simulator.LikePlain})
	r := e.replay(t, Config{Prompt: Prompt{Dataset: textFile(t)}}, rows(3, 1)...)
	if r.err == nil || !strings.Contains(r.err.Error(), "--tokenizer") || len(r.sent) > 0 {
		t.Errorf("%v, %d requests", r.err, len(r.sent))
	}
}

// wordTokenizer writes a tokenizer.json in which every word is one token, as on a simulated engine. Known words have ids of their own.
func wordTokenizer(t *testing.T, known string) string {
	t.Helper()
	vocab := map[string]int{"[UNK]": 0}
	for word := range strings.FieldsSeq(known) {
		vocab[word] = len(vocab)
	}
	text, err := json.Marshal(map[string]any{
		"pre_tokenizer": map[string]any{"type": "WhitespaceSplit"},
		"model":         map[string]any{"type": "WordPiece", "unk_token": "[UNK]", "vocab": vocab},
	})
	if err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(t.TempDir(), "tokenizer.json")
	if err := os.WriteFile(name, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

// TestTokenizerFile: if the engine cannot count a text, the model's tokenizer file is used to count it, for the dataset and for rows of
// text.
func TestTokenizerFile(t *testing.T) {
	words := prompt.CommonLexicon().Text(prompt.MostWords)
	lines := append(rows(5, 1),
		`{"timestamp": 6, "input_length": 1100, "output_length": 2, "hash_ids": [1, 2, 3]}`,
		`{"timestamp": 7, "input_length": 1300, "output_length": 2, "hash_ids": [1, 2, 4]}`,
		`{"timestamp": 8, "text_input": "five words in this text", "output_length": 2}`)
	for _, endpoint := range []prompt.Endpoint{prompt.Chat, prompt.Completions} {
		e := newEngine(t, simulator.Config{Like: simulator.LikePlain})
		cfg := Config{Prompt: Prompt{Endpoint: endpoint, Dataset: textFile(t), Tokenizer: wordTokenizer(t, words)}}
		r := e.replay(t, cfg, lines...)
		if r.err != nil {
			t.Fatal(r.err)
		}
		for i, res := range r.results {
			if res.Result.Prompt != "equal" {
				t.Errorf("%s, row %d: %+v", endpoint, i, res.Result)
			}
		}
		if d := r.report.Run.Dataset; d.CountedBy != preflight.ByFile || d.Checked == 0 || d.Checked != d.Counted {
			t.Errorf("%s: the report says %+v", endpoint, d)
		}
		// With another model's tokenizer, nothing is sent.
		cfg.Prompt.Tokenizer = wordTokenizer(t, "other words")
		if r := e.replay(t, cfg, lines...); r.err == nil || !strings.Contains(r.err.Error(), "another model's") || len(r.sent) > 0 {
			t.Errorf("%s: %v", endpoint, r.err)
		}
	}
	// With a tokenizer that is only similar to the model's, the counts differ: the replay runs, with a warning.
	e := newEngine(t, simulator.Config{Like: simulator.LikePlain, Tokenizer: simulator.Tokenizer{WordBytes: 4}})
	var warned string
	cfg := Config{Prompt: Prompt{Dataset: textFile(t), Tokenizer: wordTokenizer(t, words)}, Warn: func(s string) { warned += s }}
	if r := e.replay(t, cfg, lines...); r.err != nil || !strings.Contains(warned, "the engine counts") || r.report.Run.Dataset.Counted <= r.report.Run.Dataset.Checked {
		t.Errorf("%v, %q", r.err, warned)
	}
}
