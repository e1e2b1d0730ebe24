// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package receiver

import (
	"context"
	"errors"
	"strconv"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/plog/plogotlp"
	"go.opentelemetry.io/collector/pdata/pmetric/pmetricotlp"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/collector/pdata/ptrace/ptraceotlp"
	"go.opentelemetry.io/collector/pipeline"
	"go.opentelemetry.io/collector/receiver/receivertest"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// generator sends telemetry over gRPC, repeatedly if requested.
type generator struct {
	t      *testing.T
	cfg    *Config
	conn   *grpc.ClientConn
	serial atomic.Int64
	send   func(ctx context.Context, conn *grpc.ClientConn, id string) error
}

func (g *generator) Start() { g.conn = dial(g.t, g.cfg) }

func (g *generator) Stop() { _ = g.conn.Close() }

// Generate sends one batch. GenAI telemetry keeps the id, too, because the configuration makes it a session id.
func (g *generator) Generate() []receivertest.UniqueIDAttrVal {
	id := receivertest.UniqueIDAttrVal(strconv.FormatInt(g.serial.Add(1), 10))
	for {
		err := g.send(g.t.Context(), g.conn, string(id))
		if code := status.Code(err); code != codes.Unavailable && !errors.Is(err, context.DeadlineExceeded) {
			return []receivertest.UniqueIDAttrVal{id} // accepted, or refused for good
		}
	}
}

func sendSpan(ctx context.Context, conn *grpc.ClientConn, id string) error {
	td := inference()
	list := td.ResourceSpans().At(0).ScopeSpans().At(0).Spans()
	list.RemoveIf(func(span ptrace.Span) bool { return span.SpanID() != pcommon.SpanID{1} })
	list.At(0).Attributes().PutStr(receivertest.UniqueIDAttrName, id)
	_, err := ptraceotlp.NewGRPCClient(conn).Export(ctx, ptraceotlp.NewExportRequestFromTraces(td))
	return err
}

func sendLog(ctx context.Context, conn *grpc.ClientConn, id string) error {
	ld := message()
	list := ld.ResourceLogs().At(0).ScopeLogs().At(0).LogRecords()
	list.RemoveIf(func(log plog.LogRecord) bool { return log.EventName() == "" })
	list.At(0).Attributes().PutStr(receivertest.UniqueIDAttrName, id)
	_, err := plogotlp.NewGRPCClient(conn).Export(ctx, plogotlp.NewExportRequestFromLogs(ld))
	return err
}

func sendMetric(ctx context.Context, conn *grpc.ClientConn, id string) error {
	md := sales()
	point := md.ResourceMetrics().At(0).ScopeMetrics().At(0).Metrics().At(0).Sum().DataPoints().At(0)
	point.Attributes().PutStr(receivertest.UniqueIDAttrName, id)
	_, err := pmetricotlp.NewGRPCClient(conn).Export(ctx, pmetricotlp.NewExportRequestFromMetrics(md))
	return err
}

func TestConsumeContract(t *testing.T) {
	for _, c := range []struct {
		signal pipeline.Signal
		send   func(context.Context, *grpc.ClientConn, string) error
	}{
		{pipeline.SignalTraces, sendSpan},
		{pipeline.SignalMetrics, sendMetric},
		{pipeline.SignalLogs, sendLog},
	} {
		t.Run(c.signal.String(), func(t *testing.T) {
			cfg := testConfig(t)
			cfg.Annotation.SessionKeys = []string{receivertest.UniqueIDAttrName}
			require.NoError(t, cfg.Validate())
			receivertest.CheckConsumeContract(receivertest.CheckConsumeContractParams{
				T:             t,
				Factory:       NewFactory(),
				Signal:        c.signal,
				Config:        cfg,
				Generator:     &generator{t: t, cfg: cfg, send: c.send},
				GenerateCount: 200,
			})
		})
	}
}
