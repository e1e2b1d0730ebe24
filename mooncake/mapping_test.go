// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package mooncake

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestMapping(t *testing.T) {
	for _, test := range []struct {
		name, maps, in string
		want           Row
		unknown        string
	}{
		{
			"other names", "input_length=prompt_tokens, output_length=out,timestamp=ts",
			`{"prompt_tokens": 600, "out": 5, "ts": "1970-01-01T00:00:01Z", "hash_ids": [1, 2]}`,
			Row{Timestamp: Some(1000.), InputLength: Some[int64](600), OutputLength: Some[int64](5), HashIDs: []uint64{1, 2}},
			"",
		},
		{
			"paths", "input_length=usage.prompt_tokens,output_length=usage.details.out,session_id=usage.details.id",
			`{"usage": {"details": {"id": "a", "out": 5}, "prompt_tokens": 600}}`,
			Row{InputLength: Some[int64](600), OutputLength: Some[int64](5), SessionID: "a"},
			"",
		},
		{
			"a path that does not exist", "input_length=prompt_tokens,output_length=usage.out", `{"prompt_tokens": 600, "usage": null}`,
			Row{InputLength: Some[int64](600)},
			"",
		},
		{"a key with dots", "input_length=gen_ai.usage.input_tokens", `{"gen_ai.usage.input_tokens": 600}`, Row{InputLength: Some[int64](600)}, ""},
		{
			"a mapped field is not read from its own name or its alias", "timestamp=t", `{"t": 1, "timestamp": "x", "created_time": "y", "input_tokens": 600}`,
			Row{Timestamp: Some(1.), InputLength: Some[int64](600)},
			`unknown key "timestamp" in 1 row`,
		},
		{"a key that has an alias' name", "text_input=input_tokens,input_length=n", `{"input_tokens": "hello"}`, Row{TextInput: Some("hello")}, ""},
		{"a whole body", "payload=body", `{"body": {"prompt": "x"}}`, Row{Payload: json.RawMessage(`{"prompt": "x"}`)}, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			m, err := ParseMapping(test.maps)
			if err != nil {
				t.Fatal(err)
			}
			rows, r, err := read(test.in, ReaderOptions{Map: m})
			if err != nil || len(rows) != 1 {
				t.Fatalf("%d rows, error %v", len(rows), err)
			}
			if diff := cmp.Diff(&test.want, rows[0]); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			notices := r.Notices()
			for _, n := range notices {
				if n.Code == NoticeUnknownKey && (test.unknown == "" || !strings.Contains(notices[0].Text+notices[len(notices)-1].Text, test.unknown)) {
					t.Errorf("notice %q", n.Text)
				}
			}
		})
	}
}

func TestInvalidMappings(t *testing.T) {
	for maps, want := range map[string]string{
		"":                               "want a field of a row and the file's key",
		"prompt_tokens":                  "want a field of a row and the file's key",
		"input_length=":                  "want a field of a row and the file's key",
		"osl=out":                        `"osl" is not a field of a row: want one of class, delay, extra`,
		"input_length=a,input_length=b":  "input_length is mapped twice",
		"input_length=hash_ids":          `input_length cannot be read from "hash_ids": the key "hash_ids" is already that of another field`,
		"input_length=n,output_length=n": `output_length cannot be read from "n"`,
		"input_length=payload.n":         `input_length cannot be read from "payload.n": the key "payload" is already that of another field`,
		"input_length=usage.n,output_length=usage": `cannot be read from "usage`,
		"input_length=a.b,output_length=a.b.c":     `cannot be read from "a.b`,
	} {
		if _, err := ParseMapping(maps); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: error %v, want %q", maps, err, want)
		}
	}
	if m, err := ParseMapping(); m != nil || err != nil {
		t.Errorf("nothing: %v, %v", m, err)
	}
}

// TestNamesOfOthersAreSuggested: the error for a row without a prompt, and the notice about a key without effect, say which flag helps.
func TestNamesOfOthersAreSuggested(t *testing.T) {
	for in, want := range map[string]string{
		`{"timestamp": 0, "prompt_tokens": 600, "completion_tokens": 5}`:          "--map input_length=prompt_tokens,output_length=completion_tokens reads them",
		`{"ts": 0, "ContextTokens": 600}`:                                         "--map timestamp=ts,input_length=ContextTokens reads them",
		`{"timestamp": 0, "usage": {"prompt_tokens": 1, "completion_tokens": 2}}`: "--map input_length=usage.prompt_tokens,output_length=usage.completion_tokens reads them",
	} {
		_, _, err := read(in, ReaderOptions{})
		if err == nil || !strings.HasSuffix(err.Error(), want) {
			t.Errorf("error %v\nwant it to end in %q", err, want)
		}
	}
	if _, _, err := read(`{"timestamp": 0, "xyzzy": 1}`, ReaderOptions{}); err == nil || strings.Contains(err.Error(), "--map") {
		t.Errorf("error %v", err)
	}
	_, r, err := read(`{"arrival_time": 0, "input_length": 1}`, ReaderOptions{})
	if n := r.Notices(); err != nil || len(n) != 1 || n[0].Text != `unknown key "arrival_time" in 1 row has no effect; --map timestamp=arrival_time reads it` {
		t.Errorf("notices %v, error %v", n, err)
	}
}

// TestSuggestionsHelp: each suggested mapping is possible.
func TestSuggestionsHelp(t *testing.T) {
	for key, field := range othersNames {
		if _, err := ParseMapping(field + "=" + key); err != nil {
			t.Error(err)
		}
	}
}
