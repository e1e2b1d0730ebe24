// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"bytes"
	"runtime"
	"strings"
	"testing"

	"go.opentelemetry.io/collector/pdata/plog/plogotlp"
	"go.opentelemetry.io/collector/pdata/pmetric/pmetricotlp"
	"go.opentelemetry.io/collector/pdata/ptrace/ptraceotlp"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/moonloop/moonloop/internal/testwire"
)

const unlimited = int64(1) << 60

type unmarshaler interface {
	UnmarshalProto([]byte) error
	UnmarshalJSON([]byte) error
}

func requestOf(m *message) unmarshaler {
	switch m {
	case tracesRequest:
		return ptraceotlp.NewExportRequest()
	case logsRequest:
		return plogotlp.NewExportRequest()
	default:
		return pmetricotlp.NewExportRequest()
	}
}

// TestScanBounds makes small input large in each way that OTLP allows, and compares the decoder's memory with the computed size.
func TestScanBounds(t *testing.T) {
	const many = 1 << 15
	path := func(numbers ...protowire.Number) []protowire.Number { return numbers }
	for _, c := range []struct {
		name    string
		request *message
		around  []protowire.Number
		one     []byte // comes many times
	}{
		{"resources", tracesRequest, nil, testwire.Within(nil, 1)},
		{"scopes", tracesRequest, path(1), testwire.Within(nil, 2)},
		{"scopes in the deprecated field", tracesRequest, path(1), testwire.Within(nil, 1000)},
		{"entities", tracesRequest, path(1, 1), testwire.Within(nil, 3)},
		{"keys of entities", tracesRequest, path(1, 1, 3), testwire.Within(nil, 3)},
		{"attributes of a resource", tracesRequest, path(1, 1), testwire.Within(nil, 1)},
		{"attributes of a scope", tracesRequest, path(1, 2, 1), testwire.Within(nil, 3)},
		{"spans", tracesRequest, path(1, 2), testwire.Within(nil, 2)},
		{"attributes", tracesRequest, path(1, 2, 2), testwire.Within(nil, 9)},
		{"empty texts", tracesRequest, path(1, 2, 2), testwire.Within(nil, 9, 2, 1)},
		{"events", tracesRequest, path(1, 2, 2), testwire.Within(nil, 11)},
		{"attributes of an event", tracesRequest, path(1, 2, 2, 11), testwire.Within(nil, 3)},
		{"links", tracesRequest, path(1, 2, 2), testwire.Within(nil, 13)},
		{"values of a list", tracesRequest, path(1, 2, 2, 9, 2, 5), testwire.Within(nil, 1)},
		{"lists in a list", tracesRequest, path(1, 2, 2, 9, 2, 5), testwire.Within(nil, 1, 5)},
		{"maps in a list", tracesRequest, path(1, 2, 2, 9, 2, 5), testwire.Within(nil, 1, 6)},
		{"members of a map", tracesRequest, path(1, 2, 2, 9, 2, 6), testwire.Within(nil, 1)},
		{"log records", logsRequest, path(1, 2), testwire.Within(nil, 2)},
		{"values of a body", logsRequest, path(1, 2, 2, 5, 5), testwire.Within(nil, 1)},
		{"metrics", metricsRequest, path(1, 2), testwire.Within(nil, 2)},
		{"gauges", metricsRequest, path(1, 2), testwire.Within(nil, 2, 5)},
		{"points", metricsRequest, path(1, 2, 2, 7), testwire.Within(nil, 1)},
		{"exemplars", metricsRequest, path(1, 2, 2, 5, 1), testwire.Within(nil, 5)},
		{"histograms", metricsRequest, path(1, 2, 2, 9), testwire.Within(nil, 1)},
		{"buckets", metricsRequest, path(1, 2, 2, 9, 1, 6), make([]byte, 8)},
		{"exponential histograms", metricsRequest, path(1, 2, 2, 10), testwire.Within(nil, 1)},
		{"exponential buckets", metricsRequest, path(1, 2, 2, 10, 1, 8, 2), []byte{0}},
		{"exponential buckets one by one", metricsRequest, path(1, 2, 2, 10, 1, 8), []byte{2 << 3, 0}},
		{"summaries", metricsRequest, path(1, 2, 2, 11), testwire.Within(nil, 1)},
		{"quantiles", metricsRequest, path(1, 2, 2, 11, 1), testwire.Within(nil, 6)},
	} {
		t.Run(c.name, func(t *testing.T) {
			body := testwire.Within(bytes.Repeat(c.one, many), c.around...)
			foreseen, refused := scan(body, c.request, unlimited)
			if refused != nil {
				t.Fatal(refused)
			}
			foreseen += 2 * int64(len(body))
			request := requestOf(c.request)
			before := heap()
			if err := request.UnmarshalProto(body); err != nil {
				t.Fatal(err)
			}
			if took := heap() - before; took > foreseen {
				t.Errorf("%d bytes of request took %d of memory, and %d were foreseen", len(body), took, foreseen)
			} else if took > 0 && foreseen > 12*took+1<<20 {
				t.Errorf("%d bytes of request took %d of memory, and as many as %d were foreseen", len(body), took, foreseen)
			}
			runtime.KeepAlive(request)
			runtime.KeepAlive(body)
			if _, refused := scan(body, c.request, (foreseen-2*int64(len(body)))/2); refused != errTooLarge && c.name != "buckets" {
				t.Errorf("with half of that as the limit: %v, want errTooLarge", refused)
			}
		})
	}
}

func heap() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

func TestScanJSONBounds(t *testing.T) {
	const many = 1 << 16
	for name, parts := range map[string][3]string{
		"resources":  {`{"resourceSpans":[`, `{}`, `]}`},
		"spans":      {`{"resourceSpans":[{"scopeSpans":[{"spans":[`, `{}`, `]}]}]}`},
		"events":     {`{"resourceSpans":[{"scopeSpans":[{"spans":[{"events":[`, `{}`, `]}]}]}]}`},
		"attributes": {`{"resourceSpans":[{"scopeSpans":[{"spans":[{"attributes":[`, `{}`, `]}]}]}]}`},
		"entities":   {`{"resourceSpans":[{"resource":{"entityRefs":[{"idKeys":[`, `""`, `]}]}}]}`},
	} {
		t.Run(name, func(t *testing.T) {
			body := []byte(parts[0] + strings.Repeat(parts[1]+",", many-1) + parts[1] + parts[2])
			foreseen, refused := scanJSON(body, unlimited)
			if refused != nil {
				t.Fatal(refused)
			}
			request := requestOf(tracesRequest)
			before := heap()
			if err := request.UnmarshalJSON(body); err != nil {
				t.Fatal(err)
			}
			if took := heap() - before; took > foreseen || took < many {
				t.Errorf("%d bytes of request took %d of memory, and %d were foreseen", len(body), took, foreseen)
			}
			runtime.KeepAlive(request)
			runtime.KeepAlive(body)
		})
	}
	if _, refused := scanJSON([]byte(`{"a":"`+strings.Repeat(`{[\"`, 10_000)+`"}`), 1<<10); refused != nil {
		t.Errorf("braces within a text: %v", refused)
	}
	if _, refused := scanJSON([]byte(strings.Repeat(`{"arrayValue":{"values":[`, MaxDepth+10)), unlimited); refused != errTooDeep {
		t.Errorf("a request nested too deeply: %v", refused)
	}
}

func TestScanDepth(t *testing.T) {
	for _, c := range []struct {
		depth int
		want  *refusal
	}{{1, nil}, {MaxDepth - 1, nil}, {MaxDepth + 1, errTooDeep}, {1_000_000, errTooDeep}} {
		for name, body := range map[string][]byte{
			"attribute": testwire.Within(testwire.Nested(c.depth), 1, 2, 2, 9, 2), "scope": testwire.Within(testwire.Nested(c.depth), 1, 2, 1, 3, 2), "attribute in a deprecated scope": testwire.Within(testwire.Nested(c.depth), 1, 1000, 2, 9, 2),
		} {
			if _, refused := scan(body, tracesRequest, unlimited); refused != c.want {
				t.Errorf("%s, %d deep: %v, want %v", name, c.depth, refused, c.want)
			}
		}
		if _, refused := scan(testwire.Within(testwire.Nested(c.depth), 1, 2, 2, 5), logsRequest, unlimited); refused != c.want {
			t.Errorf("body, %d deep: %v, want %v", c.depth, refused, c.want)
		}
	}
}

// FuzzScan: the gate admits what the decoder accepts, except for deep nesting and groups.
func FuzzScan(f *testing.F) {
	f.Add(testwire.Within([]byte("text"), 1, 2, 2, 9, 2, 1), byte(0))
	f.Add(testwire.Within(testwire.Nested(200), 1, 2, 2, 5), byte(1))
	f.Add([]byte{1<<3 | byte(protowire.StartGroupType), 1<<3 | byte(protowire.EndGroupType)}, byte(2))
	f.Add([]byte("\n\x0eCC030208000000"), byte('0'))
	wide := protowire.AppendBytes(protowire.AppendVarint(nil, (1<<32|2)<<3|uint64(protowire.BytesType)), nil) // the decoder reads field 2
	f.Add(testwire.Within(bytes.Repeat(wide, 3), 1, 2), byte(0))
	f.Fuzz(func(t *testing.T, body []byte, signal byte) {
		m := []*message{tracesRequest, logsRequest, metricsRequest}[signal%3]
		foreseen, refused := scan(body, m, unlimited)
		if refused == errTooDeep || refused == errGroup {
			return
		}
		request := requestOf(m)
		if err := request.UnmarshalProto(body); err != nil {
			return
		}
		if refused != nil {
			t.Errorf("%x is refused: %v", body, refused)
		}
		var least int
		switch r := request.(type) {
		case ptraceotlp.ExportRequest:
			least = 200 * r.Traces().SpanCount()
		case plogotlp.ExportRequest:
			least = 150 * r.Logs().LogRecordCount()
		case pmetricotlp.ExportRequest:
			least = 100 * r.Metrics().MetricCount()
		}
		if foreseen < int64(least) {
			t.Errorf("%x takes %d bytes or more, and %d were foreseen", body, least, foreseen)
		}
	})
}

func BenchmarkScan(b *testing.B) {
	attribute := testwire.Within(append(testwire.Within([]byte("gen_ai.request.model"), 1), testwire.Within([]byte("llama-3.1-8b"), 2, 1)...), 9)
	one := testwire.Within(append(bytes.Repeat(attribute, 12), testwire.Within(make([]byte, 16), 1)...), 2)
	body := testwire.Within(bytes.Repeat(one, 100), 1, 2)
	b.SetBytes(int64(len(body)))
	for b.Loop() {
		if _, refused := scan(body, tracesRequest, unlimited); refused != nil {
			b.Fatal(refused)
		}
	}
}
