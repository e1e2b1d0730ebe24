// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package annotate_test

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/moonloop/moonloop/receiver/annotate"
	"github.com/moonloop/moonloop/semconv"
)

func hashOf(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}

// TestCanonicalPrompt defines to the byte what is hashed.
func TestCanonicalPrompt(t *testing.T) {
	const call = `{"function":{"arguments":"{\"city\":\"Bern\"}","name":"weather"},"id":"call_1","type":"function"}`
	for _, c := range []struct {
		reason, messages string
		more             attributes
		want             string
	}{
		{
			"a message is role and text, a line each",
			`[{"role":"user","parts":[{"type":"text","content":"Hello"}]}]`, nil,
			"user\nHello\n",
		},
		{
			"parts of a message have nothing between them",
			`[{"role":"user","parts":[{"type":"text","content":"Hel"},{"type":"text","content":"lo"}]}]`, nil,
			"user\nHello\n",
		},
		{
			"an empty message has two lines", `[{"role":"user","parts":[{"type":"text","content":""}]}]`, nil,
			"user\n\n",
		},
		{
			"tools follow the system's messages, a message each",
			`[{"role":"system","parts":[{"type":"text","content":"Be kind."}]},{"role":"user","parts":[{"type":"text","content":"Hello"}]}]`,
			attributes{"gen_ai.tool.definitions": `[{"type":"function","name":"a"},{"type":"function","name":"b"}]`},
			"system\nBe kind.\ntools\n" + `{"function":{"name":"a"},"type":"function"}` + "\ntools\n" +
				`{"function":{"name":"b"},"type":"function"}` + "\nuser\nHello\n",
		},
		{
			"a tool call is JSON after the text of its message, a result is the text of a message of its own",
			`[{"role":"assistant","parts":[{"type":"reasoning","content":"Hm. "},{"type":"text","content":"I look."},
			{"type":"tool_call","id":"call_1","name":"weather","arguments":{"city":"Bern"}}]},
			{"role":"tool","parts":[{"type":"tool_call_response","id":"call_1","response":"rain"}]}]`, nil,
			"assistant\nHm. I look." + call + "\ntool\nrain\n",
		},
		{
			"an image becomes a hash in its place, and the rest of its cell is filled with zeros",
			`[{"role":"user","parts":[{"type":"text","content":"What is "},{"type":"uri","modality":"image","uri":"http://x/y.png"},{"type":"text","content":"?"}]}]`, nil,
			"user\nWhat is " + `{"media":"` + hashOf(`{"image_url":{"url":"http://x/y.png"},"type":"image_url"}`) + `"}` +
				strings.Repeat("\x00", 128-len("user\nWhat is ")-len(`{"media":""}`)-64) + "?\n",
		},
	} {
		t.Run(c.reason, func(t *testing.T) {
			in := chat(c.more)
			in["gen_ai.input.messages"] = c.messages
			td, span := oneSpan(t, in)
			newAnnotator(t, annotate.Config{}).Traces(td)
			v, _ := span.Attributes().Get(semconv.Cells)
			if diff := cmp.Diff(any(chainOf(t, testKey(t, 'k'), c.want)), v.AsRaw()); diff != "" {
				t.Errorf("chain is not that of %q (-want +got):\n%s", c.want, diff)
			}
		})
	}
}
