// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package prompt

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
)

func TestOptionErrors(t *testing.T) {
	for _, tt := range []struct {
		why  string
		o    Options
		want []string // each in the error
	}{
		{"token ids on chat", Options{Form: Tokens}, []string{"completions"}},
		{"token ids for an engine that accepts none", Options{Endpoint: Completions, Form: Tokens, Profile: Ollama}, []string{"ollama", "words"}},
		{"unknown endpoint", Options{Endpoint: "rerank"}, []string{"rerank", "chat", "responses"}},
		{"unknown form", Options{Form: "bytes"}, []string{"bytes"}},
		{"unknown profile", Options{Profile: "x"}, []string{`"x"`, "vllm"}},
		{"unknown policy", Options{TooShort: "pad"}, []string{"pad"}},
		{"blocks too small to hold an id", Options{BlockSize: 7}, []string{"block size 7"}},
		{"negative block size", Options{BlockSize: -1}, []string{"block size -1"}},
		{"negative lengths", Options{Overhead: -1, TurnOverhead: -2, DefaultOutput: -3, OutputCap: -4}, []string{"overhead -1", "turn overhead -2", "default output -3", "output cap -4"}},
		{"extra inputs are not an object", Options{ExtraInputs: json.RawMessage(`[1]`)}, []string{"extra inputs"}},
		{"extra inputs are torn", Options{ExtraInputs: json.RawMessage(`{"a":`)}, []string{"extra inputs"}},
		{"a salt that vLLM refuses", Options{CacheSalt: "a/b"}, []string{"cache salt"}},
		{"a salt that is too long", Options{CacheSalt: strings.Repeat("a", 129)}, []string{"cache salt"}},
		{"a salt for an engine without cache_salt", Options{CacheSalt: "a", Profile: OpenAI}, []string{"openai", "seed"}},
		{"several errors at once", Options{Form: Tokens, BlockSize: 1, OutputCap: -1, Profile: "x"}, []string{"completions", "block size", "output cap", `"x"`}},
	} {
		_, err := NewBuilder(tt.o)
		if !errors.Is(err, ErrOptions) {
			t.Errorf("%s: error %v, want one that wraps ErrOptions", tt.why, err)
			continue
		}
		for _, want := range tt.want {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %q is not in %v", tt.why, want, err)
			}
		}
	}
	if _, err := NewBuilder(Options{}); err != nil {
		t.Errorf("the zero options: %v", err)
	}
}

// TestProfiles checks what each profile puts into a body on Chat and Completions.
func TestProfiles(t *testing.T) {
	const chat, text = "max_completion_tokens", "max_tokens"
	for _, tt := range []struct {
		profile          Profile
		chat, text       string // fields of the cap
		ignoreEOS        bool
		chatMin, textMin string
		ids              bool
		chatSalt, salt   bool
	}{
		{Auto, chat, text, true, "min_tokens", "min_tokens", true, true, true},
		{VLLM, chat, text, true, "min_tokens", "min_tokens", true, true, true},
		{SGLang, chat, text, true, "min_tokens", "min_tokens", true, true, true},
		{TRTLLM, chat, text, true, "min_tokens", "min_tokens", true, true, false},
		{LMDeploy, chat, text, true, "min_new_tokens", "", false, false, false},
		{LlamaCPP, text, text, true, "", "", true, false, false},
		{Ollama, text, text, false, "", "", false, false, false},
		{TGI, text, text, false, "", "", false, false, false},
		{OpenAI, chat, text, false, "", "", true, false, false},
	} {
		for _, endpoint := range []Endpoint{Chat, Completions} {
			o := Options{Profile: tt.profile, Endpoint: endpoint, Stream: true}
			maxField, minField, salt := tt.chat, tt.chatMin, tt.chatSalt
			if endpoint == Completions {
				maxField, minField, salt = tt.text, tt.textMin, tt.salt
			}
			want := map[string]any{"stream": true, "stream_options": map[string]any{"include_usage": true}, maxField: 7.0}
			if tt.ignoreEOS {
				want["ignore_eos"] = true
			}
			if minField != "" {
				want[minField] = 7.0
			}
			raw, err := json.Marshal(want)
			if err != nil {
				t.Fatal(err)
			}
			wantBody(t, string(tt.profile)+" "+string(endpoint), build(t, newBuilder(t, o), 0, lengthRow(100, 7, 1), nil), string(raw))

			o.CacheSalt = "s"
			if _, err := NewBuilder(o); (err == nil) != salt {
				t.Errorf("%s %s: a salt: %v", tt.profile, endpoint, err)
			}
		}
		if _, err := NewBuilder(Options{Profile: tt.profile, Endpoint: Completions, Form: Tokens}); (err == nil) != tt.ids {
			t.Errorf("%s: token ids: %v", tt.profile, err)
		}
	}
	if got := len(Profiles()); got != 9 {
		t.Errorf("%d profiles: the table above has 9", got)
	}
}
