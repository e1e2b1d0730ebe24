// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package prompt

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/moonloop/moonloop/mooncake"
)

// TestPriority: of the priorities that a request could have, the first in the order that priority.go documents is sent.
func TestPriority(t *testing.T) {
	row := func(class string, priority ...int64) *mooncake.Row {
		r := textRow("hi")
		r.Class = class
		for _, n := range priority {
			r.Priority = mooncake.Some(n)
		}
		return r
	}
	extra := func(r *mooncake.Row, text string) *mooncake.Row {
		r.Extra = json.RawMessage(text)
		return r
	}
	classes := Priorities{"batch": 10, "urgent": -1}
	all := Priorities{"batch": 10, EveryClass: 5}
	for _, c := range []struct {
		why  string
		o    Options
		row  *mooncake.Row
		want string // the body's priority; empty: none
	}{
		{"none", Options{}, row("batch"), ""},
		{"the row's own", Options{}, row("", 3), "3"},
		{"the row's own, 0", Options{}, row("", 0), "0"},
		{"that of its class", Options{Priorities: classes}, row("batch"), "10"},
		{"that of its class, not its own", Options{Priorities: classes}, row("urgent", 3), "-1"},
		{"its own, if its class has none", Options{Priorities: classes}, row("chat", 3), "3"},
		{"none, if its class has none", Options{Priorities: classes}, row("chat"), ""},
		{"none, if it has no class", Options{Priorities: classes}, row(""), ""},
		{"that of every class", Options{Priorities: all}, row("chat", 3), "5"},
		{"that of every class, if it has no class", Options{Priorities: all}, row(""), "5"},
		{"that of its class, not that of every class", Options{Priorities: all}, row("batch"), "10"},
		{"a row of the class *", Options{Priorities: all}, row(EveryClass), "5"},
		{"the row's extra", Options{Priorities: classes}, extra(row("batch", 3), `{"priority":7}`), "7"},
		{"extra inputs", Options{ExtraInputs: json.RawMessage(`{"priority":8}`)}, row("batch", 3), "8"},
		{"the row's extra, not extra inputs", Options{ExtraInputs: json.RawMessage(`{"priority":8}`)}, extra(row("", 3), `{"priority":7}`), "7"},
		{"an engine that accepts none", Options{Profile: OpenAI}, row("batch", 3), ""},
		{"SGLang", Options{Profile: SGLang}, row("", 3), "3"},
		{"completions", Options{Endpoint: Completions, Priorities: classes}, row("batch"), "10"},
		{"responses", Options{Endpoint: Responses, Priorities: classes}, row("batch"), "10"},
		{"embeddings", Options{Endpoint: Embeddings, Priorities: classes}, row("batch"), "10"},
		{"messages", Options{Endpoint: Messages}, row("batch", 3), ""},
		{"generate", Options{Endpoint: Generate}, row("batch", 3), ""},
		{"a payload with its own priority", Options{Priorities: all}, &mooncake.Row{Class: "batch", Priority: mooncake.Some[int64](3), Payload: json.RawMessage(`{"prompt":"x","priority":2}`)}, "2"},
		{"a payload without a priority", Options{Priorities: all}, &mooncake.Row{Class: "batch", Payload: json.RawMessage(`{"prompt":"x"}`)}, ""},
	} {
		p := build(t, newBuilder(t, c.o), 0, c.row, nil)
		got := ""
		if n, stated := decoded(t, p.Request)["priority"]; stated {
			got = fmt.Sprint(n)
		}
		if got != c.want {
			t.Errorf("%s: %q, want %q", c.why, got, c.want)
		}
		if p.Priority.Set != (c.want != "") || p.Priority.Set && fmt.Sprint(p.Priority.V) != c.want {
			t.Errorf("%s: the prompt says %+v", c.why, p.Priority)
		}
	}
	for want, o := range map[string]Options{
		`profile "openai" accepts no priority on chat`:              {Profile: OpenAI, Priorities: classes},
		`profile "vllm" accepts no priority on messages`:            {Profile: VLLM, Endpoint: Messages, Priorities: classes},
		"extra inputs: their priority would be that of every class": {Priorities: classes, ExtraInputs: json.RawMessage(`{"priority":8}`)},
	} {
		if _, err := NewBuilder(o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

func TestParsePriorities(t *testing.T) {
	all, err := ParsePriorities("batch=10", "a=b=-2", "*=0")
	if err != nil || len(all) != 3 || all["batch"] != 10 || all["a=b"] != -2 || all[EveryClass] != 0 {
		t.Errorf("%v, %v", all, err)
	}
	for text, want := range map[string]string{
		"batch": "want CLASS=N", "=3": "want CLASS=N", "": "want CLASS=N", "batch=": "not an integer", "batch=high": "not an integer", "batch=1.5": "not an integer",
		"batch=9223372036854775808": "not an integer",
	} {
		if _, err := ParsePriorities(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
	if _, err := ParsePriorities("a=1", "b=2", "a=1"); err == nil || !strings.Contains(err.Error(), `the class "a" has two priorities`) {
		t.Error(err)
	}
}
