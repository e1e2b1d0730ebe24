// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package encoding

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/confmap"
	"go.opentelemetry.io/collector/extension/extensiontest"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.opentelemetry.io/otel/sdk/metric/metricdata/metricdatatest"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/moonloop/moonloop/blockhash"
	"github.com/moonloop/moonloop/capture"
	"github.com/moonloop/moonloop/capture/journal"
	"github.com/moonloop/moonloop/encoding/internal/metadata"
	"github.com/moonloop/moonloop/encoding/internal/metadatatest"
	"github.com/moonloop/moonloop/exporter/decode"
	"github.com/moonloop/moonloop/internal/testproducers"
	"github.com/moonloop/moonloop/mooncake"
	"github.com/moonloop/moonloop/receiver/annotate"
	"github.com/moonloop/moonloop/semconv"
)

func newTestCoder(t testing.TB) *coder {
	t.Helper()
	c, err := newCoder(extensiontest.NewNopSettings(metadata.Type), new(Config))
	require.NoError(t, err)
	return c
}

// raw returns the telemetry of all producers, spans and their logs, as it was sent.
func raw(t testing.TB) (spans []ptrace.Traces, logs []plog.Logs) {
	t.Helper()
	for _, producer := range testproducers.All() {
		for line := range bytes.Lines(producer.Traces) {
			td, err := (&ptrace.JSONUnmarshaler{}).UnmarshalTraces(line)
			require.NoError(t, err)
			spans = append(spans, td)
		}
		for line := range bytes.Lines(producer.Logs) {
			ld, err := (&plog.JSONUnmarshaler{}).UnmarshalLogs(line)
			require.NoError(t, err)
			logs = append(logs, ld)
		}
	}
	return spans, logs
}

// annotated returns the telemetry of all producers as a receiver passes it on.
func annotated(t testing.TB) []ptrace.Traces {
	t.Helper()
	config := annotate.DefaultCollectorConfig()
	config.HashKey = "a key for tests, of thirty-two bytes or more"
	a, err := config.Annotator()
	require.NoError(t, err)
	all, logs := raw(t)
	for _, td := range all {
		a.Traces(td)
	}
	for _, ld := range logs {
		if td, _ := a.Logs(ld); td.SpanCount() > 0 {
			all = append(all, td)
		}
	}
	return all
}

// recordsOf returns the records of spans, encoded.
func recordsOf(t testing.TB, all ...ptrace.Traces) (records []string, counts decode.Counts) {
	t.Helper()
	d := decode.New(decode.Config{})
	for _, td := range all {
		c, err := d.Traces(td, func(r journal.Record) error {
			records = append(records, string(journal.AppendRecord(nil, r)))
			return nil
		})
		require.NoError(t, err)
		counts.Add(c)
	}
	return records, counts
}

// TestRoundTrip: the exporter makes the same records from spans that were encoded and decoded as from the original spans, byte for byte,
// and a second round changes nothing.
func TestRoundTrip(t *testing.T) {
	c := newTestCoder(t)
	kinds := map[byte]int{}
	for _, td := range annotated(t) {
		want, wantCounts := recordsOf(t, td)
		message, err := c.MarshalTraces(td)
		require.NoError(t, err)
		back, err := c.UnmarshalTraces(message)
		require.NoError(t, err)
		got, gotCounts := recordsOf(t, back)
		require.Equal(t, want, got)
		wantCounts.Invalid = nil // what is not in a record is not counted again
		require.Equal(t, wantCounts, gotCounts)
		again, err := c.MarshalTraces(back)
		require.NoError(t, err)
		require.Equal(t, message, again)
		for _, r := range want {
			kinds[r[0]]++
		}
	}
	require.Greater(t, kinds['I'], 40)
	require.Positive(t, kinds['L'])
	require.Positive(t, kinds['C'])
}

// TestOnlyOurs: nothing of a span is sent except what a record has, wherever the span came from.
func TestOnlyOurs(t *testing.T) {
	const prompt = "lonely boat" // of one of the requests
	c := newTestCoder(t)
	spans, _ := raw(t)
	texts := 0
	for _, td := range spans {
		texts += strings.Count(strings.Join(testproducers.TraceBytes(t, td), ""), prompt)
	}
	require.Greater(t, texts, 10, "this test would see no leak")
	for _, td := range append(spans, annotated(t)...) {
		for _, s := range td.ResourceSpans().At(0).ScopeSpans().At(0).Spans().All() {
			s.Attributes().PutStr("mooncake.note", "a secret")
			s.Attributes().PutStr("tenant.name", "a secret")
			s.SetName("a secret")
		}
		message, err := c.MarshalTraces(td)
		require.NoError(t, err)
		back, err := c.UnmarshalTraces(message)
		require.NoError(t, err)
		for _, text := range append(testproducers.TraceBytes(t, back), string(message)) {
			require.NotContains(t, text, prompt)
			require.NotContains(t, text, "a secret")
		}
	}
}

// TestSettings: a rate of 0 is refused, once, and the default is valid.
func TestSettings(t *testing.T) {
	cfg := NewFactory().CreateDefaultConfig()
	require.NoError(t, confmap.Validate(cfg))
	require.NoError(t, confmap.NewFromStringMap(map[string]any{"sampling": map[string]any{"rate": 0}}).Unmarshal(cfg))
	require.EqualError(t, confmap.Validate(cfg), "sampling: rate is 0: it must be from 0.001 to 1, which records all requests")
}

// TestUnannotated: an unannotated request is left out, counted, and reported once; the spans next to it pass.
func TestUnannotated(t *testing.T) {
	telemetry := componenttest.NewTelemetry()
	t.Cleanup(func() { require.NoError(t, telemetry.Shutdown(context.Background())) }) // the test's context is over
	set := metadatatest.NewSettings(telemetry)
	core, logs := observer.New(zap.WarnLevel)
	set.Logger = zap.New(core)
	e, err := NewFactory().Create(t.Context(), set, new(Config))
	require.NoError(t, err)
	c := e.(*coder)
	require.NoError(t, c.Start(t.Context(), componenttest.NewNopHost()))

	td := ptrace.NewTraces()
	spans := td.ResourceSpans().AppendEmpty().ScopeSpans().AppendEmpty().Spans()
	add := func(id byte, attributes map[string]any) ptrace.Span {
		s := spans.AppendEmpty()
		s.SetTraceID(pcommon.TraceID{1})
		s.SetSpanID(pcommon.SpanID{id})
		s.SetStartTimestamp(1e18)
		s.SetEndTimestamp(1e18 + 1e9)
		require.NoError(t, s.Attributes().FromRaw(attributes))
		return s
	}
	add(1, map[string]any{"gen_ai.operation.name": "chat", "gen_ai.request.model": "m", "gen_ai.input.messages": "what was asked"})
	add(2, map[string]any{"http.route": "/v1"})
	add(3, map[string]any{semconv.Identity: "none", "gen_ai.request.model": "m", "gen_ai.usage.input_tokens": -5})
	add(0, nil)
	add(4, nil).SetTraceID(pcommon.TraceID{})

	var message []byte
	for range 2 {
		message, err = c.MarshalTraces(td)
		require.NoError(t, err)
	}
	back, err := c.UnmarshalTraces(message)
	require.NoError(t, err)
	require.Equal(t, 2, back.SpanCount())
	_, err = c.UnmarshalTraces(message[:len(message)-1])
	require.ErrorContains(t, err, "cut off")

	require.Equal(t, 1, logs.Len(), "the warning is logged once")
	require.Contains(t, logs.All()[0].Message, "put the receiver or the processor mooncake before")

	point := func(n int64, of ...attribute.KeyValue) metricdata.DataPoint[int64] {
		return metricdata.DataPoint[int64]{Attributes: attribute.NewSet(of...), Value: n}
	}
	reason := func(s string) attribute.KeyValue { return attribute.String("reason", s) }
	written, read := attribute.String("direction", "written"), attribute.String("direction", "read")
	inference, content, link := attribute.String("kind", "inference"), attribute.String("kind", "content"), attribute.String("kind", "link")
	points := func(p ...metricdata.DataPoint[int64]) []metricdata.DataPoint[int64] { return p }
	ignore := metricdatatest.IgnoreTimestamp()
	metadatatest.AssertEqualExtensionMooncakeEncodingDroppedSpans(t, telemetry,
		points(point(2, reason("unannotated")), point(2, reason("no_trace_id")), point(2, reason("no_span_id")),
			point(0, reason("sampled")), point(0, reason("undecided"))), ignore)
	metadatatest.AssertEqualExtensionMooncakeEncodingMessages(t, telemetry, points(point(2, written), point(1, read)), ignore)
	metadatatest.AssertEqualExtensionMooncakeEncodingFailedMessages(t, telemetry, points(point(0, written), point(1, read)), ignore)
	metadatatest.AssertEqualExtensionMooncakeEncodingSize(t, telemetry,
		points(point(2*int64(len(message)), written), point(int64(len(message)), read)), ignore)
	metadatatest.AssertEqualExtensionMooncakeEncodingInvalidValues(t, telemetry, points(point(0), point(2, attribute.String("attribute", "gen_ai.usage.input_tokens"))), ignore)
	metadatatest.AssertEqualExtensionMooncakeEncodingRecords(t, telemetry, points(
		point(2, written, inference), point(0, written, content), point(2, written, link),
		point(1, read, inference), point(0, read, content), point(1, read, link),
	), ignore)
	require.NoError(t, c.Shutdown(t.Context()))
}

// trace keeps what compile writes.
type trace struct {
	*mooncake.Writer
	to *bytes.Buffer
}

func (t trace) Commit(meta *mooncake.Meta) error { return meta.Write(t.to) }
func (trace) Close() error                       { return nil }

// compiled returns everything that compile makes from journals.
func compiled(t *testing.T, journals [][]byte) string {
	t.Helper()
	var sources []capture.Source
	for i, b := range journals {
		sources = append(sources, capture.Source{Name: fmt.Sprint(i), Open: func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(b)), nil }})
	}
	var out bytes.Buffer
	sink := func(capture.Partition) (capture.TraceWriter, error) {
		return trace{mooncake.NewWriter(&out), &out}, nil
	}
	_, err := capture.Compile(t.Context(), capture.Options{TempDir: t.TempDir()}, sink, sources...)
	require.NoError(t, err)
	return out.String()
}

// TestPartitions: the trace is the same with 1, 2 and 7 partitions, in whatever order the messages come, with some of them twice. It is
// also the same if the messages are objects that compile reads, and if they come back through a receiver to the exporter's journals.
func TestPartitions(t *testing.T) {
	c := newTestCoder(t)
	var messages [][]byte
	var partition []byte // for each message, a byte that depends on the trace id alone
	for _, td := range annotated(t) {
		for _, span := range td.ResourceSpans().At(0).ScopeSpans().At(0).Spans().All() { // a message a span: the hardest split
			one := ptrace.NewTraces()
			rs := one.ResourceSpans().AppendEmpty()
			td.ResourceSpans().At(0).Resource().CopyTo(rs.Resource())
			ss := rs.ScopeSpans().AppendEmpty()
			td.ResourceSpans().At(0).ScopeSpans().At(0).Scope().CopyTo(ss.Scope())
			span.CopyTo(ss.Spans().AppendEmpty())
			message, err := c.MarshalTraces(one)
			require.NoError(t, err)
			id := span.TraceID()
			messages, partition = append(messages, message), append(partition, id[15]^id[7]^id[0])
		}
	}
	want := compiled(t, [][]byte{slices.Concat(messages...)})
	require.Greater(t, strings.Count(want, "\n"), 40)
	rng := rand.New(rand.NewPCG(3, 4))
	for _, partitions := range []int{1, 2, 7} {
		objects, journals := make([][]byte, partitions), make([]journal.Batch, partitions)
		for _, i := range append(rng.Perm(len(messages)), rng.Perm(len(messages))[:50]...) {
			p := int(partition[i]) % partitions
			objects[p] = append(append(objects[p], messages[i]...), '\n')
			td, err := c.UnmarshalTraces(messages[i])
			require.NoError(t, err)
			_, err = decode.New(decode.Config{}).Traces(td, journals[p].Add)
			require.NoError(t, err)
		}
		require.Equal(t, want, compiled(t, objects), "objects of %d partitions", partitions)
		var written [][]byte
		for i := range journals {
			written = append(written, journals[i].AppendMessage(nil))
		}
		require.Equal(t, want, compiled(t, written), "journals of %d partitions", partitions)
	}
}

// TestHostileRecords: a record that cannot come from a span is invalid, and the span that contains it is treated like any other.
func TestHostileRecords(t *testing.T) {
	id := mooncake.SpanRef{TraceID: [16]byte{1}, SpanID: [8]byte{2}}
	d := decode.New(decode.Config{})
	for why, r := range map[string]*journal.Inference{
		"a negative count":              {InputTokens: mooncake.Some(int64(-1))},
		"a huge count":                  {OutputTokens: mooncake.Some(int64(1) << 60)},
		"a start before 1970":           {Start: -5},
		"an end before 1970":            {Start: 5, End: -5},
		"a first token after the end":   {Start: 5, End: 7, FirstToken: mooncake.Some(int64(8))},
		"a timestamp that is no number": {Timestamp: mooncake.Some(math.NaN())},
		"a request with a step":         {Step: journal.Step{ID: 1}},
		"text without cells":            {Prompt: journal.Prompt{Identity: journal.Text, Chain: blockhash.Chain{Bytes: 1 << 20}}},
		"ranges without a block size":   {Prompt: journal.Prompt{Identity: journal.Trace, HashRanges: []mooncake.HashRange{{First: 1, Count: 2}}}},
		"an empty range":                {Prompt: journal.Prompt{Identity: journal.Trace, FineBlockSize: 16, HashRanges: []mooncake.HashRange{{First: 1}}}},
		"an empty reply":                {Prompt: journal.Prompt{Identity: journal.Trace, Replies: []mooncake.Reply{{Back: 1}}}},
		"media without text":            {Prompt: journal.Prompt{Identity: journal.Text, MediaEnd: 128}},
	} {
		r.Span = id
		td := carrying(t, journal.AppendRecord(nil, r), id)
		var kinds []journal.Record
		counts, err := d.Traces(td, func(r journal.Record) error {
			kinds = append(kinds, r)
			return nil
		})
		require.NoError(t, err)
		require.Equal(t, map[string]int64{semconv.Record: 1}, counts.Invalid, why)
		require.IsType(t, new(journal.Link), kinds[0], why)
	}
	good := &journal.Inference{Span: id, Start: 5, End: 7, Prompt: journal.Prompt{Identity: journal.None}}
	counts, err := d.Traces(carrying(t, journal.AppendRecord(nil, good), id), func(journal.Record) error { return nil })
	require.NoError(t, err)
	require.Equal(t, decode.Counts{Inferences: 1}, counts)
	other := id
	other.SpanID[0]++
	counts, err = d.Traces(carrying(t, journal.AppendRecord(nil, good), other), func(journal.Record) error { return nil })
	require.NoError(t, err)
	require.Equal(t, decode.Counts{Links: 1, Invalid: map[string]int64{semconv.Record: 1}}, counts, "of another span")
}

// carrying returns a span with these ids and an attribute with a record.
func carrying(t *testing.T, record []byte, id mooncake.SpanRef) ptrace.Traces {
	t.Helper()
	td := ptrace.NewTraces()
	s := td.ResourceSpans().AppendEmpty().ScopeSpans().AppendEmpty().Spans().AppendEmpty()
	s.SetTraceID(id.TraceID)
	s.SetSpanID(id.SpanID)
	s.Attributes().PutEmptyBytes(semconv.Record).FromRaw(record)
	return td
}

// FuzzUnmarshal reads arbitrary bytes as a message. If that succeeds, the records in it stay the same when they are written and read again,
// unless there are records that no exporter accepts.
func FuzzUnmarshal(f *testing.F) {
	c := newTestCoder(f)
	for _, td := range annotated(f) {
		if message, err := c.MarshalTraces(td); err == nil && len(message) < 4<<10 {
			f.Add(message)
		}
	}
	f.Add([]byte("moonloop-journal 1\n\x00"))
	f.Fuzz(func(t *testing.T, b []byte) {
		td, err := c.UnmarshalTraces(b)
		if err != nil {
			require.Zero(t, td.SpanCount())
			return
		}
		records, counts := recordsOf(t, td)
		again, err := c.MarshalTraces(td)
		require.NoError(t, err)
		if counts.Invalid == nil && counts.Unannotated+counts.NoSpanID+counts.NoTraceID == 0 {
			require.Len(t, records, td.SpanCount())
			back, err := c.UnmarshalTraces(again)
			require.NoError(t, err)
			same, _ := recordsOf(t, back)
			require.Equal(t, records, same)
		}
	})
}
