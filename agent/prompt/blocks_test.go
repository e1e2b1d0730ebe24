// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package prompt

import (
	"encoding/json"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/moonloop/moonloop/mooncake"
)

// TestBlocks: a row in the form of a chat is converted to the form of the Messages API.
func TestBlocks(t *testing.T) {
	b := newBuilder(t, Options{Endpoint: Messages, Model: "m"})
	for name, test := range map[string]struct{ messages, system, want string }{
		"text stays":      {`[{"role":"user","content":"a"}]`, ``, `[{"role":"user","content":"a"}]`},
		"system":          {`[{"role":"system","content":"s"},{"role":"user","content":"a"},{"role":"developer","content":[{"type":"text","text":"d"}]}]`, `"s\n\nd"`, `[{"role":"user","content":"a"}]`},
		"call":            {`[{"role":"assistant","content":"t","tool_calls":[{"id":"1","type":"function","function":{"name":"f","arguments":"{\"a\":1}"}}]}]`, ``, `[{"role":"assistant","content":[{"type":"text","text":"t"},{"type":"tool_use","id":"1","name":"f","input":{"a":1}}]}]`},
		"bad call":        {`[{"role":"assistant","content":null,"tool_calls":[{"id":"1","function":{"name":"f","arguments":"{"}}]}]`, ``, `[{"role":"assistant","content":[{"type":"tool_use","id":"1","name":"f","input":{}}]}]`},
		"tool result":     {`[{"role":"tool","tool_call_id":"1","content":"r"}]`, ``, `[{"role":"user","content":[{"type":"tool_result","tool_use_id":"1","content":"r"}]}]`},
		"image":           {`[{"role":"user","content":[{"type":"text","text":"x"},{"type":"image_url","image_url":{"url":"data:image/png;base64,AA=="}}]}]`, ``, `[{"role":"user","content":[{"type":"text","text":"x"},{"type":"image","source":{"type":"base64","media_type":"image/png","data":"AA=="}}]}]`},
		"image by URL":    {`[{"role":"user","content":[{"type":"image_url","image_url":{"url":"https://x/y.png"}}]}]`, ``, `[{"role":"user","content":[{"type":"image","source":{"type":"url","url":"https://x/y.png"}}]}]`},
		"blocks stay":     {`[{"role":"user","content":[{"type":"tool_result","tool_use_id":"1","content":"r"}]}]`, ``, `[{"role":"user","content":[{"type":"tool_result","tool_use_id":"1","content":"r"}]}]`},
		"only system":     {messages: `[{"role":"system","content":"s"}]`},
		"no role":         {messages: `[{"content":"s"}]`},
		"no array":        {messages: `{}`},
		"image as system": {messages: `[{"role":"system","content":[{"type":"image_url"}]},{"role":"user","content":"a"}]`},
	} {
		t.Run(name, func(t *testing.T) {
			p, err := b.Build(0, &mooncake.Row{Messages: json.RawMessage(test.messages)}, nil)
			if test.want == "" {
				if !errors.Is(err, ErrRow) {
					t.Errorf("%v", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			var body struct{ System, Messages json.RawMessage }
			if err := json.Unmarshal(read(t, p.Request), &body); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.system+test.want, string(body.System)+string(body.Messages)); diff != "" {
				t.Error(diff)
			}
		})
	}
}
