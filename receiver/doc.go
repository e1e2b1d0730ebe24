// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

//go:generate env GOWORK=off go tool -modfile=../tools/go.mod mdatagen metadata.yaml

// Package receiver is the Collector receiver "mooncake": OTLP in, over gRPC and HTTP; annotated spans, cleaned logs and cleaned
// metrics out. README.md describes its configuration and what it does to telemetry.
//
// The package is thin: the stock OTLP receiver listens, and package annotate does the work. It stores nothing between two
// requests, so any number of receivers can run in parallel or in a chain.
package receiver
