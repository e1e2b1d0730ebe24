// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package exporter

import (
	"os"
	"strings"
	"testing"

	"go.opentelemetry.io/collector/consumer/consumererror"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.opentelemetry.io/otel/sdk/metric/metricdata/metricdatatest"

	"github.com/moonloop/moonloop/exporter/internal/metadatatest"
)

// A sender learns that the journal was removed, the next attempt succeeds in a new one, and the loss is counted.
func TestJournalRemoved(t *testing.T) {
	s := start(t, func(*Config) {})
	if err := s.ConsumeTraces(t.Context(), production(1)); err != nil {
		t.Fatal(err)
	}
	journal, err := os.Open(journals(t, s.cfg.Directory)[0])
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = journal.Close() }()
	if err := os.RemoveAll(s.cfg.Directory); err != nil {
		t.Fatal(err)
	}
	if err := s.ConsumeTraces(t.Context(), production(2)); err == nil || consumererror.IsPermanent(err) {
		t.Errorf("got %v, want an error that is worth another try", err)
	}
	info, err := journal.Stat()
	if err != nil {
		t.Fatal(err)
	}
	lost := info.Size() - int64(len("moonloop-journal 1\n"))
	if err := s.ConsumeTraces(t.Context(), production(2)); err != nil {
		t.Errorf("the next attempt: %v", err)
	}
	metadatatest.AssertEqualExporterMooncakeLost(t, s.tel, []metricdata.DataPoint[int64]{{Value: lost}}, metricdatatest.IgnoreTimestamp(), metricdatatest.IgnoreExemplars())
	if !strings.Contains(s.log.text(), `"lost_bytes":`) || !strings.Contains(s.log.text(), "file was removed or replaced") {
		t.Errorf("the log says nothing of it:\n%s", s.log.text())
	}
	stop(t, s)
	if n := count(t, s.cfg.Directory); n != 6 {
		t.Errorf("%d records, want 6", n)
	}
}
