// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package acceptance

import (
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	"go.opentelemetry.io/collector/pdata/ptrace/ptraceotlp"
)

// spanSink is an OTLP receiver over HTTP that keeps the spans of each row.
type spanSink struct {
	url string

	mu    sync.Mutex
	spans int                // of all kinds
	rows  map[int64][]string // by row: the error.type of each span, "" for none
}

// startSpanSink serves until the test ends.
func startSpanSink(t *testing.T) *spanSink {
	t.Helper()
	s := &spanSink{rows: map[int64][]string{}}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err == nil && r.URL.Path == "/v1/traces" {
			err = s.add(body)
		}
		if err != nil {
			t.Errorf("the sink cannot take %d bytes: %v", len(body), err)
			http.Error(w, "", http.StatusBadRequest)
		}
	}))
	t.Cleanup(server.Close)
	s.url = server.URL
	return s
}

func (s *spanSink) add(body []byte) error {
	request := ptraceotlp.NewExportRequest()
	if err := request.UnmarshalProto(body); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, resource := range request.Traces().ResourceSpans().All() {
		for _, scope := range resource.ScopeSpans().All() {
			for _, span := range scope.Spans().All() {
				s.spans++
				row, ok := span.Attributes().Get("mooncake.row")
				if !ok {
					continue
				}
				class := ""
				if v, ok := span.Attributes().Get("error.type"); ok {
					class = v.Str()
				}
				s.rows[row.Int()] = append(s.rows[row.Int()], class)
			}
		}
	}
	return nil
}

// toSink returns the variables that make a program send its spans to url, and no metrics or logs.
func toSink(url string) []string {
	return []string{
		"OTEL_EXPORTER_OTLP_ENDPOINT=" + url, "OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf",
		"OTEL_TRACES_EXPORTER=otlp", "OTEL_METRICS_EXPORTER=none", "OTEL_LOGS_EXPORTER=none",
	}
}

// withoutTelemetry are the variables that keep a program from sending any.
var withoutTelemetry = []string{"OTEL_TRACES_EXPORTER=none", "OTEL_METRICS_EXPORTER=none"}
