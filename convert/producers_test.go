// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package convert_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/moonloop/moonloop/blockhash"
	"github.com/moonloop/moonloop/capture"
	"github.com/moonloop/moonloop/convert"
	"github.com/moonloop/moonloop/mooncake"
	"github.com/moonloop/moonloop/receiver/annotate"
)

// trace is a trace that was written to memory.
type trace struct {
	capture.Partition
	*mooncake.Writer
	text bytes.Buffer
	meta *mooncake.Meta
}

func (t *trace) Commit(meta *mooncake.Meta) error { t.meta = meta; return nil }
func (t *trace) Close() error                     { return nil }

// rows reads the trace back, strictly.
func (t *trace) rows(tb testing.TB) []*mooncake.Row {
	tb.Helper()
	r := mooncake.NewReader(bytes.NewReader(t.text.Bytes()), mooncake.ReaderOptions{Strict: true, BlockSize: t.meta.BlockSize, FineBlockSize: t.meta.FineBlockSize})
	var rows []*mooncake.Row
	for {
		row, err := r.Read()
		if errors.Is(err, io.EOF) {
			return rows
		}
		if err != nil {
			tb.Fatal(err)
		}
		rows = append(rows, row)
	}
}

// memory is a sink that keeps the traces.
func memory(traces *[]*trace) capture.Sink {
	return func(p capture.Partition) (capture.TraceWriter, error) {
		t := &trace{Partition: p}
		t.Writer = mooncake.NewWriter(&t.text)
		*traces = append(*traces, t)
		return t, nil
	}
}

func source(name, content string) capture.Source {
	return capture.Source{Name: name, Open: func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader(content)), nil }}
}

func testKey(tb testing.TB) blockhash.Key {
	tb.Helper()
	key, err := blockhash.NewKey(bytes.Repeat([]byte("k"), blockhash.KeySize))
	if err != nil {
		tb.Fatal(err)
	}
	return key
}

// request is a line of a truth file: a request as the engine saw it.
type request struct {
	Case         string `json:"case"`
	Session      string `json:"session"`
	Turn         *int   `json:"turn"`
	Received     int64  `json:"t_recv_unix_nano"`
	InputTokens  int64  `json:"input_tokens"`
	OutputTokens int64  `json:"output_tokens"`
	Model        string `json:"model"`
	Prompt       string `json:"prompt"`
	ID           string `json:"id"` // of the response

	taken bool
}

// label names the request for people.
func (r *request) label() string {
	if r.Case != "conversation" {
		return r.Case
	}
	return fmt.Sprintf("%s turn %d", r.Session, *r.Turn)
}

// canonical is the prompt with its tools after the system message, as in most templates and in ours.
func (r *request) canonical() string {
	if tools, ok := strings.CutPrefix(r.Prompt, "<|tools|>"); ok {
		tools, rest, _ := strings.Cut(tools, "<|system|>")
		system, rest, _ := strings.Cut(rest, "<|user|>")
		return "<|system|>" + system + "<|tools|>" + tools + "<|user|>" + rest
	}
	return r.Prompt
}

func producerFile(t *testing.T, name string) string {
	t.Helper()
	path := filepath.Join("..", "..", "shared", "data", "producers", name)
	data, err := os.ReadFile(path)
	if err != nil {
		t.Skipf("the captures of real producers are missing: ../shared/data/producers/%s from the repository root", name)
	}
	return string(data)
}

func truthOf(t *testing.T, producer string) []*request {
	t.Helper()
	var list []*request
	lines := bufio.NewScanner(strings.NewReader(producerFile(t, producer+".truth.jsonl")))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		r := new(request)
		if err := json.Unmarshal(lines.Bytes(), r); err != nil {
			t.Fatal(err)
		}
		list = append(list, r)
	}
	return list
}

// find returns the request of a row: the one whose response id is in the span; if there is none, the first after the span's start that has
// the row's lengths. It returns nil if the time or the lengths do not fit.
func find(truth []*request, spans map[[8]byte]string, start time.Time, row *mooncake.Row) *request {
	fits := func(r *request) bool {
		// Spans start before the request is received; some clocks have whole milliseconds.
		after := time.Unix(0, r.Received).Sub(start)
		return !r.taken && after > -2*time.Millisecond && after < time.Second && r.InputTokens == row.InputLength.V && r.OutputTokens == row.OutputLength.V
	}
	named := func(r *request) bool { return r.ID != "" && strings.Contains(spans[row.OTel.SpanID], r.ID) }
	for _, same := range []func(*request) bool{named, fits} {
		for _, r := range truth {
			if same(r) {
				if !fits(r) {
					return nil
				}
				r.taken = true
				return r
			}
		}
	}
	return nil
}

// spanText returns the attributes of each span as text.
func spanText(t *testing.T, content string) map[[8]byte]string {
	t.Helper()
	out := make(map[[8]byte]string)
	for line := range strings.SplitSeq(strings.TrimSpace(content), "\n") {
		td, err := new(ptrace.JSONUnmarshaler).UnmarshalTraces([]byte(line))
		if err != nil {
			t.Fatal(err)
		}
		for _, resource := range td.ResourceSpans().All() {
			for _, scope := range resource.ScopeSpans().All() {
				for _, span := range scope.Spans().All() {
					out[span.SpanID()] = fmt.Sprint(span.Attributes().AsRaw())
				}
			}
		}
	}
	return out
}

func TestProducers(t *testing.T) {
	for _, c := range []struct {
		producer string
		logs     bool
		estimate bool // missing token counts are estimated
		// rows are the expected rows, in order. The other requests of the scenario have no span, failed, or have no token counts.
		rows     []string
		dropped  map[string]int64
		identity map[string]int64
		sessions bool // the telemetry names the sessions
		// structure are the rows without text in a scenario whose other rows have text.
		structure []string
	}{
		{
			producer: "go-genkit", // streams without usage: all of sessions A and C
			rows:     []string{"sess-B turn 0", "sess-B turn 1", "sess-B turn 2", "flow"},
			dropped:  map[string]int64{"requests: failed": 3, "rows: no token counts": 6, "token counts: estimate": 6},
			identity: map[string]int64{"text": 4},
		},
		{
			producer: "js-openinference-longconv", // the attribute limit removed the token counts of the two longer ones
			rows:     []string{"long_conversation_20", "long_conversation_50"},
			dropped:  map[string]int64{"rows: no token counts": 2},
			identity: map[string]int64{"text": 2},
		},
		{
			producer: "js-openinference-openai", sessions: true, // records no usage of streams
			rows: []string{
				"sess-B turn 0", "sess-B turn 1", "sess-B turn 2", "tool_result", "multimodal", "reasoning", "legacy_completions",
				"responses", "responses",
			},
			dropped:  map[string]int64{"replies: partial": 1, "rows: no token counts": 8, "token counts: estimate": 6},
			identity: map[string]int64{"text": 9},
		},
		{
			producer: "js-traceloop-openai", sessions: true, // invents the usage of streams, records half of a Responses prompt
			rows: []string{
				"sess-B turn 0", "sess-B turn 1", "sess-B turn 2", "tool_result", "multimodal", "reasoning", "legacy_completions", "responses",
			},
			structure: []string{"responses"},
			dropped:   map[string]int64{"prompts: gaps": 1, "rows: no token counts": 9, "token counts: estimate": 7},
			identity:  map[string]int64{"structure": 1, "text": 7},
		},
		{
			producer: "otel-js-openai", logs: true, sessions: true, // text in logs; session C did not request usage
			rows: []string{
				"sess-A turn 0", "sess-B turn 0", "sess-B turn 1", "sess-A turn 1", "sess-B turn 2", "sess-A turn 2", "sess-A turn 3",
				"tool_call", "tool_result", "multimodal", "reasoning", "responses", "responses",
			},
			dropped: map[string]int64{
				"contents: no inference span above": 2, "replies: without prompt": 1, "requests: failed": 3, "rows: no token counts": 2, "token counts: estimate": 2,
			},
			identity: map[string]int64{"text": 13},
		},
		{
			producer: "otel-js-openai", logs: true, sessions: true, estimate: true, // session C's lengths are estimates
			rows: []string{
				"sess-A turn 0", "sess-B turn 0", "", "sess-B turn 1", "", "sess-A turn 1", "sess-B turn 2", "sess-A turn 2", "sess-A turn 3",
				"tool_call", "tool_result", "multimodal", "reasoning", "responses", "responses",
			},
			dropped:  map[string]int64{"contents: no inference span above": 2, "replies: without prompt": 1, "requests: failed": 3, "token counts: estimate": 2},
			identity: map[string]int64{"text": 15},
		},
		{
			producer: "otel-js-openai-nocontent", logs: true, sessions: true, // rows share only what the turns of a session share
			rows: []string{
				"sess-A turn 0", "sess-B turn 0", "sess-B turn 1", "sess-A turn 1", "sess-B turn 2", "sess-A turn 2", "sess-A turn 3",
				"tool_call", "tool_result", "multimodal", "reasoning", "responses", "responses",
			},
			dropped: map[string]int64{
				"prompts: textless": 20, "requests: failed": 3, "rows: no token counts": 2, "token counts: estimate": 2,
			},
			identity: map[string]int64{"structure": 13},
		},
		{
			producer: "vercel-ai7-otel", sessions: true, // the aborted stream has no usage
			rows: []string{
				"sess-A turn 0", "sess-B turn 0", "sess-C turn 0", "sess-B turn 1", "sess-A turn 1", "sess-C turn 1", "sess-B turn 2",
				"sess-A turn 2", "sess-A turn 3", "tool_call", "tool_result", "responses",
			},
			dropped:  map[string]int64{"requests: failed": 4, "rows: no token counts": 1},
			identity: map[string]int64{"text": 12},
		},
	} {
		t.Run(fmt.Sprintf("%s,estimate=%t", c.producer, c.estimate), func(t *testing.T) {
			files := []capture.Source{source(c.producer+".traces.jsonl", producerFile(t, c.producer+".traces.jsonl"))}
			if c.logs {
				files = append(files, source(c.producer+".logs.jsonl", producerFile(t, c.producer+".logs.jsonl")))
			}
			var traces []*trace
			opt := convert.Options{Format: convert.OTLP, Annotate: annotate.Config{Key: testKey(t)}}
			if c.estimate {
				opt.Compile.MissingTokens = capture.MissingEstimate
			}
			if _, err := convert.Convert(t.Context(), opt, memory(&traces), files...); err != nil {
				t.Fatal(err)
			}
			if len(traces) != 1 || traces[0].Replay {
				t.Fatalf("%d traces, want production alone", len(traces))
			}
			got := traces[0]
			truth := truthOf(t, c.producer)
			spans := spanText(t, producerFile(t, c.producer+".traces.jsonl"))
			var found []*request
			var labels []string
			rows := got.rows(t)
			for i, row := range rows {
				start := got.meta.TimeBase.Add(time.Duration(row.Timestamp.V * 1e6))
				r := find(truth, spans, start, row)
				if r == nil && c.estimate {
					r = new(request) // which request it is cannot be told
					labels, found = append(labels, ""), append(found, r)
					continue
				}
				if r == nil {
					t.Fatalf("row %d of %d and %d tokens at %s is not a request of the truth", i, row.InputLength.V, row.OutputLength.V, start)
				}
				found = append(found, r)
				labels = append(labels, r.label())
			}
			if diff := cmp.Diff(c.rows, labels); diff != "" {
				t.Errorf("rows (-want +got):\n%s", diff)
			}
			dropped := make(map[string]int64)
			for _, d := range got.meta.Dropped {
				dropped[d.What+": "+d.Reason] = d.Count
			}
			if diff := cmp.Diff(c.dropped, dropped); diff != "" {
				t.Errorf("dropped (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(c.identity, got.meta.Identity); diff != "" {
				t.Errorf("identity (-want +got):\n%s", diff)
			}
			checkSessions(t, rows, found, c.sessions)
			checkSharing(t, rows, found, got.meta, c.structure)
			var side bytes.Buffer
			if err := got.meta.Write(&side); err != nil {
				t.Fatal(err)
			}
			checkNoText(t, truth, got.text.Bytes(), side.Bytes())
		})
	}
}

// checkSessions: two rows have the same session exactly if their requests have.
func checkSessions(t *testing.T, rows []*mooncake.Row, found []*request, known bool) {
	t.Helper()
	for i, a := range rows {
		if known != (a.SessionID != "") && found[i].Session != "" {
			t.Errorf("row %d (%s) has session %q", i, found[i].label(), a.SessionID)
		}
		for j, b := range rows[:i] {
			if found[i].Case == "" || found[j].Case == "" {
				continue
			}
			if a.SessionID != "" && b.SessionID != "" && (a.SessionID == b.SessionID) != (found[i].Session == found[j].Session) {
				t.Errorf("rows %d (%s) and %d (%s) have sessions %s and %s", i, found[i].label(), j, found[j].label(), a.SessionID, b.SessionID)
			}
		}
	}
}

// checkSharing: rows share the blocks that their prompts have in common, give or take the block in which the common beginning ends.
func checkSharing(t *testing.T, rows []*mooncake.Row, found []*request, meta *mooncake.Meta, structure []string) {
	t.Helper()
	if meta.Identity["text"] == 0 {
		return
	}
	told := func(r *request) bool { return r.Prompt != "" && !slices.Contains(structure, r.label()) }
	for i, a := range rows {
		for j, b := range rows[:i] {
			if !told(found[i]) || !told(found[j]) {
				continue
			}
			common, x, y := 0, found[i].canonical(), found[j].canonical()
			for common < min(len(x), len(y)) && x[common] == y[common] {
				common++
			}
			shared := 0
			for shared < min(len(a.HashIDs), len(b.HashIDs)) && a.HashIDs[shared] == b.HashIDs[shared] {
				shared++
			}
			want := common / 4 / 512 // a token of this engine is four bytes
			if shared < want-1 || shared > want+1 {
				t.Errorf("rows %d (%s) and %d (%s) share %d blocks, their prompts %d", i, found[i].label(), j, found[j].label(), shared, want)
			}
		}
	}
}

// checkNoText: no line of a prompt is in what was written.
func checkNoText(t *testing.T, truth []*request, written ...[]byte) {
	t.Helper()
	lines := 0
	for _, r := range truth {
		for line := range strings.SplitSeq(r.Prompt, "\n") {
			if len(line) < 8 || strings.HasPrefix(line, "<|") {
				continue
			}
			lines++
			for _, text := range []string{line, line[:min(len(line), 24)]} {
				if slices.ContainsFunc(written, func(b []byte) bool { return bytes.Contains(b, []byte(text)) }) {
					t.Fatalf("%s: text of the prompt is in the output", r.label())
				}
			}
		}
	}
	if lines == 0 {
		t.Error("no text to look for")
	}
}
