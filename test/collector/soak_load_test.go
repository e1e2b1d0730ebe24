// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package collector

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/plog/plogotlp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	_ "google.golang.org/grpc/encoding/gzip" // of what the Collector forwards
)

// conversations makes the requests of production with sessions, of three turns each; every other prompt is in a log record instead of its
// span, as in instrumentation of the newer conventions.
func conversations(t *testing.T, requests, promptBytes int) (spans, logs *load) {
	t.Helper()
	td, ld := productionSpans(requests, promptBytes), plog.NewLogs()
	resource := ld.ResourceLogs().AppendEmpty()
	resource.Resource().Attributes().PutStr("service.name", "shop")
	records := resource.ScopeLogs().AppendEmpty().LogRecords()
	for i, span := range td.ResourceSpans().At(0).ScopeSpans().At(0).Spans().All() {
		span.Attributes().PutStr("gen_ai.conversation.id", fmt.Sprintf("%s%03d", promptMarker, i-i%3))
		if i%2 == 0 {
			continue
		}
		record := records.AppendEmpty()
		record.SetEventName("gen_ai.client.inference.operation.details")
		record.SetTraceID(span.TraceID())
		record.SetSpanID(span.SpanID())
		record.SetTimestamp(span.StartTimestamp())
		prompt, _ := span.Attributes().Get("gen_ai.input.messages")
		prompt.CopyTo(record.Attributes().PutEmpty("gen_ai.input.messages"))
		span.Attributes().Remove("gen_ai.input.messages")
	}
	encoded, err := plogotlp.NewExportRequestFromLogs(ld).MarshalProto()
	if err != nil {
		t.Fatal(err)
	}
	return encode(t, td, requests), punch(t, encoded, requests, records.Len())
}

// shop is an application in production: always new conversations, at a steady rate, over connections that come and go.
type shop struct {
	spans, logs *load
	grpc, http  string // addresses of the Collector
	patience    clients

	sent, records atomic.Int64 // model requests, and log records, that were acknowledged
	connections   atomic.Int64
}

const (
	shopBatch   = 12 // model requests in a request of OTLP
	shopReuse   = 50 // requests of OTLP over one connection
	shopViaHTTP = 8  // one request of OTLP in this many goes over HTTP, with a separate connection
)

func newShop(t *testing.T, c *collector) *shop {
	t.Helper()
	s := &shop{grpc: c.address, http: c.http}
	s.spans, s.logs = conversations(t, shopBatch, 4096)
	return s
}

// run sends this many model requests a second until the context ends, each until it is acknowledged.
func (s *shop) run(ctx context.Context, perSecond float64) error {
	pause := time.Duration(shopBatch / perSecond * float64(time.Second))
	var connection *sender
	hangUp := func() {
		if connection != nil {
			_ = connection.connection.Close()
		}
	}
	defer func() { hangUp() }()
	began := time.Now()
	for k := 0; ; k++ {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(time.Until(began.Add(time.Duration(k) * pause))):
		}
		if k%shopReuse == 0 {
			hangUp()
			client, err := grpc.NewClient(s.grpc, grpc.WithTransportCredentials(insecure.NewCredentials()))
			if err != nil {
				return err
			}
			connection = &sender{connection: client}
			s.connections.Add(1)
		}
		first, now := uint64(k*shopBatch+1), time.Now()
		spans, logs := s.spans.next(first, now), s.logs.next(first, now)
		err := s.patience.deliver(func(ctx context.Context) error {
			if k%shopViaHTTP == 0 {
				return s.post(ctx, spans)
			}
			return connection.export(ctx, spans)
		})
		if err != nil {
			return err
		}
		s.sent.Add(shopBatch)
		err = s.patience.deliver(func(ctx context.Context) error { return connection.invoke(ctx, exportLogs, logs) })
		if err != nil {
			return err
		}
		s.records.Add(int64(s.logs.spans))
	}
}

// post sends spans over HTTP.
func (s *shop) post(ctx context.Context, body []byte) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+s.http+"/v1/traces", bytes.NewReader(body))
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", "application/x-protobuf")
	request.Close = true
	s.connections.Add(1)
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	if _, err := io.Copy(io.Discard, response.Body); err != nil {
		return err
	}
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("POST /v1/traces: %s", response.Status)
	}
	return nil
}

// churn opens a connection ten times a second, sends something malformed or an incomplete request, and drops it.
func churn(ctx context.Context, grpcAddress, httpAddress, engine string) (dropped int64) {
	const begun = "POST %s HTTP/1.1\r\nHost: soak\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n{"
	visits := []struct{ address, says string }{
		{grpcAddress, ""},
		{grpcAddress, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\nno frame of HTTP/2 looks like this"},
		{httpAddress, fmt.Sprintf(begun, "/v1/traces")},
		{httpAddress, "POST /v1/traces HTTP/1.1\r\nHost: soak\r\nContent-Type: application/x-protobuf\r\nContent-Length: 4\r\n\r\nnone"},
		{engine, fmt.Sprintf(begun, "/v1/chat/completions")},
	}
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return dropped
		case <-tick.C:
		}
		visit := visits[dropped%int64(len(visits))]
		connection, err := new(net.Dialer).DialContext(ctx, "tcp", visit.address)
		if err != nil {
			continue // record notices if the process under test has ended
		}
		_, _ = io.WriteString(connection, visit.says)
		if dropped%2 == 1 { // a reset rather than a clean end
			_ = connection.(*net.TCPConn).SetLinger(0)
		}
		_ = connection.Close()
		dropped++
	}
}

// backend starts a backend that accepts every span, and decodes none.
func backend(t *testing.T) (address string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer(grpc.ForceServerCodecV2(asIs{}), grpc.MaxRecvMsgSize(64<<20),
		grpc.UnknownServiceHandler(func(_ any, stream grpc.ServerStream) error {
			var body []byte
			if err := stream.RecvMsg(&body); err != nil {
				return err
			}
			return stream.SendMsg([]byte{})
		}))
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(listener) })
	t.Cleanup(func() {
		server.Stop()
		serving.Wait()
	})
	return listener.Addr().String()
}

// TestConversations shows that each log record has the prompt that its span lacks.
func TestConversations(t *testing.T) {
	spans, logs := conversations(t, shopBatch, 500)
	if spans.spans != shopBatch || logs.spans != shopBatch/2 {
		t.Fatalf("%d spans and %d log records", spans.spans, logs.spans)
	}
	request := plogotlp.NewExportRequest()
	if err := request.UnmarshalProto(logs.next(101, time.Unix(1_800_000_000, 0))); err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for i, record := range request.Logs().ResourceLogs().At(0).ScopeLogs().At(0).LogRecords().All() {
		if want := spanOf(uint64(101 + 2*i + 1)); want.TraceID != record.TraceID() || want.SpanID != record.SpanID() {
			t.Errorf("record %d is of span %v, want %v", i, record.SpanID(), want.SpanID)
		}
		text, _ := record.Attributes().Get("gen_ai.input.messages")
		if len(text.Str()) < 500 || strings.Contains(text.Str(), promptMarker) || seen[text.Str()] {
			t.Errorf("record %d has prompt %.100q", i, text.Str())
		}
		seen[text.Str()] = true
	}
}
