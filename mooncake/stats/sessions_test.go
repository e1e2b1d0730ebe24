// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package stats

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/moonloop/moonloop/mooncake"
)

func TestSessionMode(t *testing.T) {
	ids := func(session string, n int64, ids ...uint64) *mooncake.Row {
		return &mooncake.Row{SessionID: session, InputLength: mooncake.Some(n), HashIDs: ids}
	}
	messages := func(mode string) *mooncake.Row {
		return &mooncake.Row{SessionID: "s", Messages: json.RawMessage(`[{"role":"user"}]`), MessageMode: mode}
	}
	for name, test := range map[string]struct {
		rows []*mooncake.Row
		want mooncake.SessionMode
		text string
	}{
		"no sessions":      {[]*mooncake.Row{ids("", 512, 1), ids("", 1024, 1, 2)}, mooncake.SessionNone, "no session has more than one row"},
		"sessions of one":  {[]*mooncake.Row{ids("a", 512, 1), ids("b", 1024, 1, 2)}, mooncake.SessionNone, "no session has more than one row"},
		"turns that grow":  {[]*mooncake.Row{ids("a", 700, 1, 2), ids("a", 1600, 1, 3, 4, 5)}, mooncake.SessionFull, "1 later turn begins with all full blocks of the turn before"},
		"turns that fork":  {[]*mooncake.Row{ids("a", 1024, 1, 2), ids("a", 1024, 1, 3)}, mooncake.SessionFull, "1 later turn begins with only some blocks of the turn before"},
		"new blocks only":  {[]*mooncake.Row{ids("a", 1024, 1, 2), ids("a", 512, 3), ids("a", 512, 4)}, mooncake.SessionDelta, "2 later turns begin with new blocks only"},
		"interleaved":      {[]*mooncake.Row{ids("a", 1024, 1, 2), ids("b", 1024, 7, 8), ids("a", 1536, 1, 2, 3), ids("b", 1536, 7, 8, 9)}, mooncake.SessionFull, "2 sessions with more than one row: 2 later turns"},
		"both modes":       {[]*mooncake.Row{ids("a", 512, 1), ids("a", 1024, 1, 2), ids("b", 512, 3), ids("b", 512, 4)}, mooncake.SessionUnknown, "the rows do not show whether"},
		"blocks displaced": {[]*mooncake.Row{ids("a", 1024, 1, 2), ids("a", 1024, 9, 2)}, mooncake.SessionUnknown, "but not from the beginning"},
		"lengths only":     {[]*mooncake.Row{ids("a", 512), ids("a", 512)}, mooncake.SessionUnknown, "nothing to compare"},
		"partial block":    {[]*mooncake.Row{ids("a", 100, 1), ids("a", 600, 2, 3)}, mooncake.SessionUnknown, "nothing to compare"},
		"history":          {[]*mooncake.Row{messages(""), messages("history")}, mooncake.SessionFull, "messages with the whole conversation"},
		"delta":            {[]*mooncake.Row{messages("delta"), messages("delta")}, mooncake.SessionDelta, "messages with message_mode delta"},
		"payload":          {[]*mooncake.Row{{SessionID: "s", Payload: json.RawMessage("{}")}, {SessionID: "s", Payload: json.RawMessage("{}")}}, mooncake.SessionFull, "whole bodies"},
		"text":             {[]*mooncake.Row{{SessionID: "s", TextInput: mooncake.Some("a")}, {SessionID: "s", TextInput: mooncake.Some("b")}}, mooncake.SessionDelta, "text_input"},
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
		d.Add(&mooncake.Row{SessionID: s, InputLength: mooncake.Some[int64](512), HashIDs: []uint64{1}})
	}
	if mode, text := d.Mode(); mode != mooncake.SessionFull || !strings.Contains(text, "not examined: 2 rows of further sessions") {
		t.Errorf("%s: %s", mode, text)
	}
}
