// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

// Package journal is the file that a collector appends what it captured to: its records, and how they are written and read.
//
// A record is an [Inference] for each annotated (or raw) inference span, a [Content] for each span that only carries the cells
// of another one's prompt, or a [Link] for every other span, because sessions and ancestry live on those. A record holds ids,
// numbers, hashes and enumerations; no field can hold a text.
//
// # Format
//
// A journal begins with a line that names the format and its version. Frames follow. A frame is a record with its CRC-32C, with
// every byte 0 stuffed away, and one 0 at its end, so that damage costs only the records that it hits: a [Reader] goes on at the
// frame behind the next 0. A record is its kind, trace id and span id, then the fields that are set, each a tag and a value, in
// the order of the tags. There is one encoding of a record, so that equal records are equal bytes. Fields are added; the tag of a
// field never gets another meaning.
//
// A journal has each keyed value once, since prompts share most of theirs: a record names the values that are there already by their
// numbers in a dictionary (see dictionary.go). Readers resolve that, so a record is the same bytes wherever it is read.
//
// Version 1 is the same without a dictionary. It is read, and a journal of it goes on as one.
//
// A message is a journal with an end, for queues and object stores: [Batch.AppendMessage] writes one, a [MessageReader] reads it as a
// whole, and any number of messages in one file are a journal.
//
// # Writing
//
// A [Writer] appends to a journal under an exclusive lock. What it acknowledges is on the disk. A crash may leave a part of the
// last record: the next writer marks the place, and readers count it as [Torn]. Records are encoded ahead in a [Batch].
//
// # Reading
//
// [Reader.Next] returns each record in memory of its own. [Reader.NextEncoded], for those who read millions, returns the fields and the
// bytes of a record in memory that it uses again. A [Decoder] decodes such bytes later. [NewReaderAt] goes on at a [Place] of a journal that
// grows.
package journal
