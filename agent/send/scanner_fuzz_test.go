// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package send

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"reflect"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
)

// FuzzScanner compares the scanner with encoding/json on all valid JSON in valid UTF-8: with parseSlowly, which reads tokens in order, and
// with plainOf, which reads maps and shares no code with either. Incomplete JSON is never accepted.
func FuzzScanner(f *testing.F) {
	for _, s := range []string{
		chunk236, roleOnly, chunkA, finish, usage, badEnd, `null`, `{"error":""}`, `{"object":"\u0065rror"}`, `{"choices":[{"delta":{"\u0063ontent":"x"}}]}`,
		`{"choices":[{"index":1,"delta":{"tool_calls":[{"index":0,"id":"t","function":{"name":"f","arguments":"{\"a\":1}"}}]}}],"usage":{"prompt_tokens":1e2}}`,
		`{"type":"response.completed","response":{"status":"x","usage":{"input_tokens":1,"input_tokens_details":{"cached_tokens":2}},"incomplete_details":{"reason":"r"}}}`,
		`{"choices":[{"message":{"content":"a","reasoning":"b"},"text":"c"},{"text":"d"}],"choices":[],"usage":null,"delta":"d"}`,
		`{"id":"cmpl-1","choices":[{"index":2,"text":" \ud83d\ude00\n","logprobs":{"content":[{"token":"no"}]},"finish_reason":"length","stop_reason":null}],"usage":{"prompt_tokens":12,"completion_tokens":3,"total_tokens":15,"completion_tokens_details":{"reasoning_tokens":1},"prompt_tokens_details":{"cached_tokens":8}}}`,
		`{"choices":[{"delta":{"content":"","reasoning_content":"hm"},"index":0},{"delta":{"content":"b","content":"c","refusal":null},"index":1}],"usage":{"prompt_tokens":1,"prompt_tokens":2}}`,
		`{"choices":[{"index":0,"text":"","token_ids":[1, 22,333],"prompt_token_ids":[4]},{"token_ids":null},{"token_ids":[{"a":[]}]}]}`,
		`{"choices":[{"delta":{"function_call":{"name":"f","arguments":"{"}}}],"error":{"message":"no","code":500}}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		// An earlier chunk must leave no trace: the memory is reused.
		var fast chunk
		fast.parse([]byte(`{"id":"i","model":"m","type":"t","delta":"d","error":1,"choices":[{"index":7,"text":"x","finish_reason":"f","delta":{"tool_calls":[{"function":{"name":"f"}}],"reasoning":"r"}},{"text":"y"}],"usage":{"prompt_tokens":1,"completion_tokens":2,"reasoning_tokens":3,"prompt_tokens_details":{"cached_tokens":4}},"response":{"status":"s","incomplete_details":{"reason":"r"}}}`))
		ok := fast.parse(in)
		if !json.Valid(in) || !utf8.Valid(in) {
			return // no panic is all that is asked
		}
		var slow chunk
		if want := slow.parseSlowly(in); ok != want {
			t.Fatalf("parsed %t, want %t: %s", ok, want, in)
		}
		if !ok {
			return
		}
		got := fast.plain()
		if !reflect.DeepEqual(got, slow.plain()) {
			t.Fatalf("%s\n(-slow +fast):\n%s", in, cmp.Diff(slow.plain(), got))
		}
		if want, ok := plainOf(in); ok && !reflect.DeepEqual(got, want) {
			t.Fatalf("%s\n(-map +fast):\n%s", in, cmp.Diff(want, got))
		}
		var blanks bytes.Buffer
		if err := json.Indent(&blanks, in, "\n\r", " \t"); err != nil {
			t.Fatal(err)
		}
		if !fast.parse(blanks.Bytes()) || !reflect.DeepEqual(got, fast.plain()) {
			t.Fatalf("other blanks, another chunk: %s\n(-compact +indented):\n%s", in, cmp.Diff(got, fast.plain()))
		}
		end := bytes.LastIndexByte(in, '}')
		for n := 0; n <= end; n += 1 + end/50 {
			if fast.parse(in[:n]) {
				t.Fatalf("%d bytes of %d were taken for the whole of %s", n, len(in), in)
			}
		}
		if fast.parse(in[:end]) {
			t.Fatalf("taken for whole without its last brace: %s", in)
		}
	})
}

// plainOf reads a chunk through maps. It is not ok if the order of members matters, which maps lose: a key that occurs twice, or two keys
// for one fact.
func plainOf(in []byte) (p plain, ok bool) {
	if !unique(json.NewDecoder(bytes.NewReader(in))) {
		return plain{}, false
	}
	d := json.NewDecoder(bytes.NewReader(in))
	d.UseNumber()
	var root map[string]any
	if d.Decode(&root) != nil || root == nil {
		return plain{}, false
	}
	ok = true
	one := func(m map[string]any, keys ...string) (v any) {
		found := false
		for _, k := range keys {
			if x, has := m[k]; has {
				ok, found, v = ok && !found, true, x
			}
		}
		return v
	}
	str := func(v any) string { s, _ := v.(string); return s }
	object := func(v any) map[string]any { m, _ := v.(map[string]any); return m }
	response := object(root["response"])
	for _, k := range []string{"id", "model", "usage"} {
		if _, has := response[k]; has && root[k] != nil {
			return plain{}, false
		}
	}
	p = plain{
		ID: str(root["id"]) + str(response["id"]), Model: str(root["model"]) + str(response["model"]), Typ: str(root["type"]), Delta: str(root["delta"]),
		Stat: str(response["status"]), Cause: str(object(response["incomplete_details"])["reason"]), Usage: NoUsage,
	}
	fails := func(v any) bool { return v != nil && v != false && v != "" }
	p.Failed = fails(root["error"]) || fails(response["error"]) || root["object"] == "error"

	tokens := func(to *int64, v any) {
		n, isNumber := v.(json.Number)
		if i, err := n.Int64(); isNumber && err == nil && i >= 0 && i <= maxCount && n != "-0" {
			*to, p.HasUsage = i, true
		}
	}
	u := object(root["usage"])
	if u == nil {
		u = object(response["usage"])
	}
	tokens(&p.Usage.Prompt, one(u, "prompt_tokens", "input_tokens"))
	tokens(&p.Usage.Completion, one(u, "completion_tokens", "output_tokens"))
	details := []map[string]any{u}
	for _, k := range []string{"prompt_tokens_details", "input_tokens_details", "completion_tokens_details", "output_tokens_details"} {
		details = append(details, object(u[k]))
	}
	for i, m := range details {
		if i > 0 && m["cached_tokens"] != nil {
			ok = ok && p.Usage.Cached == Unknown
			tokens(&p.Usage.Cached, m["cached_tokens"])
		}
		if m["reasoning_tokens"] != nil {
			ok = ok && p.Usage.Reasoning == Unknown
			tokens(&p.Usage.Reasoning, m["reasoning_tokens"])
		}
	}

	list, _ := root["choices"].([]any)
	for _, e := range list {
		m, isObject := e.(map[string]any)
		if !isObject {
			continue
		}
		delta := object(one(m, "delta", "message"))
		if delta != nil && m["text"] != nil {
			return plain{}, false
		}
		c := plainChoice{
			Content: str(m["text"]) + str(one(delta, "content", "refusal")), Reasoning: str(one(delta, "reasoning", "reasoning_content")),
			Finish: str(m["finish_reason"]),
		}
		n, _ := m["index"].(json.Number)
		if i, err := n.Int64(); err == nil && i >= 0 && len(n) <= 18 && n != "-0" {
			c.Index = i
		}
		if list, isList := m["token_ids"].([]any); isList {
			c.TokenIDs = list
		}
		calls := []any{map[string]any{"function": delta["function_call"]}}
		if tools, isList := delta["tool_calls"].([]any); isList {
			c.Tools, calls = tools, append(calls, tools...)
		}
		for _, call := range calls {
			function := object(object(call)["function"])
			c.Called = c.Called || str(function["name"]) != "" || str(function["arguments"]) != ""
		}
		p.Choices = append(p.Choices, c)
	}
	return p, ok
}

// unique reports whether no object of a document has a key twice.
func unique(d *json.Decoder) bool {
	type level struct {
		keys  map[string]bool // nil in an array
		value bool            // comes next
	}
	levels := []level{{value: true}}
	for {
		t, err := d.Token()
		if err != nil {
			return errors.Is(err, io.EOF)
		}
		top := &levels[len(levels)-1]
		if key, isKey := t.(string); isKey && top.keys != nil && !top.value {
			if top.keys[key] {
				return false
			}
			top.keys[key], top.value = true, true
			continue
		}
		top.value = false
		switch t {
		case json.Delim('{'):
			levels = append(levels, level{keys: map[string]bool{}})
		case json.Delim('['):
			levels = append(levels, level{})
		case json.Delim('}'), json.Delim(']'):
			levels = levels[:len(levels)-1]
			levels[len(levels)-1].value = false
		}
	}
}
