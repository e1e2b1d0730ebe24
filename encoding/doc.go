// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

//go:generate env GOWORK=off go tool -modfile=../tools/go.mod mdatagen metadata.yaml

// Package encoding is the Collector extension "mooncake_encoding". With it, the exporters kafka, awss3 and file of any Collector carry
// records of a journal with their own queues, retries and keys, and the receiver kafka brings them back. README.md describes its use.
//
// # A message
//
// A message is a journal with an end, see package capture/journal: a header with the version of the format, a frame with its CRC-32C for
// each record, and a frame that says that this is all. It has what the exporter mooncake would have written of the spans, by the
// same code (package exporter/decode), in the same bytes: ids, numbers, keyed hashes and the names of models. Nothing else of a span
// leaves. A request that no receiver and no processor has annotated is left out and counted, since nothing in such a record would say what its
// prompt shares, and a pipeline that sends those lacks a component.
//
// # Size
//
// A message has the records of the spans that the exporter hands over at once: with partition_traces_by_id, those of one trace. Its size
// is 27 bytes, and 6 for each record beside the record itself, which has at most 8 MiB ([journal.MaxRecord]). The exporter's limit on
// messages (max_message_bytes) bounds a message; what is above it the exporter refuses and counts.
//
// # Hostile messages
//
// A message that is cut off, changed, too large, of another version or none of ours is an error as a whole, and counted; nobody who
// carries messages loses a part of one. The memory that it takes is bounded by its own size and that of one record. Each record is held
// to the bounds that spans are held to.
//
// # Twice
//
// Whoever carries messages may carry one twice, in any order, over any number of partitions. A record has the ids of its span, equal spans are
// equal records, and compile keeps one record of each span: that with the most fields, and the smallest bytes among those. So the trace does not depend on
// how the records came.
package encoding
