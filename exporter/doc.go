// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

//go:generate env GOWORK=off go tool -modfile=../tools/go.mod mdatagen metadata.yaml

// Package exporter is the Collector exporter "mooncake": it writes spans to a journal, segment by segment, and compiles a
// replayable trace from each complete segment. README.md describes its configuration and guarantees.
//
// The package is thin: package decode converts spans to records, package segment writes the journal, package capture compiles it.
// No text of a span is ever written.
package exporter
