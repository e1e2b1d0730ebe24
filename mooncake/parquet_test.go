// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package mooncake

import (
	"encoding/json"
	"errors"
	"io"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestParquetTrace: rows with every field are read back unchanged from a Parquet file, with their sidecar; a row with a field that has no
// column is refused.
func TestParquetTrace(t *testing.T) {
	name := filepath.Join(t.TempDir(), "t.parquet")
	f, err := CreateNew(name)
	if err != nil {
		t.Fatal(err)
	}
	want := []*Row{
		{Timestamp: Some(0.25), InputLength: Some[int64](600), OutputLength: Some[int64](0), HashIDs: []uint64{1<<64 - 1, 7}},
		{
			Timestamp: Some(1e9), InputLength: Some[int64](513), HashIDs: []uint64{0, 1}, HashRanges: []HashRange{{0, 32}, {1 << 63, 1}},
			Replies: []Reply{{1, 8, 16}}, SessionID: "s", RequestID: "r", Model: "m", Class: "batch", Priority: Some[int64](-3),
			OTel:     SpanRef{[16]byte{1}, [8]byte{2}},
			Observed: Observed{CachedTokens: Some[int64](512), TTFT: Some(0.5), Duration: Some(9.0), FinishReason: "stop"},
		},
		{TextInput: Some("a\u2028\"b\""), OutputLength: Some[int64](5), Delay: Some(0.125), SessionID: "s"},
		{Messages: json.RawMessage(`[{"role":"user","content":"x"}]`), Tools: json.RawMessage(`[{"type":"function"}]`), MessageMode: "history", Extra: json.RawMessage(`{"a":1}`)},
		{Payload: json.RawMessage(`{"prompt":"x"}`)},
		{InputLength: Some[int64](5), RequestID: "a", Timestamp: Some(2e9), WaitFor: []string{}},
		{InputLength: Some[int64](5), RequestID: "b", WaitFor: []string{"a"}, ToolWait: Some(3.0), Delay: Some(1.0)},
	}
	for _, row := range want {
		if err := f.Write(row); err != nil {
			t.Fatal(err)
		}
	}
	if err := f.Commit(&Meta{FineBlockSize: 16, BlockSize: 512}); err != nil {
		t.Fatal(err)
	}
	trace, err := Open(t.Context(), name, OpenOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer trace.Close()
	if m := trace.Meta(); m == nil || m.Rows != int64(len(want)) || m.Privacy.ContentRows != 3 || m.Privacy.HashedRows != 2 {
		t.Errorf("the sidecar says %+v", m)
	}
	for i := 0; ; i++ {
		got, err := trace.Read()
		if errors.Is(err, io.EOF) {
			if i != len(want) {
				t.Errorf("%d rows of %d", i, len(want))
			}
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want[i], got); diff != "" {
			t.Errorf("row %d (-want +got):\n%s", i, diff)
		}
	}

	f, err = Create(filepath.Join(t.TempDir(), "foreign.parquet"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	err = f.Write(&Row{InputLength: Some[int64](5), Foreign: map[string]json.RawMessage{"branches": json.RawMessage(`[]`)}})
	if err == nil || !strings.Contains(err.Error(), "name a .jsonl file") {
		t.Errorf("a field that has no column: %v", err)
	}
}
