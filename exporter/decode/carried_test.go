// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package decode

import (
	"reflect"
	"testing"

	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/moonloop/moonloop/blockhash"
	"github.com/moonloop/moonloop/capture/journal"
	"github.com/moonloop/moonloop/mooncake"
)

// TestCarried: a record that was carried by a span is the same, in each field of each kind.
func TestCarried(t *testing.T) {
	span := mooncake.SpanRef{TraceID: [16]byte{1}, SpanID: [8]byte{2}}
	tools := journal.ToolIDs{Made: []uint64{3}, Given: []uint64{4, 5}}
	prompt := journal.Prompt{Identity: journal.Text, Domain: 6, Key: 7, Chain: blockhash.Chain{Cells: []uint64{8}, Bytes: 128, Ends: []blockhash.End{{Bytes: 128, Role: blockhash.RoleUser, Value: 8}}}}
	class, err := journal.ParseName("batch")
	if err != nil {
		t.Fatal(err)
	}
	for what, want := range map[string]journal.Record{
		"inference": &journal.Inference{Span: span, Parent: journal.SpanID{9}, Start: 10, End: 20, Prompt: prompt, Follows: []journal.SpanID{{11}}, Tools: tools},
		"content":   &journal.Content{Span: span, Parent: journal.SpanID{9}, Start: 10, Prompt: prompt, Tools: tools},
		"link": &journal.Link{
			Span: span, Parent: journal.SpanID{9}, Session: 12, Border: true, Start: 10, End: 20, Acts: journal.Tool, Follows: []journal.SpanID{{11}}, Tools: tools,
			Class: class, Priority: mooncake.Some[int64](13),
		},
	} {
		for field, v := range reflect.ValueOf(want).Elem().Fields() {
			if v.IsZero() && what != "inference" { // visit gets that one as it was decoded
				t.Errorf("%s: this test leaves out %s", what, field.Name)
			}
		}
		record := journal.AppendRecord(nil, want)
		var d journal.Decoder
		if err := d.Decode(record); err != nil {
			t.Fatal(err)
		}
		td := ptrace.NewTraces()
		Carry(td.ResourceSpans().AppendEmpty().ScopeSpans().AppendEmpty().Spans().AppendEmpty(), record, &d)
		var got [][]byte
		if _, err := New(Config{}).Traces(td, func(r journal.Record) error {
			got = append(got, journal.AppendRecord(nil, r))
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		if len(got) != 1 || string(got[0]) != string(record) {
			t.Errorf("%s: got the records %x, want one: %x", what, got, record)
		}
	}
}
