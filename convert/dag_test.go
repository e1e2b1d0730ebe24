// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"errors"
	"strings"
	"testing"

	"github.com/moonloop/moonloop/mooncake"
)

// TestBranchingFaults: conversations that cannot become a graph of rows are refused, with the line of the conversation at fault.
func TestBranchingFaults(t *testing.T) {
	const said = `"messages": [{"role": "user", "content": "Go on."}]`
	talk := func(id, more string) string {
		return `{"session_id": "` + id + `", "turns": [{` + said + more + `}]}` + "\n"
	}
	for name, tc := range map[string]struct {
		file string
		line int64
		want string
	}{
		"an unknown conversation":     {talk("a", "") + talk("b", `, "spawns": ["c"]`), 2, `starts the conversation "c", which the file does not have`},
		"a name of two conversations": {talk("a", "") + talk("a", ""), 2, "is that of line 1"},
		"a cycle":                     {talk("r", `, "spawns": ["a"]`) + talk("a", `, "spawns": ["b"]`) + talk("b", `, "spawns": ["a"]`), 2, "starts itself"},
		"no conversation is first":    {talk("a", `, "spawns": ["b"]`) + talk("b", `, "spawns": ["a"]`), 1, "nothing comes first"},
		"forked twice":                {talk("a", `, "forks": ["c"]`) + talk("b", `, "forks": ["c"]`) + talk("c", ""), 2, "which line 1 does, too"},
		"a fork in the middle":        {`{"session_id": "a", "turns": [{` + said + `, "forks": ["b"]}, {` + said + `}]}` + "\n" + talk("b", ""), 1, `"background": true`},
		"a join after the last turn":  {talk("a", `, "spawns": [{"children": ["b"], "join_at": 7}]`) + talk("b", ""), 1, "turn 7 waits"},
		"a join at an earlier turn":   {talk("a", `, "spawns": [{"children": ["b"], "join_at": 0}]`) + talk("b", ""), 1, "must be a later turn"},
		"no turns":                    {`{"session_id": "a", "turns": []}`, 1, "turns"},
		"no name":                     {`{"turns": [{` + said + `}]}`, 1, "session_id"},
		"no messages":                 {`{"session_id": "a", "turns": [{"max_tokens": 3}]}`, 1, "messages"},
		"messages without a role":     {`{"session_id": "a", "turns": [{"messages": [{"content": "x"}]}]}`, 1, "messages"},
		"no rounds":                   {`{"session_id": "a", "orchestrator": true, "spawns": ["b"], "rounds": 0}` + "\n" + talk("b", ""), 1, "rounds"},
		"an orchestrator of nothing":  {`{"session_id": "a", "orchestrator": true}`, 1, "spawns"},
		"an orchestrator is forked":   {`{"session_id": "a", "orchestrator": true, "spawns": ["c"]}` + "\n" + talk("b", `, "forks": ["a"]`) + talk("c", ""), 2, "which has no turns"},
		"more turns than are allowed": {func() string {
			var b strings.Builder
			for i := range 24 {
				next := `, "spawns": ["` + string(rune('b'+i)) + `", "` + string(rune('b'+i)) + `"]`
				b.WriteString(talk(string(rune('a'+i)), next))
			}
			return b.String() + talk("y", "")
		}(), 0, "more than"},
	} {
		w := writeTo(new(strings.Builder))
		_, err := Convert(t.Context(), Options{Format: aiperfDAG.Format, Prompts: PromptsKeep}, w.sink, text("dag.jsonl", tc.file))
		row, is := errors.AsType[*mooncake.RowError](err)
		if !is || row.File != "dag.jsonl" || tc.line > 0 && row.Line != tc.line || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v, want line %d: %s", name, err, tc.line, tc.want)
		}
	}
}
