// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/moonloop/moonloop/agent/prompt"
	"github.com/moonloop/moonloop/internal/simulator"
	"github.com/moonloop/moonloop/mooncake"
)

// The traces below have the shapes that the documentation of other replay tools shows. Each must replay, and the engine's own record must
// show exactly what should have been sent.

func TestExampleThreeRowsSharingBlocks(t *testing.T) {
	// Two requests with the same blocks; the last block of each is partial. A tool that stores a partial block under its id, or counts
	// shared blocks as full ones, fails on the second row.
	lines := []string{
		`{"timestamp": 0, "input_length": 655, "output_length": 52, "hash_ids": [46, 47]}`,
		`{"timestamp": 20, "input_length": 655, "output_length": 26, "hash_ids": [46, 47]}`,
		`{"timestamp": 40, "input_length": 1500, "output_length": 7, "hash_ids": [46, 50, 51]}`,
	}
	for _, tc := range []struct {
		name     string
		endpoint prompt.Endpoint
		cached   []int
	}{
		// The template comes before the first block, so the engine's block borders in a chat prompt are not the trace's. Shared blocks are cached
		// all the same.
		{"chat", prompt.Chat, []int{0, 512, 512}},
		{"completions with token ids", prompt.Completions, []int{0, 512, 512}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			e := newEngine(t, simulator.Config{})
			r := e.replay(t, Config{Prompt: Prompt{Endpoint: tc.endpoint}, Trace: Trace{Sessions: mooncake.SessionUnknown}}, lines...)
			if r.err != nil || len(r.sent) != 3 {
				t.Fatalf("error %v, %d requests", r.err, len(r.sent))
			}
			for i, want := range []struct{ in, out int }{{655, 52}, {655, 26}, {1500, 7}} {
				got := r.sent[i]
				if got.PromptTokens != want.in || got.Request.MaxTokens != want.out || got.OutputTokens != want.out || got.CachedTokens != tc.cached[i] {
					t.Errorf("row %d: %d tokens in, at most %d and in fact %d out, %d cached; want %d, %d, %d, %d", i,
						got.PromptTokens, got.Request.MaxTokens, got.OutputTokens, got.CachedTokens, want.in, want.out, want.out, tc.cached[i])
				}
				if !got.Request.IgnoreEOS || got.Request.MinTokens != want.out || !got.Request.Stream {
					t.Errorf("row %d: the reply's length is not enforced: %+v", i, got.Request)
				}
				if res := r.results[i].Result; res.Prompt != "equal" || res.Output != "equal" || res.Usage.Cached != int64(tc.cached[i]) {
					t.Errorf("row %d: result %+v", i, res)
				}
			}
			if string(r.sent[0].Body) == "" || r.sent[0].PromptHash != r.sent[1].PromptHash {
				t.Error("rows with the same ids and length have different prompts")
			}
			if predicted := *r.results[1].Result.Predicted; predicted != 512 {
				t.Errorf("predicted %d cached tokens for the repeated row, want its full block", predicted)
			}
		})
	}
}

func TestExampleThreeRowsSharingNothing(t *testing.T) {
	e := newEngine(t, simulator.Config{})
	r := e.replay(t, Config{Prompt: Prompt{Endpoint: prompt.Completions}},
		`{"timestamp": 0, "input_length": 1030, "output_length": 2, "hash_ids": [1, 2, 3]}`,
		`{"timestamp": 5, "input_length": 1030, "output_length": 2, "hash_ids": [4, 5, 6]}`,
		`{"timestamp": 9, "input_length": 1030, "output_length": 2}`)
	if r.err != nil {
		t.Fatal(r.err)
	}
	for i, rec := range r.sent {
		if rec.PromptTokens != 1030 || rec.CachedTokens != 0 {
			t.Errorf("row %d: %d tokens, %d cached", i, rec.PromptTokens, rec.CachedTokens)
		}
	}
	if len(r.other) != 1 || r.other[0].PromptTokens != 2 {
		t.Errorf("%d requests in addition to the rows: want one: token ids need no calibration, only a check that the vocabulary has them", len(r.other))
	}
}

func TestExampleTextInputWithConcurrencyAndWarmup(t *testing.T) {
	virtually(t, simulator.Config{}, func(t bubble, e engine) {
		r := e.replay(t, Config{Schedule: Schedule{Concurrency: 2, Warmup: 1}, Prompt: Prompt{}},
			`{"text_input": "What is the capital of France?", "output_length": 5}`,
			`{"text_input": "Name two \"prime\" numbers.", "output_length": 6}`,
			`{"text_input": "Zähle bis drei.", "output_length": 7}`)
		if r.err != nil {
			t.Fatal(r.err)
		}
		if len(r.warmups) != 1 || len(r.sent) != 3 {
			t.Fatalf("%d warm-up and %d other requests, want 1 and 3", len(r.warmups), len(r.sent))
		}
		for i, want := range []string{"What is the capital of France?", `Name two "prime" numbers.`, "Zähle bis drei."} {
			b := body(t, r.sent[i])
			if len(b.Messages) != 1 || b.Messages[0].Role != "user" || b.Messages[0].Content != want {
				t.Errorf("row %d: messages %+v, want one of the user: %q", i, b.Messages, want)
			}
			if got := r.sent[i].Request.MaxTokens; got != 5+i {
				t.Errorf("row %d: at most %d tokens, want %d", i, got, 5+i)
			}
		}
		if r.report.Figures().Rows.Served != 3 {
			t.Errorf("the figures count %d rows, warm-up must not be among them", r.report.Figures().Rows.Served)
		}
		for _, rec := range r.sent {
			if rec.Headers < r.warmups[0].Ended {
				t.Error("a row was sent before the warm-up had ended")
			}
		}
		if busiest := mostAtOnce(r.sent); busiest > 2 {
			t.Errorf("%d requests at once, the cap is 2", busiest)
		}
	})
}

// mostAtOnce returns the greatest number of requests that the engine had at one time.
func mostAtOnce(recs []*simulator.Record) int {
	most := 0
	for _, a := range recs {
		n := 0
		for _, b := range recs {
			if b.Headers <= a.Headers && a.Headers < b.Ended {
				n++
			}
		}
		most = max(most, n)
	}
	return most
}

func TestExampleMessagesInASession(t *testing.T) {
	virtually(t, simulator.Config{}, func(t bubble, e engine) {
		r := e.replay(t, Config{Prompt: Prompt{}},
			`{"session_id": "conv-1", "timestamp": 0, "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}], "output_length": 4}`,
			`{"session_id": "conv-1", "delay": 30, "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello."}, {"role": "user", "content": "Bye"}], "output_length": 3}`)
		if r.err != nil {
			t.Fatal(r.err)
		}
		var roles [][]string
		for _, rec := range r.sent {
			var turn []string
			for _, m := range body(t, rec).Messages {
				turn = append(turn, m.Role+": "+m.Content.(string))
			}
			roles = append(roles, turn)
			if got := rec.Header.Get("X-Session-Id"); got != "conv-1" {
				t.Errorf("session header %q", got)
			}
		}
		want := [][]string{
			{"system: Be brief.", "user: Hi"},
			// The recorded reply, not the live one: the row is the whole conversation.
			{"system: Be brief.", "user: Hi", "assistant: Hello.", "user: Bye"},
		}
		if d := cmp.Diff(want, roles); d != "" {
			t.Errorf("messages (-want +got):\n%s", d)
		}
		if gap := r.sent[1].Headers - r.sent[0].Ended; gap != 30*time.Millisecond {
			t.Errorf("the second turn came %v after the end of the first, its delay is 30 ms", gap)
		}
	})
}

func TestExampleMessagesWithTools(t *testing.T) {
	e := newEngine(t, simulator.Config{})
	const tools = `[{"type": "function", "function": {"name": "get_weather", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}}}]`
	const messages = `[{"role": "user", "content": "Weather in Oslo?"}, {"role": "assistant", "content": null, "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "get_weather", "arguments": "{\"city\": \"Oslo\"}"}}]}, {"role": "tool", "tool_call_id": "c1", "content": "rain"}]`
	r := e.replay(t, Config{Prompt: Prompt{}},
		`{"timestamp": 0, "messages": `+messages+`, "tools": `+tools+`, "output_length": 9, "extra": {"temperature": 0.25}}`)
	if r.err != nil {
		t.Fatal(r.err)
	}
	rec := r.sent[0]
	for name, want := range map[string]string{"messages": messages, "tools": tools} {
		if !strings.Contains(string(rec.Body), want) {
			t.Errorf("%s were not sent unchanged", name)
		}
	}
	if b := body(t, rec); b.Temperature == nil || *b.Temperature != 0.25 {
		t.Error("the row's extra field was not sent")
	}
	if rec.Request.Tools != 1 || rec.Request.MaxTokens != 9 || rec.Request.IgnoreEOS {
		t.Errorf("request %+v", rec.Request)
	}
}

func TestExampleMoreIDsThanTokens(t *testing.T) {
	line := `{"timestamp": 0, "input_length": 600, "output_length": 3, "hash_ids": [1, 2, 3, 4]}`
	e := newEngine(t, simulator.Config{})
	r := e.replay(t, Config{Prompt: Prompt{Endpoint: prompt.Completions}}, line,
		`{"timestamp": 1, "input_length": 600, "output_length": 3, "hash_ids": [1, 2]}`)
	if r.err != nil {
		t.Fatal(r.err)
	}
	if r.sent[0].PromptTokens != 600 || r.sent[0].PromptHash != r.sent[1].PromptHash {
		t.Errorf("%d tokens; the first two of the four ids make the prompt", r.sent[0].PromptTokens)
	}
	if !slices.ContainsFunc(r.report.Warnings, func(w string) bool { return strings.Contains(w, "more") && strings.Contains(w, "1") }) {
		t.Errorf("no warning about ids past the input length: %q", r.report.Warnings)
	}
	if r := e.replay(t, Config{Trace: Trace{Strict: true}, Prompt: Prompt{Endpoint: prompt.Completions}}, line); r.err == nil {
		t.Error("--strict accepts the row")
	}
}
