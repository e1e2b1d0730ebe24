// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package collector

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/moonloop/moonloop/blockhash"
	"github.com/moonloop/moonloop/capture"
	"github.com/moonloop/moonloop/mooncake"
)

// truth is a request as the engine behind a producer saw it.
type truth struct {
	ID, Case, Session, Prompt string
	Received                  int64 `json:"t_recv_unix_nano"`
	Input                     int64 `json:"input_tokens"`
	Output                    int64 `json:"output_tokens"`

	rows int // rows found of the request
}

func readTruth(t *testing.T, name string) []*truth {
	t.Helper()
	var all []*truth
	for line := range bytes.Lines(readOptional(t, name)) {
		one := new(truth)
		if err := json.Unmarshal(line, one); err != nil {
			t.Fatal(err)
		}
		all = append(all, one)
	}
	return all
}

// trace is a trace that was compiled and read again, strictly.
type trace struct {
	rows []*mooncake.Row
	meta *mooncake.Meta
}

// compileTrace compiles the journals of a folder to trace.jsonl in it.
func compileTrace(t *testing.T, dir string) *trace {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dir, "journals", "*.journal"))
	if err != nil || len(names) == 0 {
		t.Fatalf("no journals: %v", err)
	}
	var journals []capture.Source
	for _, name := range names {
		journals = append(journals, capture.FileSource(name))
	}
	name := filepath.Join(dir, "trace.jsonl")
	if _, err := capture.Compile(t.Context(), capture.Options{TempDir: t.TempDir()}, capture.Files(name), journals...); err != nil {
		t.Fatal(err)
	}
	meta, err := mooncake.LoadMeta(name)
	if err != nil || meta == nil {
		t.Fatalf("sidecar: %v", err)
	}
	out := &trace{meta: meta}
	r := mooncake.NewReader(bytes.NewReader(readOptional(t, name)), mooncake.ReaderOptions{Strict: true, BlockSize: meta.BlockSize, FineBlockSize: meta.FineBlockSize})
	for {
		row, err := r.Read()
		if errors.Is(err, io.EOF) {
			return out
		}
		if err != nil {
			t.Fatal(err)
		}
		out.rows = append(out.rows, row)
	}
}

// reconcile accounts for each request of the truth. sent is the telemetry as the producer wrote it.
func reconcile(t *testing.T, tr *trace, all []*truth, sent []byte, key blockhash.Key) account {
	t.Helper()
	got := account{requests: len(all), text: int(tr.meta.Identity["text"])}
	attributes := map[[8]byte]string{}
	for line := range bytes.Lines(sent) {
		td, err := new(ptrace.JSONUnmarshaler).UnmarshalTraces(line)
		if err != nil {
			t.Fatal(err)
		}
		for _, resource := range td.ResourceSpans().All() {
			for _, scope := range resource.ScopeSpans().All() {
				for _, span := range scope.Spans().All() {
					attributes[span.SpanID()] = fmt.Sprint(span.Attributes().AsRaw())
					if strings.Contains(strings.ToLower(span.Name()), "embedding") {
						got.embeddings++
					}
				}
			}
		}
	}
	of := make([]*truth, len(tr.rows))
	for i, row := range tr.rows {
		start := tr.meta.TimeBase.Add(time.Duration(row.Timestamp.V * 1e6))
		r := requestOf(all, attributes[row.OTel.SpanID], start, row)
		if r == nil {
			t.Errorf("row %d, %d and %d tokens at %v, is not a request that was made", i, row.InputLength.V, row.OutputLength.V, start)
			continue
		}
		of[i] = r
		if r.rows++; r.rows == 1 {
			got.rows++
		} else {
			got.twice++
		}
		switch row.SessionID {
		case "":
		case key.Session(r.Session):
			got.sessions++
		default:
			t.Errorf("row %d has session %s, which is not that of %s", i, row.SessionID, r.Case)
		}
	}
	for _, d := range tr.meta.Dropped {
		switch {
		case d.What == "requests" && d.Reason == "failed":
			got.failed = int(d.Count)
		case d.What == "rows" && d.Reason == "no token counts":
			got.uncounted = int(d.Count)
		}
	}
	got.noSpan = got.requests - got.rows - got.failed - got.uncounted - got.embeddings
	if got.text > 0 {
		got.pairs = pairs(t, tr.rows, of)
	}
	return got
}

// requestOf returns the request of a row: the one whose response id is on the span, else the first with the same counts that the engine
// received within a second. The counts must be the engine's in both cases.
func requestOf(all []*truth, span string, start time.Time, row *mooncake.Row) *truth {
	counts := func(r *truth) bool { return r.Input == row.InputLength.V && r.Output == row.OutputLength.V }
	for _, r := range all {
		if r.ID != "" && strings.Contains(span, r.ID) {
			if !counts(r) {
				return nil
			}
			return r
		}
	}
	for _, r := range all {
		// The span starts before the request arrives; some clocks have whole milliseconds.
		if after := time.Unix(0, r.Received).Sub(start); r.rows == 0 && after > -2*time.Millisecond && after < time.Second && counts(r) {
			return r
		}
	}
	return nil
}

// pairs counts the pairs of rows that share as many blocks as their prompts do, one more or one fewer. A token of the engine
// behind the producers is four bytes.
func pairs(t *testing.T, rows []*mooncake.Row, of []*truth) (n int) {
	t.Helper()
	for i, a := range rows {
		for j, b := range rows[:i] {
			if !told(of[i]) || !told(of[j]) {
				continue
			}
			x, y := inOrder(of[i].Prompt), inOrder(of[j].Prompt)
			common, shared := 0, 0
			for common < min(len(x), len(y)) && x[common] == y[common] {
				common++
			}
			for shared < min(len(a.HashIDs), len(b.HashIDs)) && a.HashIDs[shared] == b.HashIDs[shared] {
				shared++
			}
			if want := common / 4 / 512; shared < want-1 || shared > want+1 {
				t.Errorf("rows %d (%s) and %d (%s) share %d blocks, their prompts %d", i, of[i].Case, j, of[j].Case, shared, want)
				continue
			}
			n++
		}
	}
	return n
}

// told reports whether telemetry has the whole prompt of a request. Traceloop leaves out the instructions of the responses API.
func told(r *truth) bool {
	return r != nil && (r.Case != "responses" || !strings.Contains(r.ID, "traceloop"))
}

// inOrder puts the tools of a prompt after its system message, as in ours and most engines' templates.
func inOrder(prompt string) string {
	tools, ok := strings.CutPrefix(prompt, "<|tools|>")
	if !ok {
		return prompt
	}
	tools, rest, _ := strings.Cut(tools, "<|system|>")
	system, rest, _ := strings.Cut(rest, "<|user|>")
	return "<|system|>" + system + "<|tools|>" + tools + "<|user|>" + rest
}
