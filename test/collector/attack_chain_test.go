// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package collector

import (
	"context"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/config/configopaque"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/exporter"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/collector/receiver"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	mooncakeexporter "github.com/moonloop/moonloop/exporter"
	"github.com/moonloop/moonloop/internal/testport"
	mooncakereceiver "github.com/moonloop/moonloop/receiver"
)

// searcher is a sink for logs that is searched at the end.
type searcher struct {
	mu sync.Mutex
	strings.Builder
}

func (s *searcher) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.Builder.Write(p)
}

// Sync does nothing.
func (*searcher) Sync() error { return nil }

// TestAttack makes each attack of the table on the receiver and the exporter in this process, as senders do, and searches everything that
// leaves.
func TestAttack(t *testing.T) {
	dir, c, log := t.TempDir(), newCanaries(), new(searcher)
	tel := componenttest.NewTelemetry()
	t.Cleanup(func() { _ = tel.Shutdown(context.Background()) })
	settings := tel.NewTelemetrySettings()
	settings.Logger = zap.New(zapcore.NewCore(zapcore.NewJSONEncoder(zap.NewProductionEncoderConfig()), log, zap.DebugLevel))

	ef := mooncakeexporter.NewFactory()
	ec := ef.CreateDefaultConfig().(*mooncakeexporter.Config)
	ec.Directory = filepath.Join(dir, "journals")
	out, err := ef.CreateTraces(t.Context(), exporter.Settings{ID: component.NewID(ef.Type()), TelemetrySettings: settings}, ec)
	if err != nil {
		t.Fatal(err)
	}
	readOnly := consumer.WithCapabilities(consumer.Capabilities{MutatesData: false})
	traces, _ := consumer.NewTraces(func(ctx context.Context, td ptrace.Traces) error {
		c.forwarded(new(ptrace.ProtoMarshaler).MarshalTraces(td))
		return out.ConsumeTraces(ctx, td)
	}, readOnly)
	logs, _ := consumer.NewLogs(func(_ context.Context, ld plog.Logs) error {
		c.forwarded(new(plog.ProtoMarshaler).MarshalLogs(ld))
		return nil
	})
	metrics, _ := consumer.NewMetrics(func(_ context.Context, md pmetric.Metrics) error {
		c.forwarded(new(pmetric.ProtoMarshaler).MarshalMetrics(md))
		return nil
	})
	rf := mooncakereceiver.NewFactory()
	rc := rf.CreateDefaultConfig().(*mooncakereceiver.Config)
	rc.Annotation.HashKey = configopaque.String(c.word("hashkey") + strings.Repeat("k", 32))
	address, web := testport.Address(t), testport.Address(t)
	grpc := rc.OTLP.Protocols.GRPC.GetOrInsertDefault()
	grpc.NetAddr.Endpoint, grpc.MaxRecvMsgSizeMiB = address, 64
	rc.OTLP.Protocols.HTTP.GetOrInsertDefault().ServerConfig.NetAddr.Endpoint = web
	set := receiver.Settings{ID: component.NewID(rf.Type()), TelemetrySettings: settings}
	var running []component.Component
	for _, create := range []func() (component.Component, error){
		func() (component.Component, error) { return out, nil },
		func() (component.Component, error) { return rf.CreateTraces(t.Context(), set, rc, traces) },
		func() (component.Component, error) { return rf.CreateLogs(t.Context(), set, rc, logs) },
		func() (component.Component, error) { return rf.CreateMetrics(t.Context(), set, rc, metrics) },
	} {
		one, err := create()
		if err != nil {
			t.Fatal(err)
		}
		running = append(running, one)
	}
	for _, one := range running {
		if err := one.Start(t.Context(), componenttest.NewNopHost()); err != nil {
			t.Fatal(err)
		}
	}
	v := &victim{canaries: c, grpc: dial(t, address).connection, http: web, counts: func(t *testing.T) map[string]int64 {
		t.Helper()
		return collect(t, tel)
	}}
	v.run(t, &forge{t: t, canaries: c, scale: 1})
	v.malformed(t)
	for key := range v.counts(t) {
		c.search(outMetrics, []byte(key))
	}
	for _, one := range []component.Component{running[1], running[2], running[3], running[0]} {
		if err := one.Shutdown(t.Context()); err != nil {
			t.Error(err)
		}
	}
	c.search(outLog, []byte(log.String()))
	v.files(t, dir)
	c.check(t, outForwarded, outJournal, outTrace, outAnswer)
}

// forwarded searches what is sent to a backend.
func (c *canaries) forwarded(encoded []byte, err error) {
	if err != nil {
		encoded = []byte(err.Error())
	}
	c.search(outForwarded, encoded)
}

// collect returns the counters of both components.
func collect(t *testing.T, tel *componenttest.Telemetry) map[string]int64 {
	t.Helper()
	var all metricdata.ResourceMetrics
	if err := tel.Reader.Collect(t.Context(), &all); err != nil {
		t.Fatal(err)
	}
	counts := map[string]int64{}
	for _, scope := range all.ScopeMetrics {
		for _, m := range scope.Metrics {
			name, ours := shortName(m.Name)
			sum, ok := m.Data.(metricdata.Sum[int64])
			if !ours || !ok {
				continue
			}
			for _, p := range sum.DataPoints {
				key := name
				for _, a := range p.Attributes.ToSlice() {
					key += "/" + a.Value.AsString()
				}
				counts[key] += p.Value
			}
		}
	}
	return counts
}

// shortName returns the name that attacks use for one of our metrics, from OpenTelemetry's or Prometheus' name.
func shortName(name string) (short string, ours bool) {
	short = strings.Replace(strings.TrimSuffix(strings.TrimPrefix(name, "otelcol_"), "_total"), "_mooncake", "", 1)
	return short, strings.Contains(name, "_mooncake_")
}
