// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package telemetry

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.uber.org/goleak"

	"github.com/moonloop/moonloop/agent/clock"
	"github.com/moonloop/moonloop/agent/measure"
	"github.com/moonloop/moonloop/agent/send"
	"github.com/moonloop/moonloop/mooncake"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const ms = time.Millisecond

// cleanEnv empties every variable that has an effect, so that the machine's settings have none, and then sets the given ones.
func cleanEnv(t *testing.T, set ...string) {
	t.Helper()
	for _, signal := range []string{"", "TRACES_", "METRICS_"} {
		for _, secret := range []string{"CERTIFICATE", "CLIENT_CERTIFICATE", "CLIENT_KEY", "HEADERS"} {
			t.Setenv("OTEL_EXPORTER_OTLP_"+signal+secret, "")
		}
	}
	for _, name := range []string{
		"OTEL_SDK_DISABLED", "OTEL_TRACES_EXPORTER", "OTEL_METRICS_EXPORTER", "OTEL_EXPORTER_OTLP_ENDPOINT",
		"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", "OTEL_EXPORTER_OTLP_PROTOCOL",
		"OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_METRICS_PROTOCOL", "OTEL_TRACES_SAMPLER",
		"OTEL_TRACES_SAMPLER_ARG", "OTEL_SPAN_EVENT_COUNT_LIMIT", "OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT", "OTEL_SERVICE_NAME",
		"OTEL_RESOURCE_ATTRIBUTES", "OTEL_BSP_SCHEDULE_DELAY", "OTEL_BSP_EXPORT_TIMEOUT", "OTEL_BSP_MAX_EXPORT_BATCH_SIZE",
		"OTEL_METRIC_EXPORT_INTERVAL",
	} {
		t.Setenv(name, "")
	}
	for _, kv := range set {
		if name, value, ok := strings.Cut(kv, "="); ok {
			t.Setenv(name, value)
		}
	}
}

// fakeExporter keeps the spans that it gets, unless the function in its field do returns an error.
type fakeExporter struct {
	do func(ctx context.Context, spans []sdktrace.ReadOnlySpan) error

	mu      sync.Mutex
	batches []int
	spans   []sdktrace.ReadOnlySpan
}

func (f *fakeExporter) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	if f.do != nil {
		if err := f.do(ctx, spans); err != nil {
			return err
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.batches = append(f.batches, len(spans))
	f.spans = append(f.spans, spans...)
	return nil
}

func (f *fakeExporter) Shutdown(context.Context) error { return nil }

// stubs returns the spans that arrived, by name.
func (f *fakeExporter) stubs() map[string][]tracetest.SpanStub {
	f.mu.Lock()
	defer f.mu.Unlock()
	by := make(map[string][]tracetest.SpanStub)
	for _, s := range tracetest.SpanStubsFromReadOnlySpans(f.spans) {
		by[s.Name] = append(by[s.Name], s)
	}
	return by
}

// start starts a pipeline that is shut down at the test's end.
func start(t testing.TB, cfg Config) (*Pipeline, clock.Clock) {
	t.Helper()
	clk := clock.New()
	p, err := Start(t.Context(), cfg, clk)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if _, err := p.Shutdown(ctx); err != nil {
			t.Error(err)
		}
	})
	return p, clk
}

func shutdown(t *testing.T, p *Pipeline) Loss {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	loss, err := p.Shutdown(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if loss.Ended != loss.Accepted+loss.LostSpans() {
		t.Errorf("the account does not add up: %+v", loss)
	}
	return loss
}

// LostSpans returns the number of spans that ended and that no receiver accepted.
func (l *Loss) LostSpans() int64 {
	n := int64(0)
	for _, lost := range l.Lost {
		n += lost
	}
	return n
}

// finish sends a record through the pipeline.
func finish(p *Pipeline, s *Session, r *measure.Record) Span {
	sp := p.StartRequest(s, r.Row, r.Intended)
	p.Finish(sp, r)
	return sp
}

// served returns a record of a streamed request that was due at 100 ms, dispatched at 101 ms, and on the wire at 105 ms. Its chunks came at 150
// ms and every 10 ms after that.
func served(chunks int) *measure.Record {
	r := &measure.Record{
		Row: &mooncake.Row{
			Timestamp: mooncake.Some(27482.5), InputLength: mooncake.Some(int64(1300)), OutputLength: mooncake.Some(int64(chunks)),
			HashIDs: []uint64{46, 47, 1<<64 - 1},
		},
		Index: 7, Outcome: measure.Served,
		Offset: 100 * ms, Spread: 20 * ms, Intended: 100 * ms, Scheduled: true, Dispatched: 101 * ms, Admitted: 103 * ms,
		Sent: true, PromptTokens: 1300, OutputTokensAsked: int64(chunks), Stream: true, Predicted: 1024,
		Prompt: measure.AgreeDifferent,
		Exchange: send.Exchange{
			Start: 103 * ms, Wire: 105 * ms, FirstByte: 140 * ms, Headers: 140 * ms, FirstEvent: 145 * ms, FirstAnswer: 150 * ms,
			Usage:        send.Usage{Prompt: 1302, Completion: int64(chunks), Cached: 512, Reasoning: send.Unknown},
			FinishReason: "length", ResponseID: "cmpl-1", Model: "m-2", Status: 200, Attempts: 1, Done: true, Coalesced: 2,
		},
	}
	x := &r.Exchange
	for i := range chunks {
		x.At = append(x.At, int64(150*ms+time.Duration(i)*10*ms))
		x.Read = append(x.Read, uint32(i))
		x.Tokens = append(x.Tokens, int32(i%3+1))
	}
	x.End = 151*ms + time.Duration(chunks)*10*ms // the usage chunk and [DONE]
	return r
}

// failed returns a record of a request that failed at 200 ms without having reached the wire.
func failed(class send.Class) *measure.Record {
	r := served(0)
	r.Prompt = measure.AgreeUnknown
	r.Outcome, r.Reason, r.Message = measure.Failed, string(class), "something went wrong"
	r.Exchange = send.Exchange{
		Start: 103 * ms, Wire: clock.Never, FirstByte: clock.Never, Headers: clock.Never, FirstEvent: clock.Never,
		FirstAnswer: clock.Never, End: 200 * ms, Usage: send.NoUsage, Attempts: 1, Err: &send.Error{Class: class},
	}
	return r
}

// attributeMap makes attributes comparable.
func attributeMap(kvs []attribute.KeyValue) map[string]any {
	m := make(map[string]any, len(kvs))
	for _, kv := range kvs {
		m[string(kv.Key)] = kv.Value.AsInterface()
	}
	return m
}
