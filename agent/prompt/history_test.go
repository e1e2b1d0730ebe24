// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package prompt

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/moonloop/moonloop/mooncake"
)

func TestDeltaSession(t *testing.T) {
	const seed, block = 3, 16
	b := newBuilder(t, Options{Seed: seed, BlockSize: block, Overhead: 10, TurnOverhead: 6, Stream: true})
	var h History
	say := func(role, content string) map[string]any { return map[string]any{"role": role, "content": content} }

	type turn struct {
		why       string
		row       *mooncake.Row
		reply     string
		toolCalls string
		adds      []any // to the conversation, before the reply
		answer    any   // the message with the reply
		added     int64
		tokens    int64
	}
	toolRow := deltaRow(`[ {"role":"tool","tool_call_id":"c1","content":"22"}, {"role":"user","content":"so?"} ]`)
	var conversation []any
	for i, tt := range []turn{
		{
			"first turn: the whole template is the overhead", lengthRow(40, 5, 1, 2, 3), "fine \"thanks\"\n", "",
			[]any{say("user", "go"+text(seed, block, 30, 1, 2))},
			say("assistant", "fine \"thanks\"\n"), 30, 40,
		},
		{
			"later turn: the overhead of a turn applies, and only the server knows the number of tokens, because it counts the reply",
			lengthRow(20, 5, 8, 9), "", "",
			[]any{say("user", "go"+text(seed, block, 14, 8))},
			say("assistant", ""), 14, 0,
		},
		{
			"a text, and tool calls without a text", textRow("and <now>?"), "", `[{"id":"c1","type":"function","function":{"name":"f","arguments":"{}"}}]`,
			[]any{say("user", "and <now>?")},
			map[string]any{"role": "assistant", "content": nil, "tool_calls": []any{
				map[string]any{"id": "c1", "type": "function", "function": map[string]any{"name": "f", "arguments": "{}"}},
			}},
			0, 0,
		},
		{
			"messages, and tool calls with a text", toolRow, "hm", `[{"id":"c2"}]`,
			[]any{map[string]any{"role": "tool", "tool_call_id": "c1", "content": "22"}, say("user", "so?")},
			map[string]any{"role": "assistant", "content": "hm", "tool_calls": []any{map[string]any{"id": "c2"}}},
			0, 0,
		},
		{
			"shorter than what a turn adds", lengthRow(3, 5, 1), "x", "",
			[]any{say("user", "go"+text(seed, block, 1, 1))},
			say("assistant", "x"), 1, 0,
		},
	} {
		p := build(t, b, int64(i), tt.row, &h)
		conversation = append(conversation, tt.adds...)
		if diff := cmp.Diff(conversation, decoded(t, p.Request)["messages"]); diff != "" {
			t.Fatalf("%s: messages (-want +got):\n%s", tt.why, diff)
		}
		if p.Added != tt.added || p.Tokens != tt.tokens || p.TooShort != (i == 4) {
			t.Errorf("%s: Added %d, Tokens %d, TooShort %v", tt.why, p.Added, p.Tokens, p.TooShort)
		}
		if !p.Request.KeepReply {
			t.Errorf("%s: the reply is not kept", tt.why)
		}
		again := string(read(t, p.Request))
		h.Append(tt.row, p, tt.reply, []byte(tt.toolCalls))
		if got := string(read(t, p.Request)); got != again {
			t.Errorf("%s: the body changed when the session continued", tt.why)
		}
		conversation = append(conversation, tt.answer)
	}
}

func TestDeltaCompletions(t *testing.T) {
	const seed, block = 3, 16
	b := newBuilder(t, Options{Endpoint: Completions, Seed: seed, BlockSize: block, Overhead: 2, TurnOverhead: 6})
	var h History
	want := "go" + text(seed, block, 18, 1, 2)
	row := lengthRow(20, 5, 1, 2)
	p := build(t, b, 0, row, &h)
	if got := content(t, p.Request); got != want {
		t.Errorf("first turn %q, want %q", got, want)
	}
	h.Append(row, p, " yes \"I\" can", nil)
	want += " yes \"I\" can" + text(seed, block, 10, 3)
	row = lengthRow(10, 5, 3)
	p = build(t, b, 1, row, &h)
	if got := content(t, p.Request); got != want || p.Added != 10 {
		t.Errorf("second turn %q, Added %d, want %q", got, p.Added, want)
	}
	h.Append(row, p, "", nil)
	if got := content(t, build(t, b, 2, textRow("\nEnd\\"), &h).Request); got != want+"\nEnd\\" {
		t.Errorf("third turn %q, want %q and the text", got, want)
	}
}

// The latest tools of a session stay with it.
func TestDeltaTools(t *testing.T) {
	b := newBuilder(t, Options{})
	var h History
	for i, tt := range []struct{ own, want string }{
		{"", ""},
		{`[{"a":1}]`, `[{"a":1}]`},
		{"", `[{"a":1}]`},
		{`[{"b":1}]`, `[{"b":1}]`},
		{"", `[{"b":1}]`},
	} {
		row := deltaRow(`[{"role":"user","content":"x"}]`)
		if tt.own != "" {
			row.Tools = json.RawMessage(tt.own)
		}
		p := build(t, b, int64(i), row, &h)
		got := ""
		if tools, ok := decoded(t, p.Request)["tools"]; ok {
			raw, err := json.Marshal(tools)
			if err != nil {
				t.Fatal(err)
			}
			got = string(raw)
		}
		if got != tt.want {
			t.Errorf("turn %d: tools %s, want %s", i, got, tt.want)
		}
		h.Append(row, p, "ok", nil)
	}
}

// Rows that are complete neither read nor extend a history.
func TestWholeRowsPassOverHistory(t *testing.T) {
	b := newBuilder(t, Options{})
	var h History
	row := deltaRow(`[{"role":"user","content":"x"}]`)
	h.Append(row, build(t, b, 0, row, &h), "y", nil)
	for _, row := range []*mooncake.Row{
		messagesRow(`[{"role":"user","content":"whole"}]`),
		{Messages: json.RawMessage(`[{"role":"user","content":"whole"}]`), MessageMode: "history"},
		{Payload: json.RawMessage(`{"messages":[{"role":"user","content":"whole"}]}`)},
	} {
		before := len(h.parts)
		p := build(t, b, 1, row, &h)
		if got := content(t, p.Request); got != "whole" || p.Request.KeepReply {
			t.Errorf("sent %q, keeps the reply %v", got, p.Request.KeepReply)
		}
		h.Append(row, p, "reply", nil)
		if len(h.parts) != before {
			t.Error("the history grew")
		}
	}
}

func TestDeltaErrors(t *testing.T) {
	row := lengthRow(40, 1, 1, 2, 3)
	ids := newBuilder(t, Options{Endpoint: Completions, Form: Tokens, BlockSize: 16})
	var h History
	h.Append(row, build(t, ids, 0, row, &h), "reply", nil)
	for _, next := range []*mooncake.Row{row, textRow("x")} {
		if _, err := ids.Build(1, next, &h); !errors.Is(err, ErrRow) || !strings.Contains(err.Error(), "words") {
			t.Errorf("a reply before token ids: %v", err)
		}
	}
	withMessages := deltaRow(`[{"role":"user","content":"x"}]`)
	withMessages.Extra = json.RawMessage(`{"messages":[]}`)
	if _, err := newBuilder(t, Options{}).Build(0, withMessages, &History{}); !errors.Is(err, ErrRow) {
		t.Errorf("extra replaces a session's messages: %v", err)
	}
}

func TestHistoryIsBounded(t *testing.T) {
	b := newBuilder(t, Options{})
	var h History
	row := textRow("x")
	reply := strings.Repeat("y", MaxHistory/4)
	turns := 0
	for ; turns < 10; turns++ {
		p, err := b.Build(int64(turns), row, &h)
		if err != nil {
			if !errors.Is(err, ErrHistoryFull) {
				t.Fatal(err)
			}
			break
		}
		h.Append(row, p, reply, nil)
	}
	if turns != 4 {
		t.Errorf("%d turns of a quarter of the bound were taken, want 4: three fit, the fourth's reply does not", turns)
	}
	if h.parts != nil {
		t.Error("a session that cannot continue keeps its conversation")
	}
	h.Append(row, Prompt{turn: []part{{raw: []byte("x")}}}, "more", nil)
	if h.parts != nil {
		t.Error("a full history took a turn")
	}
}
