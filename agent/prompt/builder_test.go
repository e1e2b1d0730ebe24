// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package prompt

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/moonloop/moonloop/mooncake"
)

// wantBody compares a body with a JSON object; its prompt only if the object has one.
func wantBody(t *testing.T, why string, p Prompt, want string) {
	t.Helper()
	got := decoded(t, p.Request)
	var w map[string]any
	if err := json.Unmarshal([]byte(want), &w); err != nil {
		t.Fatal(err)
	}
	if w["messages"] == nil && w["prompt"] == nil {
		delete(got, "messages")
		delete(got, "prompt")
	}
	if diff := cmp.Diff(w, got); diff != "" {
		t.Errorf("%s: body (-want +got):\n%s", why, diff)
	}
}

func TestBodies(t *testing.T) {
	hashed := lengthRow(100, 7, 1)
	with := func(row *mooncake.Row, change func(*mooncake.Row)) *mooncake.Row {
		c := *row
		change(&c)
		return &c
	}
	extra := func(row *mooncake.Row, extra string) *mooncake.Row {
		return with(row, func(r *mooncake.Row) { r.Extra = json.RawMessage(extra) })
	}
	output := func(row *mooncake.Row, n int64) *mooncake.Row {
		return with(row, func(r *mooncake.Row) { r.OutputLength = mooncake.Some(n) })
	}
	noOutput := with(hashed, func(r *mooncake.Row) { r.OutputLength = mooncake.Opt[int64]{} })
	const hold = `,"ignore_eos":true,"min_tokens":7`

	for _, tt := range []struct {
		why    string
		o      Options
		row    *mooncake.Row
		want   string // without the prompt when that is generated
		stream bool
		output int64
	}{
		{"plain", Options{Model: "m"}, hashed, `{"model":"m","stream":false,"max_completion_tokens":7` + hold + `}`, false, 7},
		{"no model anywhere", Options{}, hashed, `{"stream":false,"max_completion_tokens":7` + hold + `}`, false, 7},
		{"the row's model", Options{}, with(hashed, func(r *mooncake.Row) { r.Model = "r" }), `{"model":"r","stream":false,"max_completion_tokens":7` + hold + `}`, false, 7},
		{"the replay's model wins", Options{Model: "m"}, with(hashed, func(r *mooncake.Row) { r.Model = "r" }), `{"model":"m","stream":false,"max_completion_tokens":7` + hold + `}`, false, 7},
		{"a model's name is escaped", Options{Model: "a\"\\\n<é>"}, hashed, `{"model":"a\"\\\n<é>","stream":false,"max_completion_tokens":7` + hold + `}`, false, 7},
		{"a stream asks for its usage", Options{Stream: true}, hashed, `{"stream":true,"stream_options":{"include_usage":true},"max_completion_tokens":7` + hold + `}`, true, 7},
		{"completions", Options{Endpoint: Completions}, hashed, `{"stream":false,"max_tokens":7` + hold + `}`, false, 7},
		{"embeddings: nothing is asked of a reply", Options{Endpoint: Embeddings, Model: "m", Stream: true, DefaultOutput: 9}, output(textRow("hi \"you\""), 7), `{"model":"m","input":"hi \"you\""}`, false, 0},
		{"embeddings, with extras", Options{Endpoint: Embeddings, ExtraInputs: json.RawMessage(`{"dimensions":8,"stream":true}`)}, textRow("hi"), `{"input":"hi","dimensions":8,"stream":true}`, false, 0},
		{"generate: the cap is a parameter, and no model is named", Options{Endpoint: Generate, Model: "m", Stream: true}, output(textRow("hi \"you\""), 7), `{"inputs":"hi \"you\"","parameters":{"details":true,"max_new_tokens":7}}`, true, 7},
		{"generate, with parameters", Options{Endpoint: Generate, ExtraInputs: json.RawMessage(`{"parameters":{"max_new_tokens":3,"details":false,"seed":1}}`)}, output(textRow("hi"), 7), `{"inputs":"hi","parameters":{"max_new_tokens":3,"details":false,"seed":1}}`, false, 3},
		{"generate, with invalid parameters", Options{Endpoint: Generate, ExtraInputs: json.RawMessage(`{"parameters":7}`)}, output(textRow("hi"), 7), `{"inputs":"hi","parameters":7}`, false, 0},
		{"another field for the cap", Options{MaxTokensField: "n_predict"}, hashed, `{"stream":false,"n_predict":7` + hold + `}`, false, 7},
		{"cache salt", Options{CacheSalt: "run-1"}, hashed, `{"stream":false,"max_completion_tokens":7` + hold + `,"cache_salt":"run-1"}`, false, 7},

		{"output 0: at least one token", Options{}, lengthRow(100, 0, 1), `{"stream":false,"max_completion_tokens":1,"ignore_eos":true,"min_tokens":1}`, false, 1},
		{"output 1", Options{}, lengthRow(100, 1, 1), `{"stream":false,"max_completion_tokens":1,"ignore_eos":true,"min_tokens":1}`, false, 1},
		{"no output length, no default: nothing is asked", Options{}, noOutput, `{"stream":false}`, false, 0},
		{"no output length: the default", Options{DefaultOutput: 9}, noOutput, `{"stream":false,"max_completion_tokens":9,"ignore_eos":true,"min_tokens":9}`, false, 9},
		{"a row's own output length, not the default", Options{DefaultOutput: 9}, hashed, `{"stream":false,"max_completion_tokens":7` + hold + `}`, false, 7},
		{"capped", Options{OutputCap: 3}, hashed, `{"stream":false,"max_completion_tokens":3,"ignore_eos":true,"min_tokens":3}`, false, 3},
		{"capped default", Options{OutputCap: 3, DefaultOutput: 9}, noOutput, `{"stream":false,"max_completion_tokens":3,"ignore_eos":true,"min_tokens":3}`, false, 3},

		{"text: one message; its reply is capped, but its length is not enforced", Options{}, output(textRow("hi \"you\" <b>\n\u2028é"), 7), `{"messages":[{"role":"user","content":"hi \"you\" <b>\n\u2028é"}],"stream":false,"max_completion_tokens":7}`, false, 7},
		{"text on completions", Options{Endpoint: Completions}, textRow("hi \"you\"\t\\"), `{"prompt":"hi \"you\"\t\\","stream":false}`, false, 0},
		{"text with token ids", Options{Endpoint: Completions, Form: Tokens}, textRow("hi"), `{"prompt":"hi","stream":false}`, false, 0},
		{"empty text", Options{Endpoint: Completions}, textRow(""), `{"prompt":"","stream":false}`, false, 0},
		{"messages with tools", Options{Stream: true}, with(messagesRow(`[{"role":"system","content":"s"},{"role":"user","content":"u"}]`), func(r *mooncake.Row) {
			r.Tools = json.RawMessage(`[{"type":"function","function":{"name":"f"}}]`)
			r.OutputLength = mooncake.Some(int64(7))
		}), `{"messages":[{"role":"system","content":"s"},{"role":"user","content":"u"}],"tools":[{"type":"function","function":{"name":"f"}}],"stream":true,"stream_options":{"include_usage":true},"max_completion_tokens":7}`, true, 7},

		{"extra adds", Options{}, extra(hashed, `{"nvext":{"priority":3},"temperature":0.5}`), `{"stream":false,"nvext":{"priority":3},"temperature":0.5,"max_completion_tokens":7` + hold + `}`, false, 7},
		{"extra inputs add, the row's extra wins, one level deep", Options{ExtraInputs: json.RawMessage(`{"a":{"x":1},"b":2}`)}, extra(hashed, `{"a":{"y":1}}`), `{"stream":false,"a":{"y":1},"b":2,"max_completion_tokens":7` + hold + `}`, false, 7},
		{"extra inputs override ours", Options{Model: "m", ExtraInputs: json.RawMessage(`{"model":"x"}`)}, hashed, `{"model":"x","stream":false,"max_completion_tokens":7` + hold + `}`, false, 7},
		{"of two members of one name the later counts", Options{}, extra(hashed, `{"a":1,"b":2,"a":3}`), `{"stream":false,"a":3,"b":2,"max_completion_tokens":7` + hold + `}`, false, 7},
		{"extra is null", Options{ExtraInputs: json.RawMessage(`null`)}, extra(hashed, `null`), `{"stream":false,"max_completion_tokens":7` + hold + `}`, false, 7},
		{"extra turns the stream off: no stream options", Options{Stream: true}, extra(hashed, `{"stream":false}`), `{"stream":false,"max_completion_tokens":7` + hold + `}`, false, 7},
		{"extra turns the stream on", Options{}, extra(hashed, `{"stream":true}`), `{"stream":true,"stream_options":{"include_usage":true},"max_completion_tokens":7` + hold + `}`, true, 7},
		{"the user's stream options are kept, and usage is added", Options{Stream: true, ExtraInputs: json.RawMessage(`{"stream_options":{"continuous_usage_stats":true}}`)}, hashed, `{"stream":true,"stream_options":{"continuous_usage_stats":true,"include_usage":true},"max_completion_tokens":7` + hold + `}`, true, 7},
		{"the user refuses usage", Options{Stream: true, ExtraInputs: json.RawMessage(`{"stream_options":{"include_usage":false}}`)}, hashed, `{"stream":true,"stream_options":{"include_usage":false},"max_completion_tokens":7` + hold + `}`, true, 7},
		{"extra caps the reply: the length enforced is the cap", Options{}, extra(hashed, `{"max_completion_tokens":2}`), `{"stream":false,"max_completion_tokens":2,"ignore_eos":true,"min_tokens":2}`, false, 2},
		{"extra caps the reply under the other name: ours is not added", Options{}, extra(hashed, `{"max_tokens":2}`), `{"stream":false,"max_tokens":2,"ignore_eos":true,"min_tokens":2}`, false, 2},
		{"the user lets replies end: no length is enforced", Options{ExtraInputs: json.RawMessage(`{"ignore_eos":false}`)}, hashed, `{"stream":false,"ignore_eos":false,"max_completion_tokens":7}`, false, 7},
		{"the user enforces the length of replies to texts", Options{ExtraInputs: json.RawMessage(`{"ignore_eos":true}`)}, output(textRow("t"), 7), `{"messages":[{"role":"user","content":"t"}],"stream":false,"ignore_eos":true,"max_completion_tokens":7}`, false, 7},
		{"extra inputs contain the messages", Options{}, extra(hashed, `{"messages":[{"role":"user","content":"x"}]}`), `{"messages":[{"role":"user","content":"x"}],"stream":false,"max_completion_tokens":7}`, false, 7},

		{"payload", Options{Model: "m", Stream: true, ExtraInputs: json.RawMessage(`{"a":1}`), CacheSalt: "s"}, &mooncake.Row{Payload: json.RawMessage(`{"messages":[],"stream":true,"max_tokens":5}`)}, `{"messages":[],"stream":true,"max_tokens":5}`, true, 5},
		{"payload that does not stream", Options{Stream: true}, &mooncake.Row{Payload: json.RawMessage(`{"prompt":"p"}`)}, `{"prompt":"p"}`, false, 0},
		{"payload with the row's own extra", Options{}, &mooncake.Row{Payload: json.RawMessage(`{"prompt":"p","stream":true,"n":1}`), Extra: json.RawMessage(`{"stream":false,"user":"u"}`)}, `{"prompt":"p","stream":false,"n":1,"user":"u"}`, false, 0},
	} {
		p := build(t, newBuilder(t, tt.o), 0, tt.row, nil)
		wantBody(t, tt.why, p, tt.want)
		if p.Request.Stream != tt.stream {
			t.Errorf("%s: Stream %v, want %v", tt.why, p.Request.Stream, tt.stream)
		}
		if p.OutputTokens != tt.output || int64(p.Request.ExpectTokens) != tt.output {
			t.Errorf("%s: OutputTokens %d, ExpectTokens %d; want %d", tt.why, p.OutputTokens, p.Request.ExpectTokens, tt.output)
		}
		generated := tt.row.Kind() == mooncake.KindLength && !strings.Contains(tt.want, `"messages"`)
		if (p.Tokens == 100 && p.Added == 99 || p.Tokens == 100 && p.Added == 100) != generated {
			t.Errorf("%s: Tokens %d, Added %d", tt.why, p.Tokens, p.Added)
		}
		if p.Request.KeepReply {
			t.Errorf("%s: the reply of a row without a session is kept", tt.why)
		}
	}
}

// JSON of the row is sent as it was written.
func TestVerbatim(t *testing.T) {
	const messages = `[ {"role":"user", "content":"<a> \u00e9",  "n":1.0e2} ]`
	const tools = `[{ "type" : "function" }]`
	row := messagesRow(messages)
	row.Tools = json.RawMessage(tools)
	row.Extra = json.RawMessage(` { "big" : 12345678901234567890 } `)
	got := string(read(t, build(t, newBuilder(t, Options{Model: "m"}), 0, row, nil).Request))
	want := `{"model":"m","messages":` + messages + `,"tools":` + tools + `,"stream":false,"big":12345678901234567890}`
	if got != want {
		t.Errorf("body %s\nwant %s", got, want)
	}
	const payload = ` {"stream" : true,
 "messages":[ ], "a":1, "a":2 }`
	if got := string(read(t, build(t, newBuilder(t, Options{}), 0, &mooncake.Row{Payload: json.RawMessage(payload)}, nil).Request)); got != payload {
		t.Errorf("payload %s\nwant %s", got, payload)
	}
}

func TestPaths(t *testing.T) {
	for endpoint, path := range map[Endpoint]string{"": "/v1/chat/completions", Chat: "/v1/chat/completions", Completions: "/v1/completions"} {
		if got := build(t, newBuilder(t, Options{Endpoint: endpoint}), 0, lengthRow(9, 1), nil).Request.Path; got != path {
			t.Errorf("%q: path %s, want %s", endpoint, got, path)
		}
	}
}

func TestLargeValues(t *testing.T) {
	long := strings.Repeat("all work and no play ", 1000)
	row := messagesRow(`[{"role":"user","content":"` + long + `"}]`)
	row.Extra = json.RawMessage(`{"note":"` + long + `"}`)
	m := decoded(t, build(t, newBuilder(t, Options{}), 0, row, nil).Request)
	if m["note"] != long || m["messages"].([]any)[0].(map[string]any)["content"] != long {
		t.Error("long values come out changed")
	}
}
