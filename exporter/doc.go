// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

//go:generate env GOWORK=off go tool -modfile=../tools/go.mod mdatagen metadata.yaml

// Package exporter is the Collector exporter "mooncake": it writes spans to a journal, segment by segment, and compiles a
// replayable trace of each segment that is complete. README.md says how it is configured and what it guarantees.
//
// It is a shell: package decode turns spans into records, package segment keeps the journal, package capture makes
// traces of it. No text that is on a span is ever written.
package exporter
