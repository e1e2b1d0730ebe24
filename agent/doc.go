// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

// Package agent replays a Mooncake trace against an OpenAI-compatible engine.
//
// [Run] is the whole of it. A row travels through the sub-packages in one direction:
//
//	load      the trace becomes a stream of items with offsets
//	schedule  one goroutine lets each item go at its instant
//	prompt    the row becomes the bytes of a request, as the socket takes them
//	send      the request goes out; arrivals are stamped
//	measure   what happened becomes one record, the records become figures
//	telemetry the record becomes a span with its children and events, and metrics
//	judge     the run's own fidelity becomes a verdict
//	report    everything becomes a table and files
//
// Between them this package keeps only what ties them together: who may stop the run, who waits for whom at its
// end, and what a session carries from turn to turn.
package agent
