// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

//go:generate env GOWORK=off go tool -modfile=../tools/go.mod mdatagen metadata.yaml

// Package processor is the Collector processor "mooncake": for a Collector that already receives telemetry, it processes spans and log
// records like the receiver "mooncake". README.md describes its configuration and how the two differ.
//
// The package is thin: package annotate does the work. It stores nothing between two batches, so any number of processors can run
// in parallel or in a chain.
package processor
