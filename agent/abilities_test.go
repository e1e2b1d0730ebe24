// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/moonloop/moonloop/agent/prompt"
)

// TestVocabulary: token ids that the engine's vocabulary lacks end the run before the first row, with what to do; where it has
// them, or cannot answer, nothing is said.
func TestVocabulary(t *testing.T) {
	row := `{"timestamp": 0, "input_length": 600, "output_length": 2, "hash_ids": [0, 1]}`
	run := func(e *talker, cfg Config) error {
		trace := filepath.Join(t.TempDir(), "trace.jsonl")
		if err := os.WriteFile(trace, []byte(row+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		cfg.Trace.Name, cfg.Target.URL, cfg.RunID = trace, e.start(t), "run"
		_, err := Run(t.Context(), cfg)
		return err
	}
	small := &talker{last: 8191}
	err := run(small, Config{Prompt: ids})
	if err == nil || !strings.Contains(err.Error(), "it does not take the token ids 10000 to 14095 that prompts are made of: its vocabulary has fewer; --prompt=words sends words") {
		t.Errorf("a vocabulary of 8,192: %v", err)
	}
	if len(small.prompts) > 0 {
		t.Error("rows were sent all the same")
	}
	if err := run(&talker{last: 8191}, Config{Prompt: Prompt{Endpoint: prompt.Completions, Form: prompt.Words}}); err != nil {
		t.Errorf("words need no ids: %v", err)
	}
	if err := run(&talker{last: prompt.LastToken}, Config{Prompt: ids}); err != nil {
		t.Errorf("a vocabulary that has them: %v", err)
	}
}

// TestContext: rows that the engine's context cannot hold are named before the first is sent.
func TestContext(t *testing.T) {
	lines := []string{
		`{"timestamp": 0, "input_length": 600, "output_length": 100, "hash_ids": [0, 1]}`,
		`{"timestamp": 1, "input_length": 650, "output_length": 51, "hash_ids": [0, 2]}`,
		`{"timestamp": 2, "input_length": 701, "output_length": 1, "hash_ids": [0, 3]}`,
	}
	for _, tt := range []struct {
		context int
		cap     int64
		want    string
	}{
		{700, 0, "2 rows need more tokens than the engine's context of 700 has (max_model_len), prompt and reply together (line 2: 650 + 51; line 3: 701 + 1)"},
		{700, 50, "1 row needs more tokens than the engine's context of 700 has (max_model_len), prompt and reply together (line 3: 701 + 1)"},
		{702, 0, ""},
		{0, 0, ""},
	} {
		e := &talker{context: tt.context}
		var told []string
		rep, _, _ := e.replay(t, Config{
			Prompt: Prompt{OutputCap: tt.cap}, Warn: func(s string) {
				if len(e.prompts) == 0 {
					told = append(told, s)
				}
			},
		}, lines)
		if got := strings.Join(told, "\n"); !strings.HasPrefix(got, tt.want) || tt.want == "" && strings.Contains(got, "max_model_len") {
			t.Errorf("context %d, cap %d: %q, want %q", tt.context, tt.cap, got, tt.want)
		}
		if tt.want != "" && !slices.ContainsFunc(rep.Warnings, func(s string) bool { return strings.HasPrefix(s, tt.want) }) {
			t.Errorf("not in the report: %q", rep.Warnings)
		}
	}
}

// TestEngineBlock: the prediction counts the engine's blocks: by its metrics, by the flag, by its replies.
func TestEngineBlock(t *testing.T) {
	// One prompt that grows by 20 tokens a row: its hits are any multiple of the block.
	var lines []string
	for i := range 40 {
		n := 100 + 20*i
		whole := n / fineBlock
		var ids []string
		for k := range n/512 + 1 {
			id := k
			if k == n/512 {
				id = 100 + i
			}
			ids = append(ids, fmt.Sprint(id))
		}
		ranges := fmt.Sprintf("[0, %d]", whole)
		if n%fineBlock > 0 {
			ranges += fmt.Sprintf(", [%d, 1]", 1000+i)
		}
		lines = append(lines, fmt.Sprintf(`{"timestamp": %d, "input_length": %d, "output_length": 1, "hash_ids": [%s], "hash_ranges": [%s]}`, i, n, strings.Join(ids, ", "), ranges))
	}
	for _, tt := range []struct {
		name  string
		block int // in the metrics
		flag  int
		want  int64
		exact int // requests that are equal at least
	}{
		{"metrics", 32, 0, 32, 38},
		{"the flag", 0, 16, 16, 38},
		{"nobody: the trace's finest", 0, 0, 16, 38},
	} {
		e := &talker{block: tt.block}
		rep, _, _ := e.replay(t, Config{Prompt: ids, Schedule: Schedule{FileOrder: true}, Target: Target{CacheBlock: tt.flag}}, lines)
		c := rep.Figures().Cache
		if c.Block != tt.want || c.Equal < int64(tt.exact) || c.Equal+c.Within+c.Less+c.More != 40 || c.Less+c.More > 0 {
			t.Errorf("%s: blocks of %d, %d equal, %d within a block, %d less, %d more", tt.name, c.Block, c.Equal, c.Within, c.Less, c.More)
		}
	}
	// Where nobody says it, the replies do, from some on.
	e := &talker{block: 32, mute: true}
	rep, _, _ := e.replay(t, Config{Prompt: ids, Schedule: Schedule{FileOrder: true}}, lines)
	if c := rep.Figures().Cache; c.Block != 32 || c.Equal < 20 || c.Less == 0 {
		t.Errorf("learned: blocks of %d, %d equal, %d less", c.Block, c.Equal, c.Less)
	}
	// A wrong flag shows.
	e = &talker{block: 64}
	rep, _, _ = e.replay(t, Config{Prompt: ids, Schedule: Schedule{FileOrder: true}, Target: Target{CacheBlock: 16}}, lines)
	if c := rep.Figures().Cache; c.Less == 0 || c.LessTokens == 0 {
		t.Errorf("with a wrong flag all is as predicted: %+v", c)
	}
	var table strings.Builder
	if err := rep.Table(&table, false); err != nil || !strings.Contains(table.String(), "by request, in blocks of 16:") {
		t.Errorf("%v\n%s", err, &table)
	}
}
