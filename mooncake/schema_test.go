// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package mooncake

import (
	"encoding/json"
	"flag"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/jsonschema-go/jsonschema"

	"github.com/moonloop/moonloop/internal/testschema"
)

var update = flag.Bool("update", false, "write the schemas again")

// rowMembers are the members of a written row, in order, with the fields from which they are written.
var rowMembers = []struct{ name, field string }{
	{"timestamp", "Timestamp"},
	{"input_length", "InputLength"},
	{"output_length", "OutputLength"},
	{"hash_ids", "HashIDs"},
	{"continues", ""},
	{"hash_ranges", "HashRanges"},
	{"replies", "Replies"},
	{"images", "Images"},
	{"text_input", "TextInput"},
	{"messages", "Messages"},
	{"tools", "Tools"},
	{"message_mode", "MessageMode"},
	{"payload", "Payload"},
	{"extra", "Extra"},
	{"delay", "Delay"},
	{"tool_wait_ms", "ToolWait"},
	{"wait_for", "WaitFor"},
	{"wait_evidence", "Evidence"},
	{"session_id", "SessionID"},
	{"request_id", "RequestID"},
	{"model", "Model"},
	{"class", "Class"},
	{"priority", "Priority"},
	{"otel", "OTel"},
	{"observed", "Observed"},
	{"result", ""},
	{"sent", ""},
	{"transformations", ""},
}

// readNames are the names that a reader knows besides those that are written.
var readNames = []string{"created_time", "delay_ms", "input_tokens", "output_tokens", "policy_class", "slo_class", "type"}

func number(kind string, least float64) *jsonschema.Schema {
	return &jsonschema.Schema{Type: kind, Minimum: &least}
}

func tuple(least ...float64) *jsonschema.Schema {
	s := &jsonschema.Schema{Type: "array", MinItems: new(len(least)), MaxItems: new(len(least))}
	for _, n := range least {
		s.PrefixItems = append(s.PrefixItems, number("integer", n))
	}
	return s
}

// schemaOfRow makes the schema of a row from the types and comments of [Row].
func schemaOfRow(t *testing.T) *jsonschema.Schema {
	t.Helper()
	observed, ref := reflect.TypeFor[Observed](), reflect.TypeFor[SpanRef]()
	object := func(of reflect.Type, members [][2]string, s func(string) *jsonschema.Schema) *jsonschema.Schema {
		o := &jsonschema.Schema{Type: "object", Properties: map[string]*jsonschema.Schema{}}
		for _, m := range members {
			p := s(m[0])
			p.Description = testschema.Comment(t, of, m[1])
			o.Properties[m[0]], o.PropertyOrder = p, append(o.PropertyOrder, m[0])
		}
		return o
	}
	known := map[reflect.Type]*jsonschema.Schema{
		reflect.TypeFor[Opt[float64]](): number("number", 0), reflect.TypeFor[Opt[int64]](): number("integer", 0), reflect.TypeFor[Opt[string]](): {Type: "string"},
		reflect.TypeFor[HashRange](): tuple(0, 1), reflect.TypeFor[Reply](): tuple(1, 1, 1), reflect.TypeFor[Image](): tuple(0, 0, 0), reflect.TypeFor[Evidence](): testschema.Words(evidences[1:]...),
		reflect.TypeFor[json.RawMessage](): {},
		ref: object(ref, [][2]string{{"trace_id", "TraceID"}, {"span_id", "SpanID"}}, func(name string) *jsonschema.Schema {
			return &jsonschema.Schema{Type: "string", Pattern: map[string]string{"trace_id": "^[0-9a-f]{32}$", "span_id": "^[0-9a-f]{16}$"}[name]}
		}),
		observed: object(observed, [][2]string{{"cached_tokens", "CachedTokens"}, {"ttft_ms", "TTFT"}, {"duration_ms", "Duration"}, {"finish_reason", "FinishReason"}}, func(name string) *jsonschema.Schema {
			switch name {
			case "cached_tokens":
				return number("integer", 0)
			case "finish_reason":
				return &jsonschema.Schema{Type: "string"}
			}
			return number("number", 0)
		}),
	}
	s := &jsonschema.Schema{
		Title:       "A row of a Mooncake trace",
		Description: "A line of X.jsonl: one request. A trace of several lines is read with its sidecar, X.meta.json. Further members are left alone.",
		Type:        "object", Properties: map[string]*jsonschema.Schema{},
	}
	row := reflect.TypeFor[Row]()
	for _, m := range rowMembers {
		p := new(jsonschema.Schema)
		if field, is := row.FieldByName(m.field); is {
			p = testschema.Of(t, field.Type, known)
			p.Description = testschema.Comment(t, row, m.field)
			if p.Types = slices.DeleteFunc(p.Types, func(name string) bool { return name == "null" }); len(p.Types) == 1 { // nil is absent
				p.Type, p.Types = p.Types[0], nil
			}
		}
		switch m.name {
		case "priority":
			p.Minimum = nil
		case "input_length":
			p.Minimum = new(1.)
		case "continues":
			p = number("integer", 1)
			p.Description = "How many ids of hash_ranges the row has from the row that its first reply belongs to; hash_ranges and replies are what it adds to them."
		case "messages", "tools":
			p.Type, p.Items = "array", &jsonschema.Schema{Type: "object"}
		case "payload", "extra":
			p.Type = "object"
		case "message_mode":
			p.Enum = []any{"history", "delta"}
		case "transformations":
			p.Type, p.Items = "array", &jsonschema.Schema{Type: "object"}
			p.Description = "What was done to the trace, as in a sidecar: on the last row of a trace that came through a pipe."
		case "result", "sent":
			p.Type, p.Description = "object", map[string]string{
				"result": "What became of the row in a replay: requests.jsonl.", "sent": "What a sent payload was made of: --save-prompts.",
			}[m.name]
		}
		s.Properties[m.name], s.PropertyOrder = p, append(s.PropertyOrder, m.name)
	}
	for _, name := range slices.Sorted(maps.Keys(foreignFields)) {
		s.Properties[name], s.PropertyOrder = &jsonschema.Schema{Description: "A field of other tools, without effect here."}, append(s.PropertyOrder, name)
	}
	for _, source := range []string{"input_length", "text_input", "messages", "payload"} {
		s.OneOf = append(s.OneOf, &jsonschema.Schema{Required: []string{source}})
	}
	return s
}

// TestSchemas makes the schemas from the types, and validates rows and sidecars with them.
func TestSchemas(t *testing.T) {
	testschema.Fresh(t, "row.schema.json", schemaOfRow(t), *update)
	sidecar := testschema.Of(t, reflect.TypeFor[Meta](), map[reflect.Type]*jsonschema.Schema{
		reflect.TypeFor[SessionMode](): testschema.Words(sessionModes[:]...), reflect.TypeFor[time.Time](): {Type: "string", Format: "date-time"},
		reflect.TypeFor[PrivacyMode](): testschema.Words(string(PrivacyPerfOnly), string(PrivacyBlockHash), string(PrivacyContent)),
	})
	sidecar.Title, sidecar.Description = "The sidecar of a Mooncake trace", "X.meta.json next to X.jsonl: what its rows cannot express. A member that is absent is unknown."
	testschema.Fresh(t, "sidecar.schema.json", sidecar, *update)
	if *update {
		return
	}
	var names []string
	for _, m := range rowMembers {
		names = append(names, m.name)
	}
	if d := cmp.Diff(slices.Sorted(maps.Keys(rowFields)), slices.Sorted(slices.Values(append(names, readNames...)))); d != "" {
		t.Errorf("the schema does not have the members that a reader knows (-reader +schema):\n%s", d)
	}
	for i, row := range schemaRows() {
		if err := row.Validate(); err != nil {
			t.Fatalf("row %d: %v", i, err)
		}
		text := AppendRow(nil, &row)
		if err := testschema.Check(t, RowSchema(), true, text); err != nil {
			t.Errorf("row %d: %v\n%s", i, err, text)
		}
	}
	for _, bad := range []string{
		`{}`, `[]`, `{"timestamp": 0}`, `{"input_length": 0}`, `{"input_length": 1.5}`, `{"input_length": "9"}`, `{"input_length": 9, "hash_ids": [-1]}`, `{"input_length": 9, "hash_ids": ["a"]}`,
		`{"input_length": 9, "text_input": "x"}`, `{"input_length": 9, "hash_ranges": [[1]]}`, `{"input_length": 9, "hash_ranges": [[1, 0]]}`, `{"messages": "x"}`,
		`{"input_length": 9, "otel": {"trace_id": "x"}}`, `{"input_length": 9, "wait_for": [], "wait_evidence": ["a guess"]}`, `{"input_length": 9, "delay": -1}`, `{"input_length": 9, "class": 3}`, `{"input_length": 9, "priority": "high"}`, `{"input_length": 9, "priority": 1.5}`,
	} {
		if testschema.Check(t, RowSchema(), false, []byte(bad)) == nil {
			t.Errorf("the schema accepts %s", bad)
		}
		if _, err := ParseRow([]byte(bad)); err == nil && !strings.Contains(bad, `"otel"`) && !strings.Contains(bad, `"a guess"`) {
			t.Errorf("the schema refuses what a reader accepts: %s", bad)
		}
	}
	for _, bad := range []string{`{}`, `{"schema": "1"}`, `{"schema": 1, "session_mode": "some"}`, `{"schema": 1, "rows": "9"}`} {
		if testschema.Check(t, SidecarSchema(), false, []byte(bad)) == nil {
			t.Errorf("the schema accepts the sidecar %s", bad)
		}
	}
}

// schemaRows returns rows that together have every member.
func schemaRows() []Row {
	length := func(n int64) Row { return Row{InputLength: Some(n)} }
	all := length(40)
	all.Timestamp, all.Delay, all.ToolWait, all.OutputLength = Some(1.5), Some(2.), Some(1.), Some(int64(0))
	all.WaitFor, all.Evidence = []string{"a"}, []Evidence{EvidenceLink}
	all.HashIDs, all.HashRanges = []uint64{0, 1 << 63}, []HashRange{{First: 7, Count: 3}}
	all.SessionID, all.RequestID, all.Model, all.Class, all.Priority = "s", "r", "m", "batch", Some(int64(-1))
	all.OTel = SpanRef{[16]byte{1}, [8]byte{2}}
	all.Observed = Observed{CachedTokens: Some(int64(3)), TTFT: Some(1.), Duration: Some(2.), FinishReason: "stop"}
	all.Foreign = map[string]json.RawMessage{"strict_priority": json.RawMessage(`3`)}
	replies := length(40)
	replies.HashIDs, replies.HashRanges, replies.Replies = []uint64{0}, []HashRange{{First: 7, Count: 3}}, []Reply{{Back: 1, At: 1, Tokens: 4}}
	text := Row{TextInput: Some("x"), MessageMode: "", Images: []Image{{ID: 1 << 63, Width: 640, Height: 480}, {ID: 2}}}
	chat := Row{Messages: json.RawMessage(`[{"role":"user"}]`), Tools: json.RawMessage(`[{}]`), MessageMode: "delta", SessionID: "s", Extra: json.RawMessage(`{"a":1}`)}
	return []Row{all, replies, text, chat, {Payload: json.RawMessage(`{"model":"m"}`)}}
}
