// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

//go:generate go run . ../examples/grafana

// Command dashboards writes the Grafana dashboards of examples/grafana, from Go: each query names its metric by the constant with which the
// code records the metric, and gets Prometheus' name for it from OpenTelemetry's own translator.
//
//	go generate .        # in this folder
//
// The tests parse every query with Prometheus' own parser, and check that each metric and label exists.
package main
