// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package acceptance

// A separate Jaeger for a test, and its API, version 3, whose answers with spans have the wire format of OTLP. Over HTTP, Jaeger 1.76
// cannot search by attributes; over gRPC it can.

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"testing"
	"time"

	"go.opentelemetry.io/collector/pdata/ptrace"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/moonloop/moonloop/internal/testport"
)

// jaeger is a Jaeger that keeps its spans in memory.
type jaeger struct {
	otlpHTTP, otlpGRPC string // addresses at which it accepts spans
	api                string // of /api/v3
	query              *grpc.ClientConn
}

// startJaeger starts a Jaeger and waits until it answers.
func startJaeger(t *testing.T, dir string) *jaeger {
	t.Helper()
	address := map[string]string{}
	var flags []string
	for _, listener := range []string{
		"collector.otlp.http", "collector.otlp.grpc", "query.http-server", "query.grpc-server", "admin.http", "collector.grpc-server", "collector.http-server",
	} {
		address[listener] = testport.Address(t)
		flags = append(flags, "--"+listener+".host-port="+address[listener])
	}
	j := &jaeger{
		otlpHTTP: address["collector.otlp.http"], otlpGRPC: address["collector.otlp.grpc"],
		api: "http://" + address["query.http-server"] + "/api/v3/",
	}
	start(t, dir, "jaeger", []string{"COLLECTOR_OTLP_ENABLED=true"}, setting(t, "MOONLOOP_JAEGER"), flags...)
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(100 * time.Millisecond) {
		if response, err := http.Get(j.api + "services"); err == nil {
			_ = response.Body.Close()
			break
		} else if time.Now().After(deadline) {
			t.Fatalf("Jaeger does not answer: %v", err)
		}
	}
	var err error
	if j.query, err = grpc.NewClient(address["query.grpc-server"], grpc.WithTransportCredentials(insecure.NewCredentials())); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = j.query.Close() })
	return j
}

// jaegerSpan is a span in Jaeger's answer.
type jaegerSpan struct {
	ptrace.Span

	run string // of its resource
}

// has reports whether the span has an attribute.
func (s jaegerSpan) has(key string) bool {
	_, ok := s.Attributes().Get(key)
	return ok
}

// value returns an attribute as text, "" where there is none.
func (s jaegerSpan) value(key string) string {
	if v, ok := s.Attributes().Get(key); ok {
		return v.AsString()
	}
	return ""
}

func spansIn(traces ptrace.Traces) (spans []jaegerSpan) {
	for _, rs := range traces.ResourceSpans().All() {
		run := ""
		if v, ok := rs.Resource().Attributes().Get("mooncake.run.id"); ok {
			run = v.AsString()
		}
		for _, ss := range rs.ScopeSpans().All() {
			for _, s := range ss.Spans().All() {
				spans = append(spans, jaegerSpan{s, run})
			}
		}
	}
	return spans
}

// ofRun returns all spans of a run.
func (j *jaeger) ofRun(t *testing.T, run string) (spans []jaegerSpan) {
	t.Helper()
	for _, s := range j.get(t, "traces?"+url.Values{
		"query.service_name":   {"moonloop"},
		"query.start_time_min": {time.Now().Add(-time.Hour).UTC().Format(time.RFC3339)},
		"query.start_time_max": {time.Now().Add(time.Minute).UTC().Format(time.RFC3339)},
		"query.num_traces":     {"10000"},
	}.Encode()) {
		if s.run == run {
			spans = append(spans, s)
		}
	}
	return spans
}

// trace returns the spans of one trace.
func (j *jaeger) trace(t *testing.T, id string) []jaegerSpan {
	t.Helper()
	return j.get(t, "traces/"+id)
}

// get asks /api/v3 over HTTP.
func (j *jaeger) get(t *testing.T, path string) []jaegerSpan {
	t.Helper()
	response, err := http.Get(j.api + path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	if response.StatusCode == http.StatusNotFound {
		return nil // no trace is there
	}
	if err != nil || response.StatusCode != http.StatusOK {
		t.Fatalf("Jaeger: %s, %v\n%.300s", response.Status, err, body)
	}
	var answer struct {
		Result json.RawMessage `json:"result"`
	}
	if err := json.Unmarshal(body, &answer); err != nil {
		t.Fatal(err)
	}
	traces, err := new(ptrace.JSONUnmarshaler).UnmarshalTraces(answer.Result)
	if err != nil {
		t.Fatal(err)
	}
	return spansIn(traces)
}

// find returns the spans of a service that have all these attributes, on the span or its resource. Jaeger answers with whole traces in
// which one span has them; the other spans are left out.
func (j *jaeger) find(t *testing.T, service string, attributes map[string]string) (spans []jaegerSpan) {
	t.Helper()
	// A request of jaeger.api_v3: the query is field 1; in it, the service is field 1, attributes are 3, the bounds of the start time 4
	// and 5, the number of traces 8.
	query := protowire.AppendString(protowire.AppendTag(nil, 1, protowire.BytesType), service)
	for key, value := range attributes {
		var entry []byte
		entry = protowire.AppendString(protowire.AppendTag(entry, 1, protowire.BytesType), key)
		entry = protowire.AppendString(protowire.AppendTag(entry, 2, protowire.BytesType), value)
		query = protowire.AppendBytes(protowire.AppendTag(query, 3, protowire.BytesType), entry)
	}
	for field, at := range map[protowire.Number]time.Time{4: time.Now().Add(-time.Hour), 5: time.Now().Add(time.Minute)} {
		seconds := protowire.AppendVarint(protowire.AppendTag(nil, 1, protowire.VarintType), uint64(at.Unix()))
		query = protowire.AppendBytes(protowire.AppendTag(query, field, protowire.BytesType), seconds)
	}
	query = protowire.AppendVarint(protowire.AppendTag(query, 8, protowire.VarintType), 10_000)
	request := protowire.AppendBytes(protowire.AppendTag(nil, 1, protowire.BytesType), query)

	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	stream, err := j.query.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true}, "/jaeger.api_v3.QueryService/FindTraces",
		grpc.ForceCodec(asBytes{}), grpc.MaxCallRecvMsgSize(256<<20))
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(stream.SendMsg(&request), stream.CloseSend()); err != nil {
		t.Fatal(err)
	}
	for {
		var message []byte
		if err := stream.RecvMsg(&message); errors.Is(err, io.EOF) {
			return spans
		} else if err != nil {
			t.Fatalf("Jaeger: %v", err)
		}
		traces, err := new(ptrace.ProtoUnmarshaler).UnmarshalTraces(message)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range spansIn(traces) {
			matches := true
			for key, value := range attributes {
				matches = matches && (s.value(key) == value || key == "mooncake.run.id" && s.run == value)
			}
			if matches {
				spans = append(spans, s)
			}
		}
	}
}

// asBytes is gRPC's codec for messages that are already encoded.
type asBytes struct{}

func (asBytes) Name() string { return "proto" }

func (asBytes) Marshal(v any) ([]byte, error) {
	b, ok := v.(*[]byte)
	if !ok {
		return nil, fmt.Errorf("%T is not a message", v)
	}
	return *b, nil
}

func (asBytes) Unmarshal(data []byte, v any) error {
	b, ok := v.(*[]byte)
	if !ok {
		return fmt.Errorf("%T is not a message", v)
	}
	*b = append([]byte(nil), data...)
	return nil
}
