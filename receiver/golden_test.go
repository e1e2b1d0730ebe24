// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package receiver

import (
	"flag"
	"path/filepath"
	"testing"

	"github.com/open-telemetry/opentelemetry-collector-contrib/pkg/golden"
	"github.com/open-telemetry/opentelemetry-collector-contrib/pkg/pdatatest/plogtest"
	"github.com/open-telemetry/opentelemetry-collector-contrib/pkg/pdatatest/ptracetest"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/consumer/consumertest"
	"go.opentelemetry.io/collector/pdata/plog/plogotlp"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/collector/pdata/ptrace/ptraceotlp"
	"go.opentelemetry.io/collector/receiver/receivertest"

	"github.com/moonloop/moonloop/receiver/internal/metadata"
)

var update = flag.Bool("update", false, "write the expected files of the golden tests")

func goldenFile(name string) string { return filepath.Join("testdata", "golden", name) }

// requireTraces compares spans with those of a file.
func requireTraces(t *testing.T, file string, got ptrace.Traces) {
	t.Helper()
	if *update {
		require.NoError(t, golden.WriteTracesToFile(goldenFile(file), got))
	}
	want, err := golden.ReadTraces(goldenFile(file))
	require.NoError(t, err)
	require.NoError(t, ptracetest.CompareTraces(want, got))
}

// TestGolden sends the input in testdata/golden through the receiver, and compares the output with the expected output there.
func TestGolden(t *testing.T) {
	cfg := testConfig(t)
	traces, logs := new(consumertest.TracesSink), new(consumertest.LogsSink)
	start(t, NewFactory(), receivertest.NewNopSettings(metadata.Type), cfg, traces, logs)
	conn := dial(t, cfg)

	in, err := golden.ReadTraces(goldenFile("spans.yaml"))
	require.NoError(t, err)
	_, err = ptraceotlp.NewGRPCClient(conn).Export(t.Context(), ptraceotlp.NewExportRequestFromTraces(in))
	require.NoError(t, err)
	require.Len(t, traces.AllTraces(), 1)
	requireTraces(t, "spans.expected.yaml", traces.AllTraces()[0])

	records, err := golden.ReadLogs(goldenFile("logs.yaml"))
	require.NoError(t, err)
	_, err = plogotlp.NewGRPCClient(conn).Export(t.Context(), plogotlp.NewExportRequestFromLogs(records))
	require.NoError(t, err)
	require.Len(t, traces.AllTraces(), 2)
	requireTraces(t, "logs.spans.expected.yaml", traces.AllTraces()[1])
	require.Len(t, logs.AllLogs(), 1)
	if *update {
		require.NoError(t, golden.WriteLogsToFile(goldenFile("logs.expected.yaml"), logs.AllLogs()[0]))
	}
	want, err := golden.ReadLogs(goldenFile("logs.expected.yaml"))
	require.NoError(t, err)
	require.NoError(t, plogtest.CompareLogs(want, logs.AllLogs()[0]))
}
