// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package mooncake

import (
	"encoding/json"
	"strings"
	"testing"
)

func TestSessionMode(t *testing.T) {
	ids := func(session string, n int64, ids ...uint64) *Row {
		return &Row{SessionID: session, InputLength: Some(n), HashIDs: ids}
	}
	messages := func(mode string) *Row {
		return &Row{SessionID: "s", Messages: json.RawMessage(`[{"role":"user"}]`), MessageMode: mode}
	}
	for name, test := range map[string]struct {
		rows []*Row
		want SessionMode
		text string
	}{
		"no sessions":      {[]*Row{ids("", 512, 1), ids("", 1024, 1, 2)}, SessionNone, "no session has more than one row"},
		"sessions of one":  {[]*Row{ids("a", 512, 1), ids("b", 1024, 1, 2)}, SessionNone, "no session has more than one row"},
		"turns that grow":  {[]*Row{ids("a", 700, 1, 2), ids("a", 1600, 1, 3, 4, 5)}, SessionFull, "1 later turn begins with all full blocks of the turn before"},
		"turns that fork":  {[]*Row{ids("a", 1024, 1, 2), ids("a", 1024, 1, 3)}, SessionFull, "1 later turn begins with some blocks of the turn before, then differ"},
		"new blocks only":  {[]*Row{ids("a", 1024, 1, 2), ids("a", 512, 3), ids("a", 512, 4)}, SessionDelta, "2 later turns begin with new blocks only"},
		"interleaved":      {[]*Row{ids("a", 1024, 1, 2), ids("b", 1024, 7, 8), ids("a", 1536, 1, 2, 3), ids("b", 1536, 7, 8, 9)}, SessionFull, "2 sessions with more than one row: 2 later turns"},
		"both":             {[]*Row{ids("a", 512, 1), ids("a", 1024, 1, 2), ids("b", 512, 3), ids("b", 512, 4)}, SessionUnknown, "it takes a person"},
		"blocks displaced": {[]*Row{ids("a", 1024, 1, 2), ids("a", 1024, 9, 2)}, SessionUnknown, "but not from the beginning"},
		"lengths only":     {[]*Row{ids("a", 512), ids("a", 512)}, SessionUnknown, "nothing to compare"},
		"partial block":    {[]*Row{ids("a", 100, 1), ids("a", 600, 2, 3)}, SessionUnknown, "nothing to compare"},
		"history":          {[]*Row{messages(""), messages("history")}, SessionFull, "messages with the whole conversation"},
		"delta":            {[]*Row{messages("delta"), messages("delta")}, SessionDelta, "messages with message_mode delta"},
		"payload":          {[]*Row{{SessionID: "s", Payload: json.RawMessage("{}")}, {SessionID: "s", Payload: json.RawMessage("{}")}}, SessionFull, "whole bodies"},
		"text":             {[]*Row{{SessionID: "s", TextInput: Some("a")}, {SessionID: "s", TextInput: Some("b")}}, SessionDelta, "text_input"},
	} {
		t.Run(name, func(t *testing.T) {
			d := NewSessionDetector(0, 0)
			for _, r := range test.rows {
				d.Add(r)
			}
			got, text := d.Mode()
			if got != test.want || !strings.Contains(text, test.text) {
				t.Errorf("%s: %s\nwant %s: ...%s...", got, text, test.want, test.text)
			}
		})
	}
}

func TestSessionDetectorIsBounded(t *testing.T) {
	d := NewSessionDetector(0, 1)
	for _, s := range []string{"a", "b", "b", "a"} {
		d.Add(&Row{SessionID: s, InputLength: Some[int64](512), HashIDs: []uint64{1}})
	}
	if mode, text := d.Mode(); mode != SessionFull || !strings.Contains(text, "2 rows of further sessions not looked at") {
		t.Errorf("%s: %s", mode, text)
	}
}

func TestParseSessionMode(t *testing.T) {
	for s, want := range map[string]SessionMode{"full": SessionFull, "delta": SessionDelta, "": SessionUnknown} {
		if got, err := ParseSessionMode(s); err != nil || got != want {
			t.Errorf("%q: %s, %v", s, got, err)
		}
	}
	for _, s := range []string{"cumulative", "none", "FULL"} {
		if _, err := ParseSessionMode(s); err == nil {
			t.Errorf("%q was accepted", s)
		}
	}
	for _, m := range []SessionMode{SessionUnknown, SessionFull, SessionDelta, SessionNone} {
		var back SessionMode
		b, err := m.MarshalText()
		if err == nil {
			err = back.UnmarshalText(b)
		}
		if err != nil || back != m {
			t.Errorf("%s: %s, %v", m, back, err)
		}
	}
}
