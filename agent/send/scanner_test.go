// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package send

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// chunk236 is a chunk of 236 bytes as vLLM sends them.
const chunk236 = `{"id":"chatcmpl-7b8f2d1c9e0a4f6b8d3c5e7f9a1b2c3d","object":"chat.completion.chunk","created":1755000000,"model":"meta-llama/Llama-3.1-8B-Instruct","choices":[{"index":0,"delta":{"content":" token"},"logprobs":null,"finish_reason":null}]}`

// plain is a chunk with its texts decoded, for comparison.
type plain struct {
	Choices                            []plainChoice
	Usage                              Usage
	HasUsage, Failed                   bool
	ID, Model, Typ, Delta, Stat, Cause string
}

type plainChoice struct {
	Index                      int64
	Content, Reasoning, Finish string
	Tools, TokenIDs            any
	Called                     bool
}

func (c *chunk) plain() plain {
	p := plain{
		Usage: c.usage, HasUsage: c.hasUsage, Failed: c.failed, ID: c.id.String(), Model: c.model.String(),
		Typ: c.typ.String(), Delta: c.delta.String(), Stat: c.status.String(), Cause: c.reason.String(),
	}
	for _, ch := range c.choices {
		pc := plainChoice{Index: ch.index, Content: ch.content.String(), Reasoning: ch.reasoning.String(), Finish: ch.finish.String(), Called: ch.called}
		if ch.tools != nil {
			d := json.NewDecoder(bytes.NewReader(ch.tools))
			d.UseNumber()
			if err := d.Decode(&pc.Tools); err != nil {
				pc.Tools = err.Error()
			}
		}
		if ch.tokenIDs != nil {
			d := json.NewDecoder(bytes.NewReader(ch.tokenIDs))
			d.UseNumber()
			if err := d.Decode(&pc.TokenIDs); err != nil {
				pc.TokenIDs = err.Error()
			}
		}
		p.Choices = append(p.Choices, pc)
	}
	return p
}

func TestScanner(t *testing.T) {
	if len(chunk236) < 220 || len(chunk236) > 250 {
		t.Fatalf("the chunk has %d bytes", len(chunk236))
	}
	one := func(change func(*plainChoice)) plain {
		p := plain{Usage: NoUsage, Choices: []plainChoice{{}}}
		change(&p.Choices[0])
		return p
	}
	for _, c := range []struct {
		name, in string
		want     plain
	}{
		{"content below another key does not count", `{"x":{"choices":[{"delta":{"content":"no"}}]},"choices":[{"logprobs":{"content":"no"},"delta":{"annotations":[{"content":"no"}],"content":"yes"}}]}`, one(func(c *plainChoice) { c.Content = "yes" })},
		{"escapes are decoded", `{"choices":[{"delta":{"content":"a\"\\\n\u00e9\ud83d\ude00"}}]}`, one(func(c *plainChoice) { c.Content = "a\"\\\né😀" })},
		{"half a surrogate pair is replaced", `{"choices":[{"delta":{"content":"\ud83d"}}]}`, one(func(c *plainChoice) { c.Content = "\ufffd" })},
		{"an escaped key is found", `{"choices":[{"delta":{"\u0063ontent":"x"}}]}`, one(func(c *plainChoice) { c.Content = "x" })},
		{"values of unexpected types are skipped", `{"choices":[{"index":"1","delta":{"content":[{"text":"x"}],"tool_calls":null},"finish_reason":3}],"usage":[1],"model":null}`, one(func(*plainChoice) {})},
		{"choices that are not objects are skipped", `{"choices":[null,1,[{"text":"x"}],{"text":"y"}]}`, one(func(c *plainChoice) { c.Content = "y" })},
		{
			"counts are made of digits", `{"usage":{"prompt_tokens":true,"completion_tokens":-1.5,"prompt_tokens_details":{"cached_tokens":1e3},"completion_tokens_details":{"reasoning_tokens":7}}}`,
			plain{Usage: Usage{Unknown, Unknown, Unknown, 7}, HasUsage: true},
		},
		{
			"an impossible count is unknown", `{"usage":{"prompt_tokens":9223372036854775808,"completion_tokens":999999999999999999,"total_tokens":1}}`,
			plain{Usage: NoUsage},
		},
		{
			"the largest count that is accepted", `{"usage":{"prompt_tokens":2147483648,"completion_tokens":2147483649}}`,
			plain{Usage: Usage{2147483648, Unknown, Unknown, Unknown}, HasUsage: true},
		},
		{"an empty usage does not count", `{"usage":{}}`, plain{Usage: NoUsage}},
		{"a refusal is content", `{"choices":[{"delta":{"content":null,"refusal":"no"}}]}`, one(func(c *plainChoice) { c.Content = "no" })},
		{"blanks everywhere", " {\n \"choices\" : [ { \"text\" : \"x\" , \"finish_reason\" : \"stop\" } ] , \"error\" : null } ", one(func(c *plainChoice) { c.Content, c.Finish = "x", "stop" })},
		{"old function call", `{"choices":[{"delta":{"function_call":{"name":"f","arguments":""}}}]}`, one(func(c *plainChoice) { c.Called = true })},
	} {
		t.Run(c.name, func(t *testing.T) {
			var got chunk
			if !got.parse([]byte(c.in)) {
				t.Fatal("not parsed")
			}
			if diff := cmp.Diff(c.want, got.plain()); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
	deep := strings.Repeat("[", 63) + strings.Repeat("]", 63)
	for in, want := range map[string]bool{
		`{"a":` + deep + `}`:   true,
		`{"a":[` + deep + `]}`: false, // 65 deep
		``:                     false, `null`: false, `[]`: false, `"x"`: false, `{`: false, `{"a`: false, `{"a"`: false, `{"a":`: false,
		`{"a":1`: false, `{"a":}`: false, `{"choices":[`: false, `{"choices":[{"delta":{"content":"x`: false, `{malformed json: <<<`: false,
	} {
		var c chunk
		if got := c.parse([]byte(in)); got != want {
			t.Errorf("%.40q: parsed %t, want %t", in, got, want)
		}
	}
}

func TestScannerAllocatesNothing(t *testing.T) {
	var c chunk
	in := []byte(chunk236)
	if n := testing.AllocsPerRun(100, func() {
		if !c.parse(in) || !c.choices[0].produced() {
			t.Fatal("not parsed")
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkScanner(b *testing.B) {
	var c chunk
	in := []byte(chunk236)
	b.ReportAllocs()
	b.SetBytes(int64(len(in)))
	for b.Loop() {
		if !c.parse(in) {
			b.Fatal("not parsed")
		}
	}
}
