// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

// This file checks how much of captured prompts and replies leaves a component.

package testproducers

import (
	"bufio"
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/ptrace"
)

// Lengths of the pieces of text that are searched for, in bytes.
const (
	pieceSize = 24
	lineSize  = 12 // least size of a whole line that is shorter than a piece
)

// pieces collects distinctive pieces of texts: adjacent pieces of pieceSize bytes that no encoding changes, and whole lines that are
// shorter.
type pieces map[string]bool

func (p pieces) add(text string) {
	for text != "" {
		i := strings.IndexAny(text, "\"\\\n\r\t<>&")
		if i < 0 {
			i = len(text)
		}
		for run, least := text[:i], lineSize; len(run) >= least; least = pieceSize {
			piece := run[:min(len(run), pieceSize)]
			if strings.Contains(piece, " ") && isASCII(piece) { // otherwise it is an id or a name, not text
				p[piece] = true
			}
			run = run[len(piece):]
		}
		text = text[min(i+1, len(text)):]
	}
}

func isASCII(s string) bool {
	for i := range len(s) {
		if s[i] < ' ' || s[i] > '~' {
			return false
		}
	}
	return true
}

// addDocument adds the texts of a JSON document.
func (p pieces) addDocument(document any) {
	switch v := document.(type) {
	case string:
		p.add(v)
		var inner any
		if json.Unmarshal([]byte(v), &inner) == nil {
			if _, again := inner.(string); !again {
				p.addDocument(inner)
			}
		}
	case []any:
		for _, member := range v {
			p.addDocument(member)
		}
	case map[string]any:
		for _, member := range v {
			p.addDocument(member)
		}
	}
}

// in returns the number of pieces that occur in any of the texts, and one of these pieces.
func (p pieces) in(texts ...string) (n int, first string) {
	for piece := range p {
		for _, text := range texts {
			if strings.Contains(text, piece) {
				n, first = n+1, piece
				break
			}
		}
	}
	return n, first
}

// outputs are the names of attributes and members in which producers write replies.
var outputs = []string{"gen_ai.output.messages", "output.value", "genkit:output", "gen_ai.tool.call.result", "gen_ai.tool.call.arguments"}

// Path is a path that telemetry takes through a component.
type Path struct {
	Traces func(ptrace.Traces)           // changes them in place
	Logs   func(plog.Logs) ptrace.Traces // likewise, and returns the spans made from them
}

// CheckNothingLeaks sends the telemetry of each captured producer in a folder through its own path, and searches the output for pieces of
// every prompt and reply.
func CheckNothingLeaks(t *testing.T, folder string, newPath func(*testing.T) Path) {
	t.Helper()
	for _, c := range []struct {
		producer string
		prompts  int // least share of the prompts' pieces that the telemetry has, in percent
		replies  int // least number of pieces of replies that it has
	}{
		{"otel-js-openai", 90, 20},
		{"otel-js-openai-nocontent", 70, 0}, // the Responses API writes the system prompt anyway
		{"js-traceloop-openai", 90, 20},
		{"js-openinference-openai", 90, 20},
		{"js-openinference-longconv", 90, 1},
		{"vercel-ai7-otel", 90, 20},
		{"go-genkit", 90, 10},
	} {
		t.Run(c.producer, func(t *testing.T) {
			stem := filepath.Join(folder, c.producer)
			prompts, replies := pieces{}, pieces{}
			eachLine(t, stem+".truth.jsonl", func(line []byte) {
				var request struct{ Prompt string }
				if err := json.Unmarshal(line, &request); err != nil {
					t.Fatal(err)
				}
				prompts.add(request.Prompt)
			})
			path := newPath(t)
			var before, after []string
			EachTraces(t, stem, func(td ptrace.Traces) {
				before = append(before, TraceBytes(t, td)...)
				for _, rs := range td.ResourceSpans().All() {
					for _, ss := range rs.ScopeSpans().All() {
						for _, span := range ss.Spans().All() {
							for _, name := range outputs {
								if v, ok := span.Attributes().Get(name); ok {
									replies.addDocument(v.AsRaw())
								}
							}
						}
					}
				}
				path.Traces(td)
				after = append(after, TraceBytes(t, td)...)
			})
			EachLogs(t, stem, func(ld plog.Logs) {
				before = append(before, LogBytes(t, ld)...)
				for _, rl := range ld.ResourceLogs().All() {
					for _, sl := range rl.ScopeLogs().All() {
						for _, log := range sl.LogRecords().All() {
							if name, ok := log.Attributes().Get("event.name"); ok && name.Str() == "gen_ai.choice" {
								replies.addDocument(log.Body().AsRaw())
							}
						}
					}
				}
				td := path.Logs(ld)
				after = append(after, LogBytes(t, ld)...)
				after = append(after, TraceBytes(t, td)...)
			})
			if len(prompts) < 90 {
				t.Fatalf("only %d pieces of prompts to search for", len(prompts))
			}
			if n, _ := prompts.in(before...); 100*n < c.prompts*len(prompts) {
				t.Errorf("only %d of %d pieces of prompts are in the telemetry: this test would see no leak", n, len(prompts))
			}
			if n, _ := replies.in(before...); n < c.replies {
				t.Errorf("only %d of %d pieces of replies are in the telemetry: this test would see no leak", n, len(replies))
			}
			for what, p := range map[string]pieces{"prompts": prompts, "replies": replies} {
				if n, first := p.in(after...); n > 0 {
					t.Errorf("%d of %d pieces of %s are in the output, such as %q", n, len(p), what, first)
				}
			}
		})
	}
}

// TraceBytes returns spans in both encodings: protobuf and JSON.
func TraceBytes(t testing.TB, td ptrace.Traces) []string {
	t.Helper()
	proto, err := (&ptrace.ProtoMarshaler{}).MarshalTraces(td)
	if err != nil {
		t.Fatal(err)
	}
	text, err := (&ptrace.JSONMarshaler{}).MarshalTraces(td)
	if err != nil {
		t.Fatal(err)
	}
	return []string{string(proto), string(text)}
}

// LogBytes returns log records in both encodings.
func LogBytes(t testing.TB, ld plog.Logs) []string {
	t.Helper()
	proto, err := (&plog.ProtoMarshaler{}).MarshalLogs(ld)
	if err != nil {
		t.Fatal(err)
	}
	text, err := (&plog.JSONMarshaler{}).MarshalLogs(ld)
	if err != nil {
		t.Fatal(err)
	}
	return []string{string(proto), string(text)}
}

// eachLine calls visit for each line of a file; a missing file has none.
func eachLine(t testing.TB, name string, visit func(line []byte)) {
	t.Helper()
	content, err := os.ReadFile(name) //nolint:gosec // tests name it
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

// EachTraces calls visit for each export request with traces of a producer.
func EachTraces(t testing.TB, stem string, visit func(ptrace.Traces)) {
	t.Helper()
	eachLine(t, stem+".traces.jsonl", func(line []byte) {
		td, err := (&ptrace.JSONUnmarshaler{}).UnmarshalTraces(line)
		if err != nil {
			t.Fatal(err)
		}
		visit(td)
	})
}

// EachLogs calls visit for each export request with logs of a producer.
func EachLogs(t testing.TB, stem string, visit func(plog.Logs)) {
	t.Helper()
	eachLine(t, stem+".logs.jsonl", func(line []byte) {
		ld, err := (&plog.JSONUnmarshaler{}).UnmarshalLogs(line)
		if err != nil {
			t.Fatal(err)
		}
		visit(ld)
	})
}
