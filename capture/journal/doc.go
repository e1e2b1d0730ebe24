// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

// Package journal is the file format of captures: their records, and how they are written and read.
//
// A record is an [Inference] for each annotated (or raw) inference span, a [Content] for each span that only carries the cells of another
// one's prompt, or a [Link] for every other span, because sessions and ancestry depend on those. A record has ids, numbers, hashes and
// enumerations; no field can contain a text.
//
// # Format
//
// A journal begins with a line that names the format and its version. Frames follow. A frame is a record with its CRC-32C, in which every
// byte 0 is replaced by byte stuffing, with one 0 at its end. So damage costs only the records that it hits: a [Reader] continues with the
// frame after the next 0. A record is its kind, trace id and span id, then the fields that are set, each a tag and a value, in the order of
// the tags. A record has only one encoding, so equal records are equal bytes. Fields may be added; the tag of a field never gets another
// meaning.
//
// A journal has each keyed value once, because prompts share most of them: a record refers to earlier values by their numbers in a
// dictionary (see dictionary.go). Readers resolve that, so a record is the same bytes wherever it is read.
//
// Version 1 is the same without a dictionary. It can be read, and a journal of version 1 is continued in version 1.
//
// A message is a journal with an end, for queues and object stores: [Batch.AppendMessage] writes one, a [MessageReader] reads it as a
// whole, and any number of messages in one file are a journal.
//
// # Writing
//
// A [Writer] appends to a journal under an exclusive lock. What it acknowledges is on disk. A crash may leave a part of the last record:
// the next writer marks the position, and readers count it as [Torn]. Records are encoded in advance in a [Batch].
//
// # Reading
//
// [Reader.Next] returns each record in new memory. [Reader.NextEncoded], for readers of millions of records, returns the fields and the
// bytes of a record in memory that it reuses. A [Decoder] decodes such bytes later. [NewReaderAt] continues at a [Place] of a growing
// journal.
package journal
