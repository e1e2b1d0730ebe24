// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package mooncake

import (
	"bytes"
	"encoding/json"
	"errors"
	"math"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/moonloop/moonloop/mooncake/internal/testtrace"
)

func TestThePublicTraceKeepsItsBytes(t *testing.T) {
	data := testtrace.PublicData(t, 0)
	var b bytes.Buffer
	w := NewWriter(&b)
	for _, row := range publicRows(t, 0) {
		if err := w.Write(row); err != nil {
			t.Fatal(err)
		}
	}
	if w.Rows() != 12031 || !bytes.Equal(b.Bytes(), data) {
		t.Errorf("%d rows, %d bytes, want the %d bytes that were read", w.Rows(), b.Len(), len(data))
	}
}

func TestAppendRow(t *testing.T) {
	for name, test := range map[string]struct {
		row  Row
		want string
	}{
		"the public style": {
			Row{Timestamp: Some(0.), InputLength: Some[int64](6758), OutputLength: Some[int64](500), HashIDs: []uint64{0, 1}},
			`{"timestamp": 0, "input_length": 6758, "output_length": 500, "hash_ids": [0, 1]}`,
		},
		"digits below the millisecond, large ids": {
			Row{Timestamp: Some(0.1), InputLength: Some[int64](1), HashIDs: []uint64{math.MaxUint64}},
			`{"timestamp": 0.1, "input_length": 1, "hash_ids": [18446744073709551615]}`,
		},
		"no exponents": {
			Row{Timestamp: Some(1e15), Delay: Some(1e-7), TextInput: Some("")},
			`{"timestamp": 1000000000000000, "text_input": "", "delay": 0.0000001}`,
		},
		"half a span reference is left out, since it could not be read": {
			Row{InputLength: Some[int64](1), OTel: SpanRef{SpanID: [8]byte{0xcd}}},
			`{"input_length": 1}`,
		},
		"raw JSON as it is, unless it breaks the line": {
			Row{
				Messages: json.RawMessage(`[{"role" :"user"}]`), Tools: json.RawMessage("[\n{}\n]"), MessageMode: "delta",
				Extra: json.RawMessage(`{"a":1}`),
			},
			`{"messages": [{"role" :"user"}], "tools": [{}], "message_mode": "delta", "extra": {"a":1}}`,
		},
		"extensions in their order": {
			Row{
				Timestamp: Some(5.), InputLength: Some[int64](1), HashIDs: []uint64{}, Delay: Some(2.5), SessionID: "s\n", RequestID: "r",
				Model: "m", Class: "batch", Priority: Some[int64](-1), OTel: SpanRef{[16]byte{0xab}, [8]byte{0xcd}},
				WaitFor: []string{"a", "b"}, Evidence: []Evidence{EvidenceLink, EvidenceTime}, ToolWait: Some(1.25),
				Foreign: map[string]json.RawMessage{"branches": json.RawMessage(`["a"]`), "strict_priority": json.RawMessage("1")},
			},
			`{"timestamp": 5, "input_length": 1, "hash_ids": [], "delay": 2.5, "tool_wait_ms": 1.25, "wait_for": ["a", "b"], ` +
				`"wait_evidence": ["link", "time"], "session_id": "s\n", "request_id": "r", "model": "m", "class": "batch", "priority": -1, ` +
				`"otel": {"trace_id": "ab000000000000000000000000000000", "span_id": "cd00000000000000"}, "branches": ["a"], "strict_priority": 1}`,
		},
		"nothing": {Row{}, "{}"},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff("x"+test.want, string(AppendRow([]byte("x"), &test.row))); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestWriterRefusesWhatAReaderRefuses(t *testing.T) {
	for name, row := range map[string]*Row{
		"no prompt":       {},
		"not a number":    {InputLength: Some[int64](1), Timestamp: Some(math.NaN())},
		"broken messages": {Messages: json.RawMessage(`[{"role":`)},
		"broken payload":  {Payload: json.RawMessage(`{"a":1`)},
		"trailing data":   {Payload: json.RawMessage(`{"a":1}}`)},
		"broken foreign":  {InputLength: Some[int64](1), Foreign: map[string]json.RawMessage{"branches": json.RawMessage("{")}},
	} {
		var b bytes.Buffer
		if err := NewWriter(&b).Write(row); err == nil || b.Len() > 0 {
			t.Errorf("%s: error %v, wrote %q", name, err, b.String())
		}
	}
}

type brokenWriter struct{ err error }

func (w brokenWriter) Write([]byte) (int, error) { return 0, w.err }

func TestWriterSaysWhatWasNotWritten(t *testing.T) {
	full := errors.New("disk full")
	w := NewWriter(brokenWriter{full})
	err := w.Write(&Row{InputLength: Some[int64](1)})
	if !errors.Is(err, full) || !strings.Contains(err.Error(), "row 1") || w.Rows() != 0 {
		t.Errorf("error %v, %d rows", err, w.Rows())
	}
}

// TestMilliseconds: a time is the shortest decimal that gives the same float, whether it is a number of ns or not.
func TestMilliseconds(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for i := range 200_000 {
		ms := math.Float64frombits(random.Uint64()>>2 | 0x3f<<56) // 2^-15 to 2
		switch i % 4 {
		case 0:
			ms = math.Round(random.Float64()*float64(uint64(1)<<(i%40))*1e6) / 1e6
		case 1:
			ms = float64(random.Int64N(1e12)) / 1e6
		case 2:
			ms = random.Float64() * float64(uint64(1)<<(i%40))
		}
		o := object{}
		o.milliseconds("t", Some(ms))
		if got, want := string(o.dst), `"t": `+strconv.FormatFloat(ms, 'f', -1, 64); got != want {
			t.Fatalf("%s, want %s", got, want)
		}
	}
}

func BenchmarkAppendRow(b *testing.B) {
	rows := publicRows(b, 0)
	var buf []byte
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		buf = AppendRow(buf[:0], rows[i%len(rows)])
	}
}
