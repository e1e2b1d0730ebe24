// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

//go:generate env GOWORK=off go tool -modfile=../tools/go.mod mdatagen metadata.yaml

// Package receiver is the Collector receiver "mooncake": OTLP in, over gRPC and HTTP, annotated spans, cleaned logs
// and cleaned metrics out. README.md says how it is configured and what it does to telemetry.
//
// It is a shell: the stock OTLP receiver listens, package annotate does the work. It keeps nothing between two
// requests, so any number of them can run beside or behind one another.
package receiver
