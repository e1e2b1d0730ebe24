// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package telemetry

import (
	"context"
	"net"
	"slices"
	"testing"

	"go.opentelemetry.io/collector/component"               //nolint:depguard // an independent receiver to test against
	"go.opentelemetry.io/collector/component/componenttest" //nolint:depguard // an independent receiver to test against
	"go.opentelemetry.io/collector/consumer/consumertest"   //nolint:depguard // an independent receiver to test against
	"go.opentelemetry.io/collector/pdata/pcommon"           //nolint:depguard // an independent receiver to test against
	"go.opentelemetry.io/collector/pdata/ptrace"            //nolint:depguard // an independent receiver to test against
	"go.opentelemetry.io/collector/receiver/otlpreceiver"   //nolint:depguard // an independent receiver to test against
	"go.opentelemetry.io/collector/receiver/receivertest"   //nolint:depguard // an independent receiver to test against

	"github.com/moonloop/moonloop/mooncake"
	"github.com/moonloop/moonloop/semconv"
)

// maxMessage is the largest message that a Collector accepts over gRPC by default.
const maxMessage = 4 << 20

// collector is a Collector's OTLP receiver that accepts messages of up to maxMessage, over HTTP, too (20 MiB by default).
type collector struct {
	grpc, http string // base URLs
	traces     consumertest.TracesSink
	metrics    consumertest.MetricsSink
}

func startCollector(t *testing.T) *collector {
	t.Helper()
	return startCollectorWith(t, componenttest.NewNopHost(), func(*otlpreceiver.Config) {})
}

func startCollectorWith(t *testing.T, host component.Host, configure func(*otlpreceiver.Config)) *collector {
	t.Helper()
	c := new(collector)
	factory := otlpreceiver.NewFactory()
	cfg := factory.CreateDefaultConfig().(*otlpreceiver.Config)
	grpcAddr, httpAddr := freeAddr(t), freeAddr(t)
	cfg.Protocols.GRPC.GetOrInsertDefault().NetAddr.Endpoint = grpcAddr
	overHTTP := &cfg.Protocols.HTTP.GetOrInsertDefault().ServerConfig
	overHTTP.NetAddr.Endpoint, overHTTP.MaxRequestBodySize = httpAddr, maxMessage
	c.grpc, c.http = "http://"+grpcAddr, "http://"+httpAddr
	configure(cfg)

	settings := receivertest.NewNopSettings(factory.Type())
	spans, err := factory.CreateTraces(t.Context(), settings, cfg, &c.traces)
	if err != nil {
		t.Fatal(err)
	}
	figures, err := factory.CreateMetrics(t.Context(), settings, cfg, &c.metrics)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range []interface {
		Start(context.Context, component.Host) error
		Shutdown(context.Context) error
	}{spans, figures} {
		if err := r.Start(t.Context(), host); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := r.Shutdown(context.Background()); err != nil {
				t.Error(err)
			}
		})
	}
	return c
}

// freeAddr returns a loopback address on which nothing listens: the receiver does not report its port.
func freeAddr(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	return l.Addr().String()
}

// spans calls a function for each span that arrived.
func (c *collector) spans(visit func(pcommon.Resource, ptrace.Span)) {
	for _, traces := range c.traces.AllTraces() {
		for _, resource := range traces.ResourceSpans().All() {
			for _, scope := range resource.ScopeSpans().All() {
				for _, span := range scope.Spans().All() {
					visit(resource.Resource(), span)
				}
			}
		}
	}
}

// rows rebuilds the rows of a replay from its spans alone, in the order of the trace.
func (c *collector) rows(t *testing.T) []mooncake.Row {
	t.Helper()
	byIndex := make(map[int64]mooncake.Row)
	c.spans(func(_ pcommon.Resource, span ptrace.Span) {
		index, ok := span.Attributes().Get(semconv.Row)
		if !ok {
			return
		}
		var row mooncake.Row
		if v, ok := span.Attributes().Get(semconv.Timestamp); ok {
			row.Timestamp = mooncake.Some(v.Double())
		}
		if v, ok := span.Attributes().Get(semconv.InputLength); ok {
			row.InputLength = mooncake.Some(v.Int())
		}
		if v, ok := span.Attributes().Get(semconv.OutputLength); ok {
			row.OutputLength = mooncake.Some(v.Int())
		}
		if v, ok := span.Attributes().Get(semconv.HashIDs); ok {
			row.HashIDs = []uint64{}
			for _, id := range v.Slice().All() {
				row.HashIDs = append(row.HashIDs, uint64(id.Int()))
			}
		}
		if v, ok := span.Attributes().Get(semconv.Session); ok {
			row.SessionID = v.Str()
		}
		if span.Links().Len() > 0 {
			row.OTel = mooncake.SpanRef{TraceID: span.Links().At(0).TraceID(), SpanID: span.Links().At(0).SpanID()}
		}
		if _, twice := byIndex[index.Int()]; twice {
			t.Errorf("two spans of row %d", index.Int())
		}
		byIndex[index.Int()] = row
	})
	var order []int64
	for i := range byIndex {
		order = append(order, i)
	}
	slices.Sort(order)
	var rows []mooncake.Row
	for _, i := range order {
		rows = append(rows, byIndex[i])
	}
	return rows
}
