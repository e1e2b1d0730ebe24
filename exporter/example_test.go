// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package exporter_test

import (
	"fmt"

	"go.opentelemetry.io/collector/component"
	otelexporter "go.opentelemetry.io/collector/exporter"
	"go.opentelemetry.io/collector/exporter/exportertest"

	"github.com/moonloop/moonloop/exporter"
)

// A Collector of your own includes the exporter like any other: in its factories.
func ExampleNewFactory() {
	ours, stock := exporter.NewFactory(), exportertest.NewNopFactory()
	factories := map[component.Type]otelexporter.Factory{ours.Type(): ours, stock.Type(): stock}
	fmt.Println(len(factories), "factories;", ours.Type(), "stability: traces", ours.TracesStability())
	// Output: 2 factories; mooncake stability: traces Alpha
}
