// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package send

import "testing"

// TestEmbeddings: a reply is served if it has a vector. It has no tokens, whatever it says.
func TestEmbeddings(t *testing.T) {
	with := func(embedding, usage string) string {
		return `{"object":"list","data":[{"object":"embedding","index":0,"embedding":` + embedding + `}],"model":"m"` + usage + `}`
	}
	const usage = `,"usage":{"prompt_tokens":8,"total_tokens":8}`
	counted := Usage{Prompt: 8, Completion: Unknown, Cached: Unknown, Reasoning: Unknown}
	for _, test := range []struct {
		name, body string
		class      Class
		usage      Usage
	}{
		{"numbers", with("[0.5, -1e-3]", usage), "", counted},
		{"base64", with(`"AAAAPw=="`, usage), "", counted},
		{"no completion tokens", with("[1]", `,"usage":{"prompt_tokens":8,"completion_tokens":0,"total_tokens":8,"prompt_tokens_details":null}`), "", counted},
		{"cached tokens", with("[1]", `,"usage":{"prompt_tokens":8,"prompt_tokens_details":{"cached_tokens":4}}`), "", Usage{8, Unknown, 4, Unknown}},
		{"no usage", with("[1]", ""), "", NoUsage},
		{"an empty vector", with("[ ]", usage), ClassIncomplete, counted},
		{"no vector", with("null", usage), ClassIncomplete, counted},
		{"an empty text", with(`""`, usage), ClassIncomplete, counted},
		{"no data", `{"object":"list","data":[],"model":"m"}`, ClassIncomplete, NoUsage},
		{"a chat", `{"id":"x","choices":[{"index":0,"message":{"content":"hi"},"finish_reason":"stop"}]}`, ClassIncomplete, NoUsage},
		{"an error", `{"error":{"message":"no such model","type":"NotFoundError","code":404}}`, ClassRejected, NoUsage},
		{"flat error", `{"object":"error","message":"too long","code":400}`, ClassRejected, NoUsage},
		{"not an object", `[1]`, ClassProtocol, NoUsage},
		{"data of another kind", `{"data":"x"}`, ClassProtocol, NoUsage},
		{"broken off", with("[1]", usage)[:40], ClassProtocol, NoUsage},
	} {
		t.Run(test.name, func(t *testing.T) {
			req := post(`{"input":"x"}`)
			req.API, req.Stream = Embeddings, false
			x := once(t, req, Config{}, answer("200 OK", mediaJSON, test.body), true)
			if got := look(x); got.Class != test.class || got.Chunks != 0 || got.Finish != "" || x.Usage != test.usage {
				t.Errorf("%+v, %+v, %v", got, x.Usage, x.Err)
			}
			if test.class == "" && (!x.Embedding || !x.Whole || x.Reply != "" || x.Model != "m") {
				t.Errorf("%+v", x)
			}
		})
	}
}
