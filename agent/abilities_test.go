// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/moonloop/moonloop/agent/report"
)

// TestVocabulary: prompts consist of token ids of the engine's vocabulary. If the vocabulary has too few ids, the run ends before the first
// row, and the error says what to do.
func TestVocabulary(t *testing.T) {
	rows := []string{
		`{"timestamp": 0, "input_length": 600, "output_length": 2, "hash_ids": [0, 1]}`,
		`{"timestamp": 1, "input_length": 700, "output_length": 2, "hash_ids": [0, 2]}`,
	}
	for _, tt := range []struct {
		last, from, to int // the vocabulary's last id; the first and the last id that prompts use
		asked          int // requests before the rows
	}{
		{0, 10000, 14095, 1},
		{14095, 10000, 14095, 1},
		{14094, 3584, 7679, 2},
		{8191, 3584, 7679, 2},
		{4095, 1792, 3839, 3},
		{2047, 1000, 2023, 4},
		{1023, 448, 959, 5},
		{511, 224, 479, 6},
		{255, 112, 239, 7},
		{127, 32, 95, 8},
	} {
		e := &talker{last: tt.last}
		rep, results, _ := e.replay(t, Config{Prompt: ids}, rows)
		for i, want := range []int64{600, 700} {
			seen := make(map[string]bool)
			for _, token := range e.prompts[int64(i)] {
				id, err := strconv.Atoi(token)
				if err != nil || id < tt.from || id > tt.to {
					t.Fatalf("a vocabulary of %d: id %q, want %d to %d", tt.last+1, token, tt.from, tt.to)
				}
				seen[token] = true
			}
			if r := results[i].Result; r.Usage.Prompt != want || r.Prompt != "equal" || len(seen) < 50 {
				t.Errorf("a vocabulary of %d: row %d has %d tokens, %d different ones, want %d", tt.last+1, i, r.Usage.Prompt, len(seen), want)
			}
		}
		if a, b := e.prompts[0], e.prompts[1]; len(a) < 513 || !slices.Equal(a[:512], b[:512]) || slices.Equal(a[512:523], b[512:523]) {
			t.Errorf("a vocabulary of %d: the shared block is not shared, or the others are", tt.last+1)
		}
		if got := rep.Run.TokenIDs; got == nil || got.First != tt.from || got.Last != tt.to || rep.Run.Words != nil {
			t.Errorf("the report says %+v, want %d to %d", got, tt.from, tt.to)
		}
		if n := e.paths["/v1/completions"] - len(rows); n != tt.asked {
			t.Errorf("a vocabulary of %d: %d requests before the rows, want %d", tt.last+1, n, tt.asked)
		}
	}
	tiny := &talker{last: 63}
	trace := filepath.Join(t.TempDir(), "trace.jsonl")
	if err := os.WriteFile(trace, []byte(rows[0]+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := Run(t.Context(), Config{Trace: Trace{Name: trace}, Target: Target{URL: tiny.start(t)}, Prompt: ids, RunID: "run"})
	if err == nil || !strings.Contains(err.Error(), "it accepts no token ids from which prompts could be made, not even 32 to 95: its vocabulary is smaller; --prompt=words sends words") {
		t.Errorf("a vocabulary of 64: %v", err)
	}
	if len(tiny.prompts) > 0 {
		t.Error("rows were sent nevertheless")
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
		{700, 0, "2 rows need more tokens than the engine's context of 700 has (max_model_len; n_ctx of a slot in llama.cpp), prompt and reply together (line 2: 650 + 51; line 3: 701 + 1)"},
		{700, 50, "1 row needs more tokens than the engine's context of 700 has (max_model_len; n_ctx of a slot in llama.cpp), prompt and reply together (line 3: 701 + 1)"},
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

// TestContextOfASlot: llama.cpp states the context of a slot, its only model has any name, and a model's training says nothing.
func TestContextOfASlot(t *testing.T) {
	const props = `{"default_generation_settings":{"n_ctx":700},"total_slots":2}`
	for _, tt := range []struct {
		what, models, props string
		context             bool // of 700
	}{
		{"stated", `{"data":[{"id":"m","owned_by":"llamacpp","meta":{"n_ctx":700,"n_ctx_train":32768}}]}`, "", true},
		{"under another name", `{"data":[{"id":"m.gguf","owned_by":"llamacpp","meta":{"n_ctx":700,"n_ctx_train":32768}}]}`, "", true},
		{"one of two models", `{"data":[{"id":"m","owned_by":"llamacpp","meta":{"n_ctx":700}},{"id":"n","owned_by":"llamacpp","meta":{"n_ctx":9000}}]}`, "", true},
		{"the other one", `{"data":[{"id":"m","owned_by":"llamacpp","meta":{"n_ctx":9000}},{"id":"n","owned_by":"llamacpp","meta":{"n_ctx":700}}]}`, "", false},
		{"of an older version", `{"data":[{"id":"m","owned_by":"llamacpp","meta":{"n_ctx_train":32768}}]}`, props, true},
		{"training only", `{"data":[{"id":"m","owned_by":"llamacpp","meta":{"n_ctx_train":700}}]}`, "", false},
		{"not loaded", `{"data":[{"id":"m","owned_by":"llamacpp"}]}`, props, false},
		{"of another engine", `{"data":[{"id":"m","owned_by":"us","meta":"n_ctx"}]}`, props, false},
	} {
		e := &talker{models: tt.models, props: tt.props}
		rep, _, _ := e.replay(t, Config{Target: Target{Model: "m"}}, []string{`{"timestamp": 0, "input_length": 650, "output_length": 51, "hash_ids": [0, 1]}`})
		const want = "1 row needs more tokens than the engine's context of 700 has "
		if got := slices.ContainsFunc(rep.Warnings, func(s string) bool { return strings.HasPrefix(s, want) }); got != tt.context {
			t.Errorf("%s: %q", tt.what, rep.Warnings)
		}
	}
}

// TestEngineBlock: the prediction uses the size of the engine's blocks, which comes from its metrics, from the flag, or from its replies.
func TestEngineBlock(t *testing.T) {
	// One prompt that grows by 20 tokens a row: its hits can be any multiple of the block size.
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
		block int // the block size in the engine's metrics
		flag  int
		want  int64
		exact int // minimum number of requests whose hits equal the prediction
	}{
		{"metrics", 32, 0, 32, 38},
		{"the flag", 0, 16, 16, 38},
		{"neither: the trace's finest", 0, 0, 16, 38},
	} {
		e := &talker{block: tt.block}
		rep, _, _ := e.replay(t, Config{Prompt: ids, Schedule: Schedule{FileOrder: true}, Target: Target{CacheBlock: tt.flag}}, lines)
		c := rep.Figures().Cache
		if c.Block != tt.want || c.Equal < int64(tt.exact) || c.Equal+c.Within+c.Less+c.More != 40 || c.Less+c.More > 0 {
			t.Errorf("%s: blocks of %d, %d equal, %d within a block, %d less, %d more", tt.name, c.Block, c.Equal, c.Within, c.Less, c.More)
		}
	}
	// Without a metric or a flag, the size is learned from the first replies.
	e := &talker{block: 32, mute: true}
	rep, _, _ := e.replay(t, Config{Prompt: ids, Schedule: Schedule{FileOrder: true}}, lines)
	if c := rep.Figures().Cache; c.Block != 32 || c.Equal < 20 || c.Less == 0 {
		t.Errorf("learned: blocks of %d, %d equal, %d less", c.Block, c.Equal, c.Less)
	}
	// With a wrong flag, the prediction and the engine differ.
	e = &talker{block: 64}
	rep, _, _ = e.replay(t, Config{Prompt: ids, Schedule: Schedule{FileOrder: true}, Target: Target{CacheBlock: 16}}, lines)
	if c := rep.Figures().Cache; c.Less == 0 || c.LessTokens == 0 {
		t.Errorf("with a wrong flag everything is as predicted: %+v", c)
	}
	var table strings.Builder
	if err := rep.Table(&table, report.Width, false); err != nil || !strings.Contains(table.String(), "by request, in blocks of 16:") {
		t.Errorf("%v\n%s", err, &table)
	}
}
