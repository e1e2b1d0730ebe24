// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package collector

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/collector/pdata/ptrace/ptraceotlp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/mem"

	"github.com/moonloop/moonloop/mooncake"
)

// load makes encoded OTLP requests. A request is a copy of one that was encoded once, with ids, times and the prompt's beginning
// overwritten: making it costs much less than receiving it.
type load struct {
	encoded []byte
	spans   int // in a request; log records, if it has those
	holes   []hole
}

// hole is a position in an encoded request; each copy has its own bytes there.
type hole struct {
	at, request int // offset, and index of the model request within the OTLP request
	what        byte
}

// These are the contents of holes. A span of a model request has the request's number in its ids; children differ in the first byte of the span id,
// which does not change.
const (
	holeTrace  = 't' // 8 bytes, the latter half of the trace id
	holeSpan   = 's' // 7 bytes, all but the first of the span id
	holeStart  = 'a' // 8 bytes, little-endian ns
	holeEnd    = 'e'
	holePrompt = 'p' // 16 hex digits
)

// marker returns 7 bytes that mark a hole until it is found; no other bytes of a request look like them.
func marker(what byte, request int) [7]byte {
	return [7]byte{0xfe, 0xed, 0xfa, 0xce, what, byte(request >> 8), byte(request)}
}

const promptMarker = "#################"

// production makes requests as an instrumented application sends them: inference spans whose prompts, of the given number of bytes, are
// new from their first bytes on.
func production(t testing.TB, requests, promptBytes int) *load {
	t.Helper()
	return encode(t, productionSpans(requests, promptBytes), requests)
}

func productionSpans(requests, promptBytes int) ptrace.Traces {
	td := ptrace.NewTraces()
	resource := td.ResourceSpans().AppendEmpty()
	resource.Resource().Attributes().PutStr("service.name", "shop")
	spans := resource.ScopeSpans().AppendEmpty().Spans()
	for i := range requests {
		span := spans.AppendEmpty()
		span.SetName("chat llama-3.1-8b")
		span.SetKind(ptrace.SpanKindClient)
		identify(span, 0, i)
		a := span.Attributes()
		a.PutStr("gen_ai.operation.name", "chat")
		a.PutStr("gen_ai.provider.name", "openai")
		a.PutStr("gen_ai.request.model", "llama-3.1-8b")
		a.PutStr("server.address", "engine.internal")
		a.PutInt("gen_ai.usage.input_tokens", int64(promptBytes/4))
		a.PutInt("gen_ai.usage.output_tokens", 200)
		a.PutEmptySlice("gen_ai.response.finish_reasons").AppendEmpty().SetStr("stop")
		text := promptMarker + fmt.Sprintf("%03d", i) + strings.Repeat(" the quick brown fox jumps over the lazy dog", promptBytes/44+1)
		a.PutStr("gen_ai.input.messages", `[{"role":"user","parts":[{"type":"text","content":"`+text[:max(promptBytes, 32)]+`"}]}]`)
	}
	return td
}

// replay makes requests as the agent sends them: a request span with block ids and its three phases.
func replay(t *testing.T, requests int) *load {
	t.Helper()
	td := ptrace.NewTraces()
	resource := td.ResourceSpans().AppendEmpty()
	resource.Resource().Attributes().PutStr("service.name", "moonloop")
	resource.Resource().Attributes().PutStr("mooncake.run.id", "load")
	spans := resource.ScopeSpans().AppendEmpty().Spans()
	for i := range requests {
		span := spans.AppendEmpty()
		span.SetName("chat llama-3.1-8b")
		span.SetKind(ptrace.SpanKindClient)
		identify(span, 0, i)
		a := span.Attributes()
		a.PutStr("gen_ai.operation.name", "chat")
		a.PutStr("gen_ai.provider.name", "_OTHER")
		a.PutStr("gen_ai.request.model", "llama-3.1-8b")
		a.PutBool("gen_ai.request.stream", true)
		a.PutInt("gen_ai.usage.input_tokens", 12035)
		a.PutInt("gen_ai.usage.output_tokens", 343)
		a.PutEmptySlice("gen_ai.response.finish_reasons").AppendEmpty().SetStr("length")
		a.PutDouble("gen_ai.response.time_to_first_chunk", 0.41)
		a.PutStr("server.address", "engine.internal")
		a.PutStr("mooncake.identity", "trace")
		a.PutStr("mooncake.hash.domain", "0a1b2c3d")
		a.PutInt("mooncake.block_size", 512)
		a.PutInt("mooncake.row", int64(i))
		a.PutDouble("mooncake.timestamp", float64(1000*i))
		a.PutInt("mooncake.input_length", 12035)
		a.PutInt("mooncake.output_length", 343)
		a.PutDouble("mooncake.schedule.offset", float64(i))
		a.PutDouble("mooncake.schedule.lateness", 0.0001)
		ids := a.PutEmptySlice("mooncake.hash_ids")
		for id := range 24 { // ceil(12035 / 512)
			ids.AppendEmpty().SetInt(int64(i*24 + id))
		}
		for phase, name := range []string{"queue", "prefill", "decode"} {
			child := spans.AppendEmpty()
			child.SetName(name)
			identify(child, byte(phase+1), i)
			parent := span.SpanID()
			child.SetParentSpanID(parent)
		}
	}
	return encode(t, td, requests)
}

// identify gives a span the markers of a request. The ordinal, the first byte of the span id, is 0 for the request's own span.
func identify(span ptrace.Span, ordinal byte, request int) {
	trace, id := marker(holeTrace, request), marker(holeSpan, request)
	span.SetTraceID(pcommon.TraceID(append(bytes.Repeat([]byte{1}, 9), trace[:]...)))
	span.SetSpanID(pcommon.SpanID(append([]byte{ordinal + 1}, id[:]...)))
	start, end := marker(holeStart, request), marker(holeEnd, request)
	span.SetStartTimestamp(pcommon.Timestamp(binary.LittleEndian.Uint64(append(start[:], 0))))
	span.SetEndTimestamp(pcommon.Timestamp(binary.LittleEndian.Uint64(append(end[:], 0))))
}

// encode encodes the requests.
func encode(t testing.TB, td ptrace.Traces, requests int) *load {
	t.Helper()
	encoded, err := ptraceotlp.NewExportRequestFromTraces(td).MarshalProto()
	if err != nil {
		t.Fatal(err)
	}
	return punch(t, encoded, requests, td.SpanCount())
}

// punch finds the holes of an encoded request with this many spans or log records.
func punch(t testing.TB, encoded []byte, requests, spans int) *load {
	t.Helper()
	l := &load{encoded: encoded, spans: spans}
	find := func(pattern []byte, add func(at int)) {
		for from := 0; ; {
			i := bytes.Index(encoded[from:], pattern)
			if i < 0 {
				return
			}
			add(from + i)
			from += i + len(pattern)
		}
	}
	for request := range requests {
		for _, what := range []byte{holeTrace, holeSpan, holeStart, holeEnd} {
			m := marker(what, request)
			find(m[:], func(at int) { l.holes = append(l.holes, hole{at, request, what}) })
		}
		find(fmt.Appendf(nil, "%s%03d", promptMarker, request), func(at int) { l.holes = append(l.holes, hole{at, request, holePrompt}) })
	}
	// At least a trace id and a span id, and two times, or, for a log record, one time and a prompt.
	if len(l.holes) < 4*l.spans {
		t.Fatalf("%d holes in a request of %d spans", len(l.holes), l.spans)
	}
	return l
}

// next returns a new OTLP request; its model requests are numbered from first, and start at the given instant.
func (l *load) next(first uint64, at time.Time) []byte {
	body := bytes.Clone(l.encoded)
	for _, h := range l.holes {
		n := first + uint64(h.request)
		to := body[h.at:]
		switch h.what {
		case holeTrace, holeSpan:
			number(to[:7], n)
		case holeStart:
			binary.LittleEndian.PutUint64(to, uint64(at.UnixNano()))
		case holeEnd:
			binary.LittleEndian.PutUint64(to, uint64(at.Add(3*time.Second).UnixNano()))
		case holePrompt:
			hex.Encode(to[:16], binary.BigEndian.AppendUint64(nil, n*0x9e3779b97f4a7c15))
		}
	}
	return body
}

// number writes n as 7 bytes, big-endian.
func number(to []byte, n uint64) {
	var b [8]byte
	binary.BigEndian.PutUint64(b[:], n)
	copy(to, b[1:])
}

// spanOf returns the reference of the own span of the model request with number n.
func spanOf(n uint64) mooncake.SpanRef {
	trace, id := bytes.Repeat([]byte{1}, 16), []byte{1, 0, 0, 0, 0, 0, 0, 0}
	number(trace[9:], n)
	number(id[1:], n)
	return mooncake.SpanRef{TraceID: [16]byte(trace), SpanID: [8]byte(id)}
}

// sender sends encoded requests over OTLP/gRPC, as fast as they are acknowledged.
type sender struct {
	connection *grpc.ClientConn
	sent       atomic.Int64 // requests acknowledged
}

func dial(t *testing.T, address string, more ...grpc.DialOption) *sender {
	t.Helper()
	// The client reconnects at once after a restart: by default, it would wait a second and more.
	soon := grpc.ConnectParams{Backoff: backoff.Config{BaseDelay: 10 * time.Millisecond, Multiplier: 1, MaxDelay: 10 * time.Millisecond}, MinConnectTimeout: time.Second}
	options := append([]grpc.DialOption{grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithConnectParams(soon)}, more...)
	connection, err := grpc.NewClient(address, options...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = connection.Close() })
	return &sender{connection: connection}
}

// These are OTLP's names of its methods.
const (
	exportTraces = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"
	exportLogs   = "/opentelemetry.proto.collector.logs.v1.LogsService/Export"
)

// export sends a request of spans, and returns an error unless it was acknowledged completely.
func (s *sender) export(ctx context.Context, body []byte) error {
	return s.invoke(ctx, exportTraces, body)
}

// invoke does the same for a request of either kind: their responses look alike.
func (s *sender) invoke(ctx context.Context, method string, body []byte) error {
	var reply []byte
	err := s.connection.Invoke(ctx, method, body, &reply, grpc.ForceCodecV2(asIs{}))
	if err != nil {
		return err
	}
	response := ptraceotlp.NewExportResponse()
	if err := response.UnmarshalProto(reply); err != nil {
		return err
	}
	if n := response.PartialSuccess().RejectedSpans(); n > 0 {
		return fmt.Errorf("%d spans or records rejected: %s", n, response.PartialSuccess().ErrorMessage())
	}
	s.sent.Add(1)
	return nil
}

// asIs is the codec of messages that are encoded already.
type asIs struct{}

// Name is that of the protobuf codec, which the server needs.
func (asIs) Name() string { return "proto" }

// Marshal returns a []byte unchanged.
func (asIs) Marshal(v any) (mem.BufferSlice, error) {
	return mem.BufferSlice{mem.SliceBuffer(v.([]byte))}, nil
}

// Unmarshal fills a *[]byte.
func (asIs) Unmarshal(data mem.BufferSlice, v any) error {
	*v.(*[]byte) = data.Materialize()
	return nil
}

// TestLoad checks the load: every request decodes, ids and prompts are new, children are below their spans.
func TestLoad(t *testing.T) {
	seen := map[string]bool{}
	for _, l := range []*load{production(t, 300, 500), replay(t, 30)} {
		for first := uint64(1); first < 1000; first += 300 {
			request := ptraceotlp.NewExportRequest()
			at := time.Unix(1_800_000_000, 0)
			if err := request.UnmarshalProto(l.next(first, at)); err != nil {
				t.Fatal(err)
			}
			spans := request.Traces().ResourceSpans().At(0).ScopeSpans().At(0).Spans()
			if spans.Len() != l.spans {
				t.Fatalf("%d spans, want %d", spans.Len(), l.spans)
			}
			var parent ptrace.Span
			own := uint64(0)
			for _, span := range spans.All() {
				if span.ParentSpanID().IsEmpty() {
					parent = span
					want := spanOf(first + own)
					own++
					if got := (mooncake.SpanRef{TraceID: span.TraceID(), SpanID: span.SpanID()}); got != want {
						t.Fatalf("span %v, want %v", got, want)
					}
				} else if span.ParentSpanID() != parent.SpanID() || span.TraceID() != parent.TraceID() {
					t.Fatalf("a child is below span %v of trace %v", span.ParentSpanID(), span.TraceID())
				}
				key := span.TraceID().String() + span.SpanID().String()
				if text, ok := span.Attributes().Get("gen_ai.input.messages"); ok {
					key = text.Str()[:100]
					if len(text.Str()) < 500 || strings.Contains(key, "#######") {
						t.Fatalf("prompt %q", key)
					}
				}
				if seen[key] {
					t.Fatalf("%s comes twice", key)
				}
				seen[key] = true
				if span.StartTimestamp().AsTime() != at.UTC() || span.EndTimestamp() <= span.StartTimestamp() {
					t.Fatalf("times %v to %v", span.StartTimestamp(), span.EndTimestamp())
				}
			}
		}
		seen = map[string]bool{}
	}
}
