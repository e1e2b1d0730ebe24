// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package simulator

import (
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestResponsesInput: an input is a text, messages, or items of calls and their results; the system text is a separate member.
func TestResponsesInput(t *testing.T) {
	e, url := serve(t, Config{Cache: Cache{BlockSize: 16}})
	for _, c := range []struct {
		body   string
		status int
		roles  []string
		tokens int // except for those that the template adds
		want   string
	}{
		{`"input": "one two three"`, 200, []string{"user"}, 3, ""},
		{`"instructions": "be brief", "input": [{"role": "user", "content": "one"}, {"role": "assistant", "content": "two"}, {"role": "user", "content": "three"}]`, 200, []string{"system", "user", "assistant", "user"}, 5, ""},
		{`"input": [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": "one two"}, {"type": "input_image", "image_url": "data:image/png;base64,AAAA"}]}]`, 200, []string{"user"}, 2, ""},
		{`"input": [{"role": "user", "content": "one"}, {"type": "reasoning", "id": "rs_1", "summary": []}, {"type": "function_call", "call_id": "c", "name": "look", "arguments": "{}"}, {"type": "function_call_output", "call_id": "c", "output": "two three"}]`, 200, []string{"user", "assistant", "assistant", "tool"}, 4, ""},
		{`"input": []`, 400, nil, 0, "empty"},
		{`"messages": []`, 400, nil, 0, "input is missing"},
		{`"input": 3`, 400, nil, 0, "array"},
		{`"input": "x", "max_output_tokens": 0`, 400, nil, 0, "at least 1"},
		{`"input": "x", "tools": [{"type": "web_search"}]`, 400, nil, 0, "name"},
	} {
		resp, reply := post(t, url+pathResponses, `{"model":"m",`+c.body+`}`)
		if resp.StatusCode != c.status || !strings.Contains(reply, c.want) {
			t.Errorf("%s: %d %s", c.body, resp.StatusCode, reply)
			continue
		}
		if c.status != http.StatusOK {
			continue
		}
		r := lastRecord(t, e)
		var roles []string
		for _, m := range r.Request.Messages {
			roles = append(roles, m.Role)
		}
		const perPrompt, perMessage = 5, 5
		if diff := cmp.Diff(c.roles, roles); diff != "" || r.PromptTokens != c.tokens+perPrompt+perMessage*len(roles) {
			t.Errorf("%s: %d tokens, roles (-want +got):\n%s", c.body, r.PromptTokens, diff)
		}
	}
}
