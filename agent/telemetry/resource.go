// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package telemetry

import (
	"context"

	"github.com/google/uuid"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/resource"

	"github.com/moonloop/moonloop/semconv"
)

// newResource says who emits. OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES win over all but the run's id. The
// process's command line and owner are left out: they may hold secrets. The resource is usable even with an
// error.
func newResource(ctx context.Context, c *Config) (*resource.Resource, error) {
	who := []attribute.KeyValue{
		attribute.String(semconv.ServiceName, semconv.DefaultServiceName),
		attribute.String(semconv.ServiceInstanceID, uuid.NewString()),
	}
	if c.Version != "" {
		who = append(who, attribute.String(semconv.ServiceVersion, c.Version))
	}
	opts := []resource.Option{
		resource.WithTelemetrySDK(),
		resource.WithHost(),
		resource.WithProcessPID(),
		resource.WithProcessRuntimeVersion(),
		resource.WithAttributes(who...),
		resource.WithFromEnv(),
	}
	if c.RunID != "" {
		opts = append(opts, resource.WithAttributes(attribute.String(semconv.RunID, c.RunID)))
	}
	return resource.New(ctx, opts...)
}
