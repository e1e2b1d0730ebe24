// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package transform

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/moonloop/moonloop/mooncake"
)

// talk is two sessions, an agent of the first, a row without a session, and a graph.
const talk = `{"timestamp":0,"input_length":10,"output_length":1,"session_id":"a","model":"x","observed":{"duration_ms":40}}
{"timestamp":50,"input_length":11,"output_length":1,"session_id":"a/b","model":"y"}
{"timestamp":60,"input_length":12,"output_length":1,"model":"z"}
{"timestamp":100,"input_length":13,"output_length":1,"session_id":"c","model":"y"}
{"timestamp":250,"input_length":14,"output_length":9,"session_id":"a","model":"x"}
{"delay":70,"input_length":15,"output_length":1,"session_id":"a","model":"y"}
{"timestamp":400,"input_length":16,"output_length":1,"session_id":"a"}
{"timestamp":410,"input_length":17,"output_length":1,"session_id":"c","request_id":"p","wait_for":[]}
{"timestamp":500,"input_length":18,"output_length":1,"session_id":"c","wait_for":["p"],"delay":30,"tool_wait_ms":5}
`

// brief returns the input length, time, delay and model of each row.
func brief(rows []*mooncake.Row) string {
	var b strings.Builder
	for _, r := range rows {
		fmt.Fprintf(&b, "%d@", r.InputLength.V)
		if r.Timestamp.Set {
			fmt.Fprintf(&b, "%g", r.Timestamp.V)
		}
		if r.Delay.Set {
			fmt.Fprintf(&b, "+%g", r.Delay.V)
		}
		fmt.Fprintf(&b, "%s ", r.Model)
	}
	return strings.TrimSpace(b.String())
}

func TestTurns(t *testing.T) {
	for _, test := range []struct {
		name   string
		c      Config
		want   string
		effect string
	}{
		{"from the start of the turn before", Config{Turns: TurnsFromStart}, "10@0x 11@50y 12@60z 13@100y 14@+250x 15@+70y 16@400 17@410 18@500+30", "1 turns follow"},
		{"from the end of the turn before", Config{Turns: TurnsFromEnd}, "10@0x 11@50y 12@60z 13@100y 14@+210x 15@+70y 16@400 17@410 18@500+30", "0 of them without"},
		{"at once", Config{Turns: TurnsAtOnce}, "10@0x 11@50y 12@60z 13@100y 14@+0x 15@+0y 16@+0 17@410 18@500", "4 turns follow"},
		{"a maximum delay", Config{Turns: TurnsFromStart, MaxDelay: 60 * time.Millisecond}, "10@0x 11@50y 12@60z 13@100y 14@+60x 15@+60y 16@400 17@410 18@500+30", "2 delays shortened, by 200ms"},
		{"half the time", Config{Turns: TurnsFromStart, TimeScale: 0.5}, "10@0x 11@25y 12@30z 13@50y 14@+125x 15@+35y 16@200 17@205 18@250+15", ""},
		{"the first conversations", Config{Conversations: 2}, "10@0x 11@50y 12@60z 14@250x 15@+70y 16@400", "9 rows → 6: 3 of later conversations"},
		{"a short context", Config{MaxContext: 16}, "10@0x 11@50y 12@60z 13@100y 15@+70y", "9 rows → 5: 4 of a longer context"},
		{"other models", Config{ToModels: []string{"A", "B"}}, "10@0A 11@50B 12@60A 13@100A 14@250A 15@+70B 16@400B 17@410A 18@500+30B", "in order of appearance"},
		{"one model", Config{ToModels: []string{"A"}}, "10@0A 11@50A 12@60A 13@100A 14@250A 15@+70A 16@400A 17@410A 18@500+30A", ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			rows, _, report := transformed(t, test.c, source([]byte(talk), 0))
			if diff := cmp.Diff(test.want, brief(rows)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if s := report.Steps[0]; !strings.Contains(s.Effect, test.effect) {
				t.Errorf("%s: %s", s.Name, s.Effect)
			}
		})
	}
	// Two copies have separate turns, whose times move together.
	one := `{"timestamp":0,"input_length":10,"output_length":1,"session_id":"a"}
{"timestamp":5000,"input_length":11,"output_length":1,"session_id":"a"}
{"timestamp":9000,"input_length":12,"output_length":1}
`
	rows, _, _ := transformed(t, Config{Turns: TurnsFromStart, Scale: 2, Shift: 2 * time.Second}, source([]byte(one), 0))
	for _, row := range rows {
		if row.InputLength.V == 11 && row.Delay.V != 5000 {
			t.Errorf("a turn 5 s after the previous one has another delay in a copy: %s", brief(rows))
		}
	}
	for _, bad := range []Config{{Turns: "later"}, {MaxDelay: -1}, {MaxContext: -1}, {Conversations: -1}, {ToModels: []string{""}}} {
		if bad.Validate() == nil {
			t.Errorf("%+v is accepted", bad)
		}
	}
}
