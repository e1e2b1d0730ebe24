// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

// Package examples holds traces and configurations to begin with. The demonstration replays the trace in this
// package, so that it needs nothing but the binary.
package examples

import _ "embed"

// DemoName is the file name of the demonstration's trace.
const DemoName = "demo.jsonl"

// Demo is a generated trace of a chat service: sessions of several turns behind a shared system prompt, Poisson arrivals.
// DemoMeta, its sidecar, says with which parameters it was made.
//
//go:embed demo.jsonl
var Demo []byte

// DemoMeta is the sidecar of Demo.
//
//go:embed demo.meta.json
var DemoMeta []byte
