// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

//go:generate env GOWORK=off go tool -modfile=../tools/go.mod mdatagen metadata.yaml

// Package encoding is the Collector extension "mooncake_encoding". With it, the exporters kafka, awss3 and file of any Collector transport
// records of a journal with their own queues, retries and keys, and the receiver kafka reads them. README.md describes its use.
//
// # A message
//
// A message is a journal with an end, see package capture/journal: a header with the version of the format, a frame with its CRC-32C for
// each record, and a frame that marks the end. Its records are those that the exporter mooncake would have written for the spans, made by
// the same code (package exporter/decode), with the same bytes: ids, numbers, keyed hashes and the names of models. Nothing else of a span
// is in it. A request that no receiver and no processor has annotated is left out and counted, because such a record would not show what
// its prompt shares; a pipeline that sends such requests lacks a component.
//
// # Size
//
// A message has the records of the spans that the exporter passes in one call: with partition_traces_by_id, those of one trace. Its size is
// 27 bytes, and 6 for each record in addition to the record itself, which has at most 8 MiB ([journal.MaxRecord]). The exporter's limit on
// messages (max_message_bytes) limits a message; the exporter refuses and counts larger ones.
//
// # Hostile messages
//
// A message that is cut off, changed, too large, of another version or foreign is an error as a whole, and counted; transports never lose a
// part of a message. Its size and that of one record limit the memory that reading it needs. Each record is checked against the same limits
// as spans.
//
// # Messages that arrive twice
//
// Transports may deliver a message twice, in any order, over any number of partitions. A record has the ids of its span, equal spans are
// equal records, and compile keeps one record of each span: the one with the most fields, and the smallest bytes among those. So the trace
// does not depend on how the records arrived.
package encoding
