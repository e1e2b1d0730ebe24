// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"errors"
	"fmt"
	"hash/fnv"
	"slices"
	"strings"
	"testing"

	"github.com/moonloop/moonloop/agent/load"
	"github.com/moonloop/moonloop/agent/prompt"
)

// vocabulary is a tokenizer: a text is its words, each with the space before it; a word that is not a token is its bytes.
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

// ofLetters returns a vocabulary of words of up to this many letters, with the space.
func ofLetters(n int) vocabulary {
	return func(unit string) bool { return strings.HasPrefix(unit, " ") && len(unit) <= 1+n || unit == "go" }
}

// TestFindWords: for any vocabulary, the words found are one token each after any other word, there are as many as the vocabulary has,
// within reason, and the search is bounded. If there are too few, it says so.
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
		{name: "words of up to three letters", tokens: ofLetters(3).tokens, byTokens: 512, byCounts: 512, letters: 3, maxTokens: 4, anchor: "go"},
		{name: "words of up to two letters", tokens: ofLetters(2).tokens, byTokens: 128, byCounts: 128, letters: 2, maxTokens: 4, anchor: "go"},
		{name: "words of one letter", tokens: ofLetters(1).tokens, byTokens: 32, byCounts: 32, letters: 1, maxTokens: 4, anchor: "go"},
		{name: "nine words in ten", tokens: share(90).tokens, byTokens: 256, byCounts: 32, letters: 4, maxTokens: 4, anchor: "go"},
		{name: "half of the words", tokens: share(50).tokens, byTokens: 256, byCounts: 32, letters: 4, maxTokens: 4, anchor: "go"},
		{name: "one word in ten", tokens: share(10).tokens, byTokens: 32, byCounts: 0, letters: 3, maxTokens: 4, anchor: "go"},
		{name: "no capitals", tokens: func(s string) []uint32 { return share(90).tokens(strings.ToLower(s)) }, byTokens: 256, byCounts: 32, letters: 4, maxTokens: 7, anchor: "go"},
		{name: "only bytes", tokens: share(0).bytes, byTokens: 32, byCounts: 32, letters: 1, maxTokens: 8, anchor: "a", bare: true},
		{name: "two words a token", tokens: func(s string) []uint32 {
			ids := merging.tokens(s)
			return ids[:(len(ids)+1)/2]
		}, none: true},
		{name: "no tokens", tokens: func(string) []uint32 { return nil }, none: true},
	} {
		for _, way := range []string{ByTokenize, ByUsage} {
			t.Run(tt.name+"/"+way, func(t *testing.T) {
				const around = 23
				w := &words{
					ask:   func(text string) ([]uint32, error) { return tt.tokens(text), nil },
					count: func(text string) (int64, error) { return around + int64(len(tt.tokens(text))), nil },
				}
				find, want, limit := w.byTokens, tt.byTokens, tt.maxTokens
				if way == ByUsage {
					find, want, limit = w.byCounts, tt.byCounts, MaxProbes
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
					if l.Len() != want || l.Anchor() != tt.anchor || way == ByTokenize && l.Letters() != tt.letters || strings.HasPrefix(l.Text(1), " ") == tt.bare {
						t.Errorf("%d words of %d letters, anchor %q, %q; want %d", l.Len(), l.Letters(), l.Anchor(), l.Text(2), want)
					}
					n := len(tt.tokens(l.Anchor() + l.Text(1)))
					if got := len(tt.tokens(l.Anchor() + l.Text(l.Len()) + l.Text(l.Len()))); got != n-1+2*l.Len() {
						t.Errorf("%d words twice are %d tokens", l.Len(), got-n+1)
					}
				}
				if w.asked > max(limit, len(pivots)*2) || way == ByTokenize && limit > 0 && w.asked > limit {
					t.Errorf("%d requests, want %d at most", w.asked, limit)
				}
			})
		}
	}
}

// bytes returns a tokenizer of bytes.
func (v vocabulary) bytes(text string) (ids []uint32) {
	for _, b := range []byte(text) {
		ids = append(ids, v.id(string(b)))
	}
	return ids
}

// TestFindOwnWords: an engine that says what its tokens are is asked for words of its own vocabulary, and for no token id above those that
// it has shown.
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
			t.Errorf("id %d is asked for, but the engine has shown only ids up to %d", greatest, w.known)
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

// TestWordsOfSeveralModels: the words found suit the tokenizers of all models of a trace.
func TestWordsOfSeveralModels(t *testing.T) {
	tokenizers := map[string]vocabulary{"a": ofLetters(3), "b": ofLetters(2)}
	for _, way := range []string{ByTokenize, ByUsage} {
		pool := prompt.Candidates()
		for _, model := range []string{"a", "b"} {
			tokens := tokenizers[model].tokens
			w := &words{
				ask:   func(text string) ([]uint32, error) { return tokens(text), nil },
				count: func(text string) (int64, error) { return 5 + int64(len(tokens(text))), nil },
				all:   true,
			}
			find := w.byTokens
			if way == ByUsage {
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

// TestMostFrequentModel: rows without a model count for the default one.
func TestMostFrequentModel(t *testing.T) {
	builder, err := prompt.NewBuilder(prompt.Options{DefaultModel: "c"})
	if err != nil {
		t.Fatal(err)
	}
	p := preflight{Config: Config{Trace: load.Info{Models: []load.ModelRows{{Name: "a", Rows: 3}, {Name: "", Rows: 2}, {Name: "c", Rows: 2}}}}}
	p.found.Builder = builder
	p.countModels()
	if p.found.Model != "c" || !slices.Equal(p.models, []string{"c", "a"}) {
		t.Errorf("model %q of %q; want c, which has four of seven rows", p.found.Model, p.models)
	}
}
