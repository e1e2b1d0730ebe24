// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package connector

import (
	"context"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/connector"
	"go.opentelemetry.io/collector/consumer"

	"github.com/moonloop/moonloop/connector/internal/metadata"
)

// NewFactory returns the factory of the connector "mooncake_cache", from traces to metrics.
func NewFactory() connector.Factory {
	return connector.NewFactory(metadata.Type, createDefaultConfig,
		connector.WithTracesToMetrics(createTracesToMetrics, metadata.TracesToMetricsStability))
}

func createTracesToMetrics(_ context.Context, set connector.Settings, cfg component.Config, next consumer.Metrics) (connector.Traces, error) {
	return newCacheConnector(cfg.(*Config), set, next)
}
