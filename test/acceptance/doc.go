// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

// Package acceptance runs the moonloop binary as its users do, on the public Mooncake conversation trace, and compares its
// output with figures that were computed without it.
//
// # Running
//
//	make acceptance                      # about seventeen minutes, most of them replays
//	make acceptance TRACE=file           # where the trace is elsewhere
//
// The figures are printed as a table at the end, each with what it must be. Without the trace the tests are
// skipped, so that `go test ./...` stays quick.
//
// The trace is FAST25-release/traces/conversation_trace.jsonl of https://github.com/kvcache-ai/Mooncake (Apache-2.0),
// 12,031 rows, 3,029,533 bytes, sha256 b8cbb061a85206d729d91cdc2981f43c9e0d99209dce588d3af5f7934408b9df.
//
// # Witnesses
//
// Nothing here asks moonloop for a result that another witness can give: spans are counted in the file that a stock
// OpenTelemetry Collector wrote (collector/builder.yaml), requests and their tokens in the simulated engine's own
// record, time and memory by this process. Attribute names are spelled out rather than imported, so that renaming
// one, which would break every consumer of the spans, breaks a test.
package acceptance
