// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/moonloop/moonloop/internal/simulator"
)

// printed is an example of rows from the documentation of other tools, and what an engine gets, request by request in order of time: the
// number of prompt tokens if the prompt is generated, else the members of the body that the row gives.
type printed struct {
	name, rows string
	args       []string
	want       []string
	said       []string // in the report
}

// printedRows follow documentation of AIPerf (trace replay, trace benchmarking), vLLM (timed traces), Dynamo (data generator, agentic
// traces), FlexKV and AISBench, with prompts of our own.
var printedRows = []printed{
	{
		"rows of lengths and blocks", `
{"timestamp": 0, "input_length": 1200, "output_length": 52, "hash_ids": [0, 1, 2]}
{"timestamp": 5, "input_length": 1800, "output_length": 26, "hash_ids": [0, 3, 4, 5]}
{"timestamp": 9, "input_length": 1300, "output_length": 52, "hash_ids": [1, 4, 6]}
`, nil,
		[]string{"1200 tokens", "1800 tokens", "1300 tokens"},
		nil,
	},
	{
		"one row over several lines, with comments after its fields", `{
    "timestamp": 27482,        # milliseconds
    "input_length": 955,       # tokens
    "output_length": 52,       // tokens
    "hash_ids": [46, 47],      /* one for each block */
}
`, nil,
		[]string{"955 tokens"},
		[]string{"1 row spread over several lines", "1 row with comments", "1 row with extra commas"},
	},
	{
		"an array", `[
  {"timestamp": 0, "input_length": 600, "output_length": 2},
  {"timestamp": 3, "input_length": 700, "output_length": 2}
]`, nil, []string{"600 tokens", "700 tokens"}, []string{"2 rows in a JSON array"},
	},
	{
		"an array on one line", `[{"timestamp": 0, "input_length": 600, "output_length": 2}, {"timestamp": 3, "input_length": 700, "output_length": 2}]`,
		nil,
		[]string{"600 tokens", "700 tokens"},
		[]string{"1 row on the same line as the row before"},
	},
	{
		"texts without times", `
{"text_input": "Which river is the longest?", "output_length": 20}
{"text_input": "Explain tides in simple words.", "output_length": 30}
`, nil,
		[]string{`messages [{"content":"Which river is the longest?","role":"user"}]; no others`, `messages [{"content":"Explain tides in simple words.","role":"user"}]`},
		nil,
	},
	{
		"whole conversations", `
{"session_id": "s-1", "messages": [{"role": "user", "content": "Good day"}], "output_length": 5, "timestamp": 0}
{"session_id": "s-1", "messages": [{"role": "user", "content": "Good day"}, {"role": "assistant", "content": "To you, too."}, {"role": "user", "content": "Any news?"}], "output_length": 3, "timestamp": 20}
`, nil,
		[]string{
			`messages [{"content":"Good day","role":"user"}]; no others`,
			`messages [{"content":"Good day","role":"user"},{"content":"To you, too.","role":"assistant"},{"content":"Any news?","role":"user"}]`,
		},
		nil,
	},
	{
		"new turns with live replies", `
{"session_id": "s-1", "message_mode": "delta", "messages": [{"role": "system", "content": "Be kind."}, {"role": "user", "content": "Good day"}], "output_length": 2, "timestamp": 0}
{"session_id": "s-1", "message_mode": "delta", "messages": [{"role": "user", "content": "Any news?"}], "output_length": 2, "delay": 2}
`, nil,
		[]string{`roles system user; no others`, `roles system user assistant user`},
		nil,
	},
	{
		"tools", `{
  "messages": [
    {"role": "user", "content": "Is it raining?"}
  ],
  "tools": [
    {
      "type": "function",
      "function": {"name": "rain", "parameters": {"type": "object", "properties": {"place": {"type": "string"}}}}
    }
  ],
  "output_length": 5,
  "timestamp": 0
}`, nil,
		[]string{`tools [{"function":{"name":"rain","parameters":{"properties":{"place":{"type":"string"}},"type":"object"}},"type":"function"}]; no others`},
		nil,
	},
	{
		"a whole body", `{"payload": {"model": "sim", "messages": [{"role": "user", "content": "As it is"}], "max_tokens": 3, "top_p": 0.5}}`, nil,
		[]string{`messages [{"content":"As it is","role":"user"}]; top_p 0.5; no others`},
		nil,
	},
	{
		"extra members of the body", `
{"input_length": 600, "output_length": 5, "timestamp": 0, "extra": {"nvext": {"priority": 99}}}
{"input_length": 620, "output_length": 3, "timestamp": 5}
{"messages": [{"role": "user", "content": "Good day"}], "output_length": 5, "timestamp": 10, "extra": {"routing": "fast"}}
`, nil,
		[]string{`nvext {"priority":99}; 600 tokens`, "620 tokens", `routing "fast"`},
		nil,
	},
	{
		"seconds with a fraction", `{"timestamp": 12.4, "input_length": 42, "output_length": 8, "hash_ids": [981, 4412, 7]}`,
		[]string{"--dataset-name", "timed_trace"},
		[]string{"42 tokens"},
		nil,
	},
	{
		"labels of another tool", `{"at": 1.5, "isl": 48, "osl": 8, "blocks": [981, 4412, 7]}`,
		[]string{"--dataset-name", "timed_trace", "--timed-trace-label-timestamp", "at", "--timed-trace-label-input-length", "isl", "--timed-trace-label-output-length", "osl", "--timed-trace-label-hash-ids", "blocks"},
		[]string{"48 tokens"},
		nil,
	},
	{
		"rows with sessions and aliases", `
{"session_id": "a", "created_time": 0, "input_tokens": 600, "output_tokens": 2, "hash_ids": [1, 2], "request_id": "r1", "priority": 1}
{"session_id": "a", "delay_ms": 2, "input_tokens": 1100, "output_tokens": 2, "hash_ids": [1, 3, 4], "request_id": "r2"}
`, []string{"--session-mode", "full"}, []string{"600 tokens; priority 1", "1100 tokens; priority null"}, nil,
	},
	{
		"texts under another name", `{"input_text": "Which sea is the deepest?", "output_length": 4}`,
		[]string{"--map", "text_input=input_text"},
		[]string{`messages [{"content":"Which sea is the deepest?","role":"user"}]; no others`},
		nil,
	},
	{
		"counts of an answer's usage, and dates", `
{"created_at": "2026-11-21T15:04:05.000Z", "usage": {"prompt_tokens": 600, "completion_tokens": 2, "total_tokens": 602}}
{"created_at": "2026-11-21T15:04:05.010Z", "usage": {"prompt_tokens": 700, "completion_tokens": 2, "total_tokens": 702}}
`,
		[]string{"--map", "timestamp=created_at,input_length=usage.prompt_tokens", "--map", "output_length=usage.completion_tokens"},
		[]string{"600 tokens", "700 tokens"},
		[]string{"timestamps of 2 rows are dates"},
	},
	{
		"seconds since 1970", `
{"timestamp": 1795273445.000, "input_length": 600, "output_length": 2}
{"timestamp": 1795273445.010, "input_length": 700, "output_length": 2}
`, nil, []string{"600 tokens", "700 tokens"}, []string{"timestamps of 2 rows are so large that they must be seconds since 1970"},
	},
}

// TestPrintedRows replays each example, and compares what arrives.
func TestPrintedRows(t *testing.T) {
	t.Parallel()
	for _, p := range printedRows {
		t.Run(p.name, func(t *testing.T) {
			t.Parallel()
			var written bytes.Buffer
			e, err := simulator.New(simulator.Config{Models: []string{"sim"}, Record: simulator.Recording{Bodies: true, To: &written}})
			if err != nil {
				t.Fatal(err)
			}
			engine := httptest.NewServer(e)
			defer engine.Close()
			dir := t.TempDir()
			trace := filepath.Join(dir, "pasted.json")
			if err := os.WriteFile(trace, []byte(p.rows), 0o600); err != nil {
				t.Fatal(err)
			}
			var stdout, stderr bytes.Buffer
			args := slices.Concat([]string{"replay", trace, "--url", engine.URL, "--out", filepath.Join(dir, "out"), "--concurrency", "1", "--progress", "none"}, p.args)
			if slices.Contains(p.args, "timed_trace") { // vLLM's own flags
				args = slices.Concat([]string{"replay", "--dataset-path", trace, "--base-url", engine.URL, "--model", "sim"}, p.args)
			}
			if status := run(t.Context(), args, strings.NewReader(""), &stdout, &stderr); status != exitOK && status != exitInvalid { // which happens on a busy machine
				t.Fatalf("exit %d: %s", status, stderr.String())
			}
			for _, want := range p.said {
				if !strings.Contains(strings.Join(strings.Fields(stdout.String()), " "), want) {
					t.Errorf("the report lacks %q:\n%s", want, stdout.String())
				}
			}
			if want := fmt.Sprintf("%d served", len(p.want)); !strings.Contains(stdout.String(), want) {
				t.Errorf("the report lacks %q:\n%s", want, stdout.String())
			}
			engine.Close()
			if err := e.Close(); err != nil {
				t.Error(err)
			}
			var all []simulator.Record
			for dec := json.NewDecoder(&written); dec.More(); {
				var r simulator.Record
				if err := dec.Decode(&r); err != nil {
					t.Fatal(err)
				}
				all = append(all, r)
			}
			slices.SortFunc(all, func(a, b simulator.Record) int { return cmp.Compare(a.Seq, b.Seq) })
			own := all[max(0, len(all)-len(p.want)):] // after the requests of the calibration
			for i, want := range p.want {
				var body map[string]any
				if err := json.Unmarshal(own[i].Body, &body); err != nil {
					t.Fatal(err)
				}
				for claim := range strings.SplitSeq(want, "; ") {
					member, value, _ := strings.Cut(claim, " ")
					got := ""
					switch {
					case claim == "no others":
						value, got = fmt.Sprint(len(p.want)), fmt.Sprint(len(all))
					case value == "tokens":
						value, got = member, fmt.Sprint(own[i].PromptTokens)
					case member == "roles":
						for _, m := range body["messages"].([]any) {
							got += fmt.Sprint(m.(map[string]any)["role"], " ")
						}
						got = strings.TrimSpace(got)
					default:
						text, err := json.Marshal(body[member])
						if err != nil {
							t.Fatal(err)
						}
						got = string(text)
					}
					if got != value {
						t.Errorf("request %d, %s: got %s", i+1, claim, got)
					}
				}
			}
		})
	}
}

// TestPrintedRowsBecomeLines: a transformation writes each example as JSON lines, which are the same workload.
func TestPrintedRowsBecomeLines(t *testing.T) {
	t.Parallel()
	for _, p := range printedRows {
		if slices.Contains(p.args, "timed_trace") || slices.Contains(p.args, "--session-mode") { // flags of a replay
			continue
		}
		t.Run(p.name, func(t *testing.T) {
			dir := t.TempDir()
			pasted, lines := filepath.Join(dir, "pasted.json"), filepath.Join(dir, "lines.jsonl")
			if err := os.WriteFile(pasted, []byte(p.rows), 0o600); err != nil {
				t.Fatal(err)
			}
			var stdout, stderr bytes.Buffer
			if status := run(t.Context(), slices.Concat([]string{"transform", pasted, "--out", lines}, p.args), strings.NewReader(""), &stdout, &stderr); status != 0 {
				t.Fatalf("exit %d: %s", status, stderr.String())
			}
			for _, want := range p.said {
				if !strings.HasPrefix(want, "field ") && !strings.Contains(stderr.String(), want) {
					t.Errorf("standard error lacks %q:\n%s", want, stderr.String())
				}
			}
			text, err := os.ReadFile(lines)
			if err != nil {
				t.Fatal(err)
			}
			for line := range strings.Lines(string(text)) {
				if !json.Valid([]byte(line)) {
					t.Errorf("line %q", line)
				}
			}
			if got := strings.Count(string(text), "\n"); got != len(p.want) {
				t.Errorf("%d lines, want %d", got, len(p.want))
			}
			stdout.Reset()
			if status := run(t.Context(), []string{"inspect", lines}, strings.NewReader(""), &stdout, &stderr); status != 0 || strings.Contains(stdout.String(), "as if on a line by itself") || strings.Contains(stdout.String(), "timestamps of") {
				t.Errorf("exit %d, %s%s", status, stdout.String(), stderr.String())
			}
		})
	}
}
