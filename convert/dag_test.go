// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"errors"
	"fmt"
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
		"a turn that waits for too many": {func() string {
			var all, ids strings.Builder
			for i := range mooncake.MaxWaitFor + 1 {
				all.WriteString(talk(fmt.Sprint("t", i), ""))
				fmt.Fprintf(&ids, `, "t%d"`, i)
			}
			return `{"session_id": "a", "orchestrator": true, "rounds": [{"spawns": [` + ids.String()[2:] + `]}, {"spawns": ["b"]}]}` + "\n" + talk("b", "") + all.String()
		}(), 2, "turn 0 waits for 1025 turns"},
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

// TestTooMuchToFollow: a small file cannot make the reader work for hours or fill the memory.
func TestTooMuchToFollow(t *testing.T) {
	const n = 2100
	var nodes, edges strings.Builder
	fmt.Fprint(&nodes, `{"kind": "tool_call", "id": "tool"}`)
	for i := range 2 * n {
		fmt.Fprintf(&nodes, `, {"kind": "llm_infer", "id": "r%d", "payload": {"input_tokens_total": 5, "output_tokens": 1, "kv_block_ids": []}}`, i)
		edge := `, {"from": "r%d", "to": "tool"}`
		if i >= n {
			edge = `, {"from": "tool", "to": "r%d"}`
		}
		fmt.Fprintf(&edges, edge, i)
	}
	const deep = 200
	for format, c := range map[Format]struct{ file, want string }{
		satf.Format: {
			`{"format": "satf", "format_version": "2.0.0", "time_base": "us", "block_size_tokens": 16, "sessions": [{"session_id": "s", "nodes": [` +
				nodes.String() + `], "edges": [` + edges.String()[2:] + `]}]}`,
			"edges of a session have more than 4194304 steps",
		},
		weka.Format: {
			`{"id": "s", "block_size": 64, "requests": [` + strings.Repeat(`{"type": "subagent", "agent_id": "a", "requests": [`, deep) + strings.Repeat(`]}`, deep) + `]}`,
			"subagents are in each other more than 32 times",
		},
	} {
		_, err := Convert(t.Context(), Options{Format: format}, writeTo(new(strings.Builder)).sink, text("f", c.file))
		if _, is := errors.AsType[*mooncake.RowError](err); !is || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %s", format, err, c.want)
		}
	}
}
