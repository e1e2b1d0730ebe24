// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package receiver_test

import (
	"fmt"
	"log"

	"go.opentelemetry.io/collector/component"
	otelreceiver "go.opentelemetry.io/collector/receiver"
	"go.opentelemetry.io/collector/receiver/otlpreceiver"

	"github.com/moonloop/moonloop/receiver"
)

// A Collector of your own includes the receiver like any other: in its factories.
func ExampleNewFactory() {
	ours := receiver.NewFactory()
	factories := map[component.Type]otelreceiver.Factory{ours.Type(): ours}
	stock := otlpreceiver.NewFactory()
	factories[stock.Type()] = stock
	if len(factories) != 2 {
		log.Fatal("two factories have the same type")
	}
	fmt.Println(ours.Type(), "stability: traces", ours.TracesStability(), "- logs", ours.LogsStability())
	// Output: mooncake stability: traces Alpha - logs Alpha
}
