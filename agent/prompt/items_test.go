// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package prompt

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestItems: messages of a chat are converted to the items of /v1/responses, and such items stay unchanged.
func TestItems(t *testing.T) {
	for _, c := range []struct{ messages, want string }{
		{`[{"role": "system", "content": "be brief"}, {"role":"user","content":"hi"}]`, `{"role": "system", "content": "be brief"},{"role":"user","content":"hi"}`},
		{
			`[{"role":"assistant","content":"let me look","tool_calls":[{"id":"c1","type":"function","function":{"name":"look","arguments":"{\"x\":1}"}}]},{"role":"tool","tool_call_id":"c1","content":"found"}]`,
			`{"role":"assistant","content":"let me look"},{"type":"function_call","call_id":"c1","name":"look","arguments":"{\"x\":1}"},{"type":"function_call_output","call_id":"c1","output":"found"}`,
		},
		{
			`[{"role":"assistant","content":null,"tool_calls":[{"id":"c1","function":{"name":"f","arguments":"{}"}},{"id":"c2","function":{"name":"g","arguments":"{}"}}]},{"role":"tool","tool_call_id":"c2","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]}]`,
			`{"type":"function_call","call_id":"c1","name":"f","arguments":"{}"},{"type":"function_call","call_id":"c2","name":"g","arguments":"{}"},{"type":"function_call_output","call_id":"c2","output":"ab"}`,
		},
		{
			`[{"role":"user","content":[{"type":"text","text":"see"},{"type":"image_url","image_url":{"url":"data:image/png;base64,AA","detail":"low"}},{"type":"input_audio","input_audio":{}}]},{"role":"assistant","content":[{"type":"text","text":"so"}]}]`,
			`{"role":"user","content":[{"type":"input_text","text":"see"},{"type":"input_image","image_url":"data:image/png;base64,AA","detail":"low"},{"type":"input_audio","input_audio":{}}]},{"role":"assistant","content":[{"type":"output_text","text":"so"}]}`,
		},
		{
			`[{"type":"reasoning","summary":[]},{"type":"function_call","call_id":"c","name":"f","arguments":"{}"},{"role":"user","content":[{"type":"input_text","text":"x"}]}]`,
			`{"type":"reasoning","summary":[]},{"type":"function_call","call_id":"c","name":"f","arguments":"{}"},{"role":"user","content":[{"type":"input_text","text":"x"}]}`,
		},
	} {
		parts, err := itemsOf([]byte(c.messages))
		if err != nil || len(parts) != 1 {
			t.Errorf("%s: %v", c.messages, err)
			continue
		}
		if diff := cmp.Diff(c.want, string(parts[0].raw)); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
	for _, bad := range []string{`[]`, `{}`, `"x"`, `[3]`} {
		if _, err := itemsOf([]byte(bad)); !errors.Is(err, ErrRow) {
			t.Errorf("%s: %v", bad, err)
		}
	}
	for _, c := range []struct{ tools, want string }{
		{`[{"type":"function","function":{"name":"f","description":"d","parameters":{"type":"object"},"strict":true}}]`, `[{"description":"d","name":"f","parameters":{"type":"object"},"strict":true,"type":"function"}]`},
		{`[{"type":"function","name":"f"},{"type":"web_search"}]`, `[{"type":"function","name":"f"},{"type":"web_search"}]`},
		{``, ``},
	} {
		tools, err := functionsOf([]byte(c.tools))
		if diff := cmp.Diff(c.want, string(tools)); err != nil || diff != "" {
			t.Errorf("%v (-want +got):\n%s", err, diff)
		}
	}
	if _, err := functionsOf([]byte(`{}`)); !errors.Is(err, ErrRow) {
		t.Errorf("%v", err)
	}
}
