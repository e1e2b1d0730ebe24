// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package tokenizer

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func load(t testing.TB, name string) *Tokenizer {
	t.Helper()
	tok, err := Load(t.Context(), filepath.Join("testdata", name+".json"))
	if err != nil {
		t.Fatal(err)
	}
	return tok
}

// golden has texts, and their ids by each of the small tokenizers in testdata. These were trained by the tokenizers library of Hugging
// Face, version 0.23.3, on this repository's own documentation, and the ids are its answers: testdata/golden.py asks it again, and trains
// another family.
//
// gpt2 has ByteLevel alone; llama3, qwen (with NFC, without ignore_merges) and o200k the patterns of those models; llama2 the normalizers
// Prepend and Replace, byte_fallback and no pre-tokenizer; deepseek the three patterns of DeepSeek-V3, one after the other, tekken that of
// Mistral's Tekken; gemma Replace, byte_fallback, fuse_unk and a Split at spaces; the others are Metaspace, Unigram, and BERT's WordPiece;
// charsmap is the Unigram one after a character map, which SentencePiece 0.2 made of 25 rules, and a Replace of spaces. kimi has the
// pattern of Kimi-K2, cohere that of Cohere's Command and StarCoder; albert (as in ALBERT and T5) and words have the remaining normalizers
// and splitters.
type golden struct {
	Texts []string
	IDs   map[string][][]uint32
}

func goldens(t testing.TB) (g golden) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", "golden.json"))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &g); err != nil || len(g.Texts) == 0 || len(g.IDs) < 17 {
		t.Fatalf("%d texts, %d tokenizers, %v", len(g.Texts), len(g.IDs), err)
	}
	return g
}

// TestGolden: the ids are those of the library that engines use.
func TestGolden(t *testing.T) {
	g := goldens(t)
	for name, want := range g.IDs {
		tok := load(t, name)
		for i, text := range g.Texts {
			got, err := tok.Encode(text)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want[i], append([]uint32{}, got...)); diff != "" {
				t.Errorf("%s: %q:\n%s", name, text, diff)
			}
		}
	}
}

// TestRefused: unknown parts are refused, and named.
func TestRefused(t *testing.T) {
	good, err := os.ReadFile(filepath.Join("testdata", "gpt2.json"))
	if err != nil {
		t.Fatal(err)
	}
	with := func(change func(map[string]any)) string {
		var m map[string]any
		if err := json.Unmarshal(good, &m); err != nil {
			t.Fatal(err)
		}
		change(m)
		text, _ := json.Marshal(m)
		return string(text)
	}
	model := func(key string, value any) string {
		return with(func(m map[string]any) { m["model"].(map[string]any)[key] = value })
	}
	for name, test := range map[string]struct{ text, want string }{
		"not JSON":              {"secret", "form"},
		"no model":              {"{}", "form"},
		"a trace":               {`{"timestamp":1}`, "form"},
		"an unknown model":      {model("type", "Other"), `model "Other" is not supported`},
		"an unknown normalizer": {with(func(m map[string]any) { m["normalizer"] = map[string]any{"type": "Nmt"} }), `normalizer "Nmt" is not supported`},
		"no map":                {with(func(m map[string]any) { m["normalizer"] = map[string]any{"type": "Precompiled"} }), "its map of characters"},
		"a map of another kind": {with(func(m map[string]any) {
			m["normalizer"] = map[string]any{"type": "Precompiled", "precompiled_charsmap": "secret"}
		}), "its map of characters"},
		"a map that is longer than its file": {with(func(m map[string]any) {
			m["normalizer"] = map[string]any{"type": "Precompiled", "precompiled_charsmap": "////fwAA"}
		}), "its map of characters"},
		"an unknown splitter": {with(func(m map[string]any) { m["pre_tokenizer"] = map[string]any{"type": "UnicodeScripts"} }), `pre-tokenizer "UnicodeScripts" is not supported`},
		"an invalid pattern": {with(func(m map[string]any) {
			m["pre_tokenizer"] = map[string]any{"type": "Split", "behavior": "Isolated", "pattern": map[string]any{"Regex": "("}}
		}), "the regular expression"},
		"an intersection": {with(func(m map[string]any) {
			m["pre_tokenizer"] = map[string]any{"type": "Split", "behavior": "Isolated", "pattern": map[string]any{"Regex": `[\p{L}&&\p{Han}]+`}}
		}), "the regular expression"},
		"no behavior": {with(func(m map[string]any) {
			m["pre_tokenizer"] = map[string]any{"type": "Split", "pattern": map[string]any{"String": "x"}}
		}), "behavior"},
		"dropout":                   {model("dropout", 0.1), "dropout"},
		"a suffix of words":         {model("end_of_word_suffix", "</w>"), "subwords"},
		"a merge of unknown tokens": {model("merges", []string{"a nothing"}), "merge 0"},
		"half a merge":              {model("merges", []string{"a"}), "form"},
		"no vocabulary":             {model("vocab", map[string]int{}), "vocabulary"},
		"negative ids":              {model("vocab", map[string]int{"a": -1}), "vocabulary"},
		"an added token for whole words": {with(func(m map[string]any) {
			m["added_tokens"] = []any{map[string]any{"id": 1, "content": "x", "single_word": true}}
		}), "single_word"},
		"an empty added token": {with(func(m map[string]any) { m["added_tokens"] = []any{map[string]any{"id": 1}} }), "added token 1"},
	} {
		_, err := parse([]byte(test.text))
		if err == nil || !strings.Contains(err.Error(), test.want) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v, want %q", name, err, test.want)
		}
	}
	if _, err := Load(t.Context(), "none.json"); err == nil {
		t.Error("a file that does not exist is read")
	}
}

// FuzzEncode: nothing panics, ids are below the vocabulary's size, and byte-level ids decode to the text.
func FuzzEncode(f *testing.F) {
	g := goldens(f)
	for _, text := range g.Texts {
		f.Add(text)
	}
	all := make(map[string]*Tokenizer)
	for name := range g.IDs {
		all[name] = load(f, name)
	}
	llama3 := all["llama3"].model.(*bpe)
	spelled := make(map[uint32]string)
	for token, id := range llama3.vocab {
		spelled[id] = token
	}
	f.Fuzz(func(t *testing.T, text string) {
		for name, tok := range all {
			ids, err := tok.Encode(text)
			if err != nil || len(ids) > 0 && slices.Max(ids) > 2000 {
				t.Errorf("%s: %v, %v", name, ids, err)
			}
			if name != "llama3" || strings.Contains(text, "<|begin|>") {
				continue
			}
			var back strings.Builder
			for _, id := range ids {
				back.WriteString(spelled[id])
			}
			if want := visible(text); back.String() != want {
				t.Errorf("%q became %q", want, back.String())
			}
		}
	})
}
