// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package convert_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/moonloop/moonloop/capture"
	"github.com/moonloop/moonloop/convert"
	"github.com/moonloop/moonloop/mooncake"
	"github.com/moonloop/moonloop/receiver/annotate"
)

// seen is what a row contains, and which rows share a session: "A", "B" by first appearance.
type seen struct {
	At, Input, Output int64
	IDs               []uint64
	Session           string
}

// common returns the rows of five requests that most of the files have: three turns of one conversation, two of another.
func common(sessions bool) []seen {
	rows := []seen{
		{0, 3038, 20, []uint64{0, 1, 2, 3, 4, 5}, "A"},
		{1000, 3775, 21, []uint64{0, 1, 2, 3, 4, 6, 7, 8}, "A"},
		{2000, 4513, 22, []uint64{0, 1, 2, 3, 4, 6, 7, 9, 10}, "A"},
		{3000, 3038, 23, []uint64{0, 1, 2, 3, 11, 12}, "B"},
		{4000, 3775, 24, []uint64{0, 1, 2, 3, 11, 13, 14, 15}, "B"},
	}
	if !sessions {
		for i := range rows {
			rows[i].Session = ""
		}
	}
	return rows
}

func ids(from, n uint64) []uint64 {
	var out []uint64
	for i := range n {
		out = append(out, from+i)
	}
	return out
}

func reproFile(t *testing.T, name string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("..", "..", "shared", "data", "repro", name+".traces.jsonl"))
	if err != nil {
		t.Skipf("telemetry that was once misread is missing: ../shared/data/repro/%s.traces.jsonl from the repository root", name)
	}
	return string(data)
}

// TestShapes has telemetry in the shapes that producers send, and the expected rows.
func TestShapes(t *testing.T) {
	// In conversations without content, turns share what came before; conversations share nothing.
	structure := common(true)
	structure[3].IDs, structure[4].IDs = ids(11, 6), append(ids(11, 5), 17, 18, 19)
	estimated := append(common(false), seen{9000, 3038, 7, ids(0, 6), ""})
	for i := range int64(5) {
		estimated[i].Output = 40 + i
	}
	estimated[1].Input, estimated[4].Input = 3776, 3776 // estimated, like missing counts, from the mean number of bytes per token
	skewed := common(true)
	for i, row := range common(true) {
		row.At, row.Output = row.At+5000, 25+int64(i)
		skewed = append(skewed, row)
	}
	for _, c := range []struct {
		file     string
		rows     []seen
		identity string
		change   func(*convert.Options)
		lost     []mooncake.Dropped
	}{
		{file: "oi-alias", rows: common(true), identity: "text"},
		{file: "adk", rows: []seen{{0, 7615, 20, ids(0, 15), ""}, {1000, 7615, 21, ids(15, 15), ""}}, identity: "text"},
		{file: "oi-genai", rows: []seen{{0, 6115, 20, ids(0, 12), ""}, {1000, 6115, 21, ids(12, 12), ""}}, identity: "text"},
		// The image of the first two requests is the same.
		{file: "image", rows: []seen{{0, 4538, 20, ids(0, 9), ""}, {1000, 4538, 21, ids(0, 9), ""}, {2000, 4538, 22, append(ids(0, 8), 9), ""}}, identity: "text"},
		{file: "openlit", rows: common(true), identity: "text"},
		{file: "event-content", rows: common(true), identity: "text"},
		{file: "pydantic", rows: common(true), identity: "text"},
		{file: "spring", rows: structure, identity: "structure"},
		{file: "cid257", rows: common(true), identity: "text"},
		{file: "links", rows: common(true), identity: "text"},
		{file: "nested", rows: []seen{{0, 3038, 20, ids(0, 6), ""}, {100, 1211, 3, ids(6, 3), ""}}, identity: "text"},
		{
			file: "anthropic", rows: common(true), identity: "text",
			lost: []mooncake.Dropped{{What: "prompt token counts", Reason: "cached tokens were added, because other spans of the same service and model show that its counts exclude them", Count: 1}},
		},
		{
			file: "est", rows: estimated, identity: "text", change: func(o *convert.Options) { o.Compile.MissingTokens = capture.MissingEstimate },
			lost: []mooncake.Dropped{{What: "token counts", Reason: "estimate", Count: 5}},
		},
		{file: "skew", rows: skewed, identity: "text"},
	} {
		t.Run(c.file, func(t *testing.T) {
			opt := convert.Options{Format: convert.OTLP, Annotate: annotate.Config{Key: testKey(t)}}
			if c.change != nil {
				c.change(&opt)
			}
			var traces []*trace
			if _, err := convert.Convert(t.Context(), opt, memory(&traces), source(c.file, reproFile(t, c.file))); err != nil {
				t.Fatal(err)
			}
			if len(traces) != 1 {
				t.Fatalf("%d traces", len(traces))
			}
			if diff := cmp.Diff(c.rows, seenOf(traces[0].rows(t))); diff != "" {
				t.Errorf("rows (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(map[string]int64{c.identity: int64(len(c.rows))}, traces[0].meta.Identity); diff != "" {
				t.Errorf("identity (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(c.lost, traces[0].meta.Dropped, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("lost (-want +got):\n%s", diff)
			}
		})
	}
}

func seenOf(rows []*mooncake.Row) []seen {
	letters := map[string]string{"": ""}
	var out []seen
	for _, row := range rows {
		if letters[row.SessionID] == "" && row.SessionID != "" {
			letters[row.SessionID] = fmt.Sprintf("%c", 'A'+len(letters)-1)
		}
		out = append(out, seen{int64(row.Timestamp.V), row.InputLength.V, row.OutputLength.V, row.HashIDs, letters[row.SessionID]})
	}
	return out
}
