// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package exporter

import (
	"context"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/exporter"
	"go.opentelemetry.io/collector/exporter/exporterhelper"
	"go.opentelemetry.io/collector/exporter/exporterhelper/xexporterhelper"

	"github.com/moonloop/moonloop/exporter/internal/metadata"
)

// NewFactory returns the factory of the exporter "mooncake", for traces.
func NewFactory() exporter.Factory {
	return exporter.NewFactory(metadata.Type, createDefaultConfig, exporter.WithTraces(createTraces, metadata.TracesStability))
}

func createTraces(ctx context.Context, set exporter.Settings, cfg component.Config) (exporter.Traces, error) {
	c := cfg.(*Config)
	e, err := newJournalExporter(c, set)
	if err != nil {
		return nil, err
	}
	return xexporterhelper.NewTracesRequest(ctx, set, e.convert, e.push,
		exporterhelper.WithStart(e.start),
		exporterhelper.WithShutdown(e.shutdown),
		exporterhelper.WithCapabilities(consumer.Capabilities{MutatesData: false}),
		exporterhelper.WithTimeout(c.TimeoutConfig),
		exporterhelper.WithRetry(c.BackOffConfig),
		xexporterhelper.WithQueueBatch(c.QueueConfig, xexporterhelper.QueueBatchSettings{Encoding: queueEncoding{e}}),
	)
}
