// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// This file has commands other than replays from the documentation of other tools, for the page docs/from-other-tools.md.

// printedCommand is a documented command line that is not a replay.
type printedCommand struct {
	tool, theirs string
	ours         string // commands, each with the output of the previous one; TRACE is the trace
	note         string
	sees         func(before, after figuresOf) bool // nil: the output is not rows, but figures in JSON
}

// figuresOf are the figures that show that a trace was changed as it should be.
type figuresOf struct {
	rows, input, longest int64
	roots                map[int64]bool // first ids
	last                 float64        // timestamp
}

// sharedRows are rows of which all but the last share their first two blocks.
const sharedRows = `{"timestamp":0,"input_length":2048,"output_length":20,"hash_ids":[0,1,2,3]}
{"timestamp":300,"input_length":1536,"output_length":21,"hash_ids":[0,1,4]}
{"timestamp":600,"input_length":1536,"output_length":22,"hash_ids":[0,1,5]}
{"timestamp":900,"input_length":1536,"output_length":23,"hash_ids":[0,1,6]}
{"timestamp":1200,"input_length":1536,"output_length":24,"hash_ids":[0,1,7]}
{"timestamp":1500,"input_length":1536,"output_length":25,"hash_ids":[0,1,8]}
{"timestamp":1800,"input_length":1536,"output_length":26,"hash_ids":[0,1,9]}
{"timestamp":2100,"input_length":1536,"output_length":27,"hash_ids":[0,1,10]}
{"timestamp":2400,"input_length":1536,"output_length":28,"hash_ids":[0,1,11]}
{"timestamp":2700,"input_length":1536,"output_length":29,"hash_ids":[0,1,12]}
{"timestamp":3000,"input_length":1536,"output_length":30,"hash_ids":[0,1,13]}
{"timestamp":3300,"input_length":1536,"output_length":31,"hash_ids":[0,1,14]}
{"timestamp":3600,"input_length":1536,"output_length":32,"hash_ids":[0,1,15]}
{"timestamp":3900,"input_length":1536,"output_length":33,"hash_ids":[0,1,16]}
{"timestamp":4200,"input_length":1536,"output_length":34,"hash_ids":[0,1,17]}
{"timestamp":5000,"input_length":5120,"output_length":50,"hash_ids":[18,19,20,21,22,23,24,25,26,27]}
`

func longerInput(before, after figuresOf) bool { return after.input > before.input }

var printedCommands = []printedCommand{
	{aiperf, "analyze-trace traces/production.jsonl --block-size 512 --output-file analysis.json", "inspect TRACE --block-size 512 --json", "on standard output", nil},
	{aiperf, "analyze-trace --input-file production.jsonl --block-size 512", "inspect TRACE --block-size 512 --json", "without --json, for people", nil},
	{
		aiperf, "synthesize-trace in.jsonl out.jsonl --block-size 512 --speedup-ratio 1.0 --prefix-len-multiplier 1.0 --prefix-root-multiplier 1 --prompt-len-multiplier 1.0", "transform TRACE --block-size 512 --time-scale 1", "",
		func(before, after figuresOf) bool {
			return before.rows == after.rows && before.input == after.input && before.last == after.last
		},
	},
	{aiperf, "synthesize-trace in.jsonl out.jsonl --speedup-ratio 2.0", "transform TRACE --time-scale 0.5", "", func(before, after figuresOf) bool { return after.last*2 == before.last }},
	{aiperf, "synthesize-trace in.jsonl out.jsonl --speedup-ratio 10.0", "transform TRACE --time-scale 0.1", "", func(before, after figuresOf) bool { return after.last*10 == before.last }},
	{aiperf, "synthesize-trace in.jsonl out.jsonl --prefix-len-multiplier 1.5", "transform TRACE --prefix-scale 1.5", "", longerInput},
	{aiperf, "synthesize-trace in.jsonl out.jsonl --prefix-root-multiplier 3", "transform TRACE --roots 3", "", func(before, after figuresOf) bool {
		return len(after.roots) > len(before.roots) && after.rows == before.rows
	}},
	{aiperf, "synthesize-trace in.jsonl out.jsonl --prompt-len-multiplier 0.5", "transform TRACE --input-scale 0.5 | transform - --prefix-scale 2", "--input-scale also scales the shared tokens; the second step restores them", func(before, after figuresOf) bool { return after.input < before.input }},
	{aiperf, "synthesize-trace in.jsonl out.jsonl --max-isl 4096", "transform TRACE --max-input 4096", "leaves longer rows out", func(before, after figuresOf) bool { return after.rows == before.rows-1 && after.longest <= 4096 }},
	{aiperf, "synthesize-trace prod.jsonl long-context.jsonl --prefix-len-multiplier 2.0 --max-isl 8192", "transform TRACE --prefix-scale 2 --max-input 8192", "", longerInput},
	{aiperf, "synthesize-trace prod.jsonl multiturn.jsonl --prefix-root-multiplier 10 --prompt-len-multiplier 1.2", "transform TRACE --roots 10 --input-scale 1.2 | transform - --prefix-scale 0.8333", "", longerInput},
}

// TestPrintedCommands runs moonloop's commands and checks the resulting rows or figures, and that replay names them in place of the other
// tools' commands.
func TestPrintedCommands(t *testing.T) {
	t.Parallel()
	trace := filepath.Join(t.TempDir(), "trace.jsonl")
	if err := os.WriteFile(trace, []byte(sharedRows), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range printedCommands {
		t.Run(c.theirs, func(t *testing.T) {
			rows := sharedRows
			for command := range strings.SplitSeq(c.ours, " | ") {
				var out, said bytes.Buffer
				if status := run(t.Context(), strings.Fields(strings.Replace(command, "TRACE", trace, 1)), strings.NewReader(rows), &out, &said); status != exitOK {
					t.Fatalf("%s: status %d, said:\n%s", command, status, said.String())
				}
				rows = out.String()
			}
			if c.sees == nil {
				if !json.Valid([]byte(rows)) || !strings.Contains(rows, "input_length") {
					t.Errorf("no figures:\n%.500s", rows)
				}
			} else if !c.sees(rowsFigures(t, sharedRows), rowsFigures(t, rows)) {
				t.Errorf("the rows became\n%s", rows)
			}
			var said bytes.Buffer
			verb, _, _ := strings.Cut(c.ours, " ")
			status := run(t.Context(), append([]string{"replay"}, strings.Fields(c.theirs)...), strings.NewReader(""), new(bytes.Buffer), &said)
			if status != exitUsage || !strings.Contains(said.String(), "moonloop "+verb) {
				t.Errorf("replay %s: status %d, said:\n%s", c.theirs, status, said.String())
			}
		})
	}
}

func rowsFigures(t *testing.T, rows string) (of figuresOf) {
	t.Helper()
	of.roots = map[int64]bool{}
	for line := range strings.Lines(rows) {
		var row struct {
			Timestamp float64
			Input     int64   `json:"input_length"`
			IDs       []int64 `json:"hash_ids"`
		}
		if err := json.Unmarshal([]byte(line), &row); err != nil || len(row.IDs) == 0 {
			t.Fatalf("%v: %s", err, line)
		}
		of.rows, of.input, of.longest = of.rows+1, of.input+row.Input, max(of.longest, row.Input)
		of.roots[row.IDs[0]] = true
		of.last = max(of.last, row.Timestamp)
	}
	return of
}

// writeCommands writes the commands for the page.
func writeCommands(b *strings.Builder, tool string) {
	if tool != aiperf {
		return
	}
	b.WriteString("\n### Its other commands\n\n| theirs | ours: moonloop … | note |\n|---|---|---|\n")
	for _, c := range printedCommands {
		if c.tool == tool {
			fmt.Fprintf(b, "| `%s` | `%s` | %s |\n", c.theirs, strings.ReplaceAll(c.ours, " | ", "` and `"), c.note)
		}
	}
}
