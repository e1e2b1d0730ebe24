// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

// Command otelcol-moonloop is an OpenTelemetry Collector with the components `mooncake`: a receiver and a processor that turn GenAI
// telemetry into annotated spans without a prompt in them, and an exporter that makes Mooncake traces of those.
//
// All of it but this file is written by the Collector's builder from builder.yaml. The builder's own version decides
// the version of the Collector's core, so the two are equal.
package main

//go:generate go run go.opentelemetry.io/collector/cmd/builder@v0.162.0 --config builder.yaml --skip-get-modules --skip-compilation
