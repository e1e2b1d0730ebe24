// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

// Package collector tests the Collector distribution as a process: every shipped configuration is validated by it, the
// documented one runs, and what it acknowledged still exists after a kill.
//
// The tests build the distribution once, or take the one that MOONLOOP_OTELCOL names. `go test ./...` runs short
// versions; `make acceptance` runs the tests named TestAcceptance at their full length and prints figures:
//
//   - Kill: twenty times kill -9 under load, with the documented settings, without a queue, and with the fast settings,
//     where the loss is counted;
//   - Throughput: next to the stock otlp receiver and file exporter, alternately, under the same load;
//   - Day: a day's requests with ever-new prompts at full speed leave the memory where it was.
//
// `make acceptance-fleet` runs TestAcceptanceFleetKafka and TestAcceptanceFleetS3: captures over a Kafka and into an S3 server, all processes
// of which are killed in turn.
//
// TestSoak runs agent, engine and Collector together, for seconds; `make soak` does so for twenty minutes or more, and requires
// that memory, descriptors and goroutines are at the end what they were after warming up.
package collector
