// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package genai_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/moonloop/moonloop/genai"
)

// producers is the folder of real telemetry next to the repository, with what the server really received.
func producers(t testing.TB) string {
	t.Helper()
	folder := filepath.Join("..", "..", "shared", "data", "producers")
	if _, err := os.Stat(folder); err != nil {
		t.Skipf("captured telemetry is not here, so nothing is compared with it: %v", err)
	}
	return folder
}

// truth is a request as the server saw it.
type truth struct {
	Case, Session, ID, Model, Prompt string
	Status                           int
	Stream                           bool
	Input                            *int64 `json:"input_tokens"`
	Cached                           *int64 `json:"cached_tokens"`
	Output                           *int64 `json:"output_tokens"`
}

// found is what a reader made of one inference span.
type found struct {
	record  genai.Record
	prompt  string
	extent  genai.Extent
	session string // where its session was found: span, ancestor or none
	id      string
}

// figures are the outcome of one producer.
type figures struct {
	Spans       int    // inference spans found
	WithID      int    // those of them with the response id of a request
	Input       int    // of these: with the exact input count; none may have a wrong one
	Output      int    // the same of the output
	Cached      int    // the same of the cached tokens
	Session     string // where the session was found, for those of the truth that have one
	Prompts     int    // walked to the exact prompt
	OtherExtent string // of the other spans: their extents
	Kinds       string // all spans by kind: inference wrapper tool content other
}

func TestProducers(t *testing.T) {
	folder := producers(t)
	for _, c := range []struct {
		producer, reason string
		want             figures
	}{
		{
			"otel-js-openai", "messages in logs, without tools and images; embeddings are not requests; errors have no id",
			figures{18, 15, 13, 13, 0, "ancestor 15", 12, "complete 6", "inference 18, other 48"},
		},
		{
			"otel-js-openai-nocontent", "the same spans; records of messages without text are not content",
			figures{18, 15, 13, 13, 0, "ancestor 15", 0, "none 18", "inference 18, other 23"},
		},
		{
			"js-traceloop-openai", "no counts on streams; one span lacks its instructions, which the counts give away",
			figures{17, 16, 8, 8, 0, "ancestor 17", 16, "gaps 1", "inference 17, other 22"},
		},
		{
			"js-openinference-openai", "ids and counts of whole replies; sessions on the spans themselves",
			figures{17, 8, 8, 8, 8, "span 17", 17, "", "inference 17, other 23"},
		},
		{
			"js-openinference-longconv", "two spans lost counts and messages to the attribute cap, and kept input.value",
			figures{4, 2, 2, 2, 2, "", 4, "", "inference 4"},
		},
		{
			"vercel-ai7-otel", "agents and steps repeat usage and messages; three requests failed",
			figures{17, 12, 12, 12, 12, "ancestor 13", 14, "complete 3", "inference 17, other 15, tool 1, wrapper 33"},
		},
		{
			"go-genkit", "counts only without streams, no sessions; two requests failed",
			figures{13, 10, 4, 4, 4, "none 9", 11, "complete 2", "inference 13, wrapper 14"},
		},
	} {
		t.Run(c.producer, func(t *testing.T) {
			if diff := cmp.Diff(c.want, measure(t, filepath.Join(folder, c.producer))); diff != "" {
				t.Errorf("%s (-want +got):\n%s", c.reason, diff)
			}
		})
	}
}

// lines calls visit for each line of a file; an absent file has none.
func lines(t testing.TB, name string, visit func(line []byte)) {
	t.Helper()
	content, err := os.ReadFile(name)
	if os.IsNotExist(err) {
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	scanner := bufio.NewScanner(bytes.NewReader(content))
	scanner.Buffer(nil, len(content)+1)
	for scanner.Scan() {
		visit(scanner.Bytes())
	}
}

// eachSpan calls visit for each span of a capture.
func eachSpan(t testing.TB, name string, visit func(scope string, span ptrace.Span)) {
	t.Helper()
	lines(t, name, func(line []byte) {
		traces, err := (&ptrace.JSONUnmarshaler{}).UnmarshalTraces(line)
		if err != nil {
			t.Fatal(err)
		}
		for _, resource := range traces.ResourceSpans().All() {
			for _, scope := range resource.ScopeSpans().All() {
				for _, span := range scope.Spans().All() {
					visit(scope.Scope().Name(), span)
				}
			}
		}
	})
}

// eachLog calls visit for each log record of a capture.
func eachLog(t testing.TB, name string, visit func(scope string, log plog.LogRecord)) {
	t.Helper()
	lines(t, name, func(line []byte) {
		logs, err := (&plog.JSONUnmarshaler{}).UnmarshalLogs(line)
		if err != nil {
			t.Fatal(err)
		}
		for _, resource := range logs.ResourceLogs().All() {
			for _, scope := range resource.ScopeLogs().All() {
				for _, log := range scope.LogRecords().All() {
					visit(scope.Scope().Name(), log)
				}
			}
		}
	})
}

// rendered collects the pieces of a prompt and renders them as the test server did.
type rendered struct {
	tools    []string
	messages []string
	roles    []string
}

func (r *rendered) visit(p genai.Piece) bool {
	switch p.Kind {
	case genai.PieceMessage:
		r.roles, r.messages = append(r.roles, p.Role), append(r.messages, "")
	case genai.PieceTool:
		r.tools = append(r.tools, p.Text)
	default:
		r.messages[len(r.messages)-1] += p.Text
	}
	return true
}

func (r *rendered) String() string {
	var b strings.Builder
	if len(r.tools) > 0 {
		b.WriteString("<|tools|>\n" + strings.Join(r.tools, "") + "\n")
	}
	for i, role := range r.roles {
		b.WriteString("<|" + role + "|>\n" + r.messages[i] + "\n")
	}
	return b.String() + "<|assistant|>\n"
}

// measure reads a producer's capture and compares it with its truth.
func measure(t *testing.T, stem string) figures {
	t.Helper()
	requests := map[string]truth{}
	prompts := map[string]truth{}
	lines(t, stem+".truth.jsonl", func(line []byte) {
		var request truth
		if err := json.Unmarshal(line, &request); err != nil {
			t.Fatal(err)
		}
		if request.ID != "" {
			requests[request.ID] = request
		}
		if request.Prompt != "" {
			prompts[request.Prompt] = request
		}
	})

	reader := genai.NewReader(genai.Options{})
	// Messages in logs, by the span that they name.
	type message struct {
		extent genai.Extent
		text   rendered
	}
	logs := map[[8]byte]*message{}
	eachLog(t, stem+".logs.jsonl", func(scope string, log plog.LogRecord) {
		rec := reader.Log(scope, log)
		if rec.Kind != genai.KindContent || !rec.Content.Present() {
			return
		}
		m := logs[log.SpanID()]
		if m == nil {
			m = &message{extent: genai.ExtentComplete}
			logs[log.SpanID()] = m
		}
		if w := rec.Content.Walk(m.text.visit); w.Extent != genai.ExtentComplete {
			m.extent = w.Extent
		}
	})

	// First pass: the sessions of all spans, to find those of ancestors.
	parents, sessions := map[[8]byte][8]byte{}, map[[8]byte]string{}
	kinds := map[genai.Kind]int{}
	eachSpan(t, stem+".traces.jsonl", func(scope string, span ptrace.Span) {
		rec := reader.Span(scope, span)
		kinds[rec.Kind]++
		parents[span.SpanID()] = span.ParentSpanID()
		sessions[span.SpanID()] = rec.Session
	})
	var all []found
	eachSpan(t, stem+".traces.jsonl", func(scope string, span ptrace.Span) {
		rec := reader.Span(scope, span)
		if rec.Kind != genai.KindInference {
			return
		}
		f := found{record: *rec, session: "none"}
		for at, place := span.SpanID(), "span"; at != [8]byte{}; at, place = parents[at], "ancestor" {
			if id := sessions[at]; id != "" {
				f.session, f.id = place, id
				break
			}
		}
		if m := logs[span.SpanID()]; m != nil {
			f.extent, f.prompt = m.extent, m.text.String()
			if rec.Content.Present() {
				t.Errorf("a span has content both in its logs and in its attributes")
			}
		} else {
			var text rendered
			w := rec.Content.Walk(text.visit)
			f.extent, f.prompt = w.Extent, text.String()
			if _, ok := prompts[f.prompt]; !ok && len(text.messages) == 1 { // a legacy prompt is sent as it is
				f.prompt = text.messages[0]
			}
		}
		all = append(all, f)
	})

	var got figures
	places, extents := map[string]int{}, map[string]int{}
	for _, f := range all {
		got.Spans++
		request, ok := requests[f.record.ResponseID]
		if !ok {
			request, ok = prompts[f.prompt]
		} else {
			got.WithID++
			got.Input += exact(t, "input", f.record.InputTokens, request.Input)
			got.Output += exact(t, "output", f.record.OutputTokens, request.Output)
			got.Cached += exact(t, "cached", f.record.CachedTokens, request.Cached)
		}
		if ok && request.Session != "" {
			places[f.session]++
			if f.id != request.Session && f.session != "none" {
				t.Errorf("session %q, want %q", f.id, request.Session)
			}
		}
		if ok && f.prompt == request.Prompt {
			got.Prompts++
			if f.extent != genai.ExtentComplete {
				t.Errorf("an exact prompt is said to be %v", f.extent)
			}
		} else {
			extents[f.extent.String()]++
			if testing.Verbose() {
				t.Logf("%s %s %q error %q: %s, %d bytes for %d", f.record.Operation, f.record.ResponseID, request.Case,
					f.record.ErrorType, f.extent, len(f.prompt), len(request.Prompt))
			}
		}
	}
	got.Session, got.OtherExtent = counts(places), counts(extents)
	byName := map[string]int{}
	for kind, n := range kinds {
		byName[kind.String()] = n
	}
	got.Kinds = counts(byName)
	return got
}

// exact counts a correct value, and fails for one that exists and is wrong.
func exact(t *testing.T, what string, got genai.Opt[int64], want *int64) int {
	t.Helper()
	switch {
	case !got.Set:
		return 0
	case want == nil || got.V != *want:
		t.Errorf("%s is %d, which is not what the server counted", what, got.V)
		return 0
	}
	return 1
}

func counts(m map[string]int) string {
	var parts []string
	for key, n := range m {
		text, _ := json.Marshal(n)
		parts = append(parts, key+" "+string(text))
	}
	slices.Sort(parts)
	return strings.Join(parts, ", ")
}
