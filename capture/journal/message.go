// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package journal

import (
	"bytes"
	"errors"
	"fmt"
)

// A message is a small journal that a queue or an object store transports as one value. It differs from the journal of a [Writer] in two
// frames, so that concatenated messages, with a line feed after each or without, are a journal, too:
//
//	moonloop-journal 2\n   the header
//	0                      the header ends here, as a frame does, so that a [Reader] recognises it between two messages
//	frames                 of records; their dictionary begins with the message
//	a frame of kindEnd     the message is complete

// kindEnd is the kind of the last frame of a message. It has no ids and no fields.
const kindEnd = 'E'

// MessageOverhead is the size of a message without records, in bytes.
const MessageOverhead = len(header) + 1 + 1 + 1 + 4 + 1

// AppendMessage appends a message with the records of the batch.
func (b *Batch) AppendMessage(dst []byte) []byte {
	dst = append(append(dst, header...), 0)
	b.packer.begin()
	dst = b.appendFrames(dst, &b.packer)
	if cap(b.packer.payload) > keepMemory || cap(b.packer.values) > keepMemory {
		b.packer = packer{}
	}
	return appendMark(dst, kindEnd)
}

// errDamagedMessage is the error for a message with invalid bytes.
var errDamagedMessage = errors.New("message is damaged: all of it is dropped")

// MessageReader reads messages one after the other, in memory that it reuses. The zero MessageReader is usable. It is not safe for
// concurrent use.
type MessageReader struct {
	frame      []byte
	dec        Decoder
	dictionary dictionary
	record     []byte // unpacked
}

// Read calls the function visit with each record of a message, as in a journal and decoded; both are valid until visit returns.
// Any error in the message makes Read fail: with [ErrNotJournal] if it is not a message, or of an unknown version; other errors name
// the byte. The records before the error have been visited by then. If visit returns an error, Read stops and returns it unchanged.
// Read does not change the message.
func (r *MessageReader) Read(message []byte, visit func(record []byte, d *Decoder) error) error {
	head := message[:min(len(message), len(header))]
	if !isHeader(head) {
		return checkHeader(head)
	}
	rest, ok := message[len(header):], false
	r.dictionary.begun = false
	unpacked := int64(0)
	if rest, ok = bytes.CutPrefix(rest, []byte{0}); !ok {
		return r.damaged(message, rest, "no 0 after the header")
	}
	for {
		end := bytes.IndexByte(rest, 0)
		switch {
		case end < 0:
			return r.damaged(message, rest, "it is cut off")
		case end > maxFrame:
			return r.damaged(message, rest, "a record is too large")
		}
		r.frame = append(r.frame[:0], rest[:end]...)
		payload, sum, ok := openFrame(r.frame)
		if !ok {
			return r.damaged(message, rest, errChecksum.Error())
		}
		if isMark(payload, sum, kindEnd) {
			if rest = rest[end+1:]; len(rest) > 0 {
				return r.damaged(message, rest, "something follows its end")
			}
			return nil
		}
		record, err := r.dictionary.open(payload, sum, &r.dec, &r.record)
		if err != nil {
			return r.damaged(message, rest, err.Error())
		}
		if packedKind(payload) != 0 {
			if unpacked += int64(len(record)); unpacked > mayUnpack(int64(len(message)-len(rest))) {
				return r.damaged(message, rest, "its packed records are larger than any that a writer packs")
			}
		}
		rest = rest[end+1:]
		if err := visit(record, &r.dec); err != nil {
			return err
		}
	}
}

func (r *MessageReader) damaged(message, rest []byte, why string) error {
	return fmt.Errorf("%w: at byte %d of %d: %s", errDamagedMessage, len(message)-len(rest), len(message), why)
}

// keepMemory is the maximum size of a buffer that is reused, so that one huge record does not occupy its memory forever.
const keepMemory = 1 << 16

// Shrink frees the memory of a large record.
func (r *MessageReader) Shrink() {
	if cap(r.frame) > keepMemory || cap(r.record) > keepMemory || cap(r.dictionary.values) > keepMemory || cap(r.dec.ids) > keepMemory || cap(r.dec.cells) > keepMemory || cap(r.dec.ranges) > keepMemory {
		*r = MessageReader{}
	}
}

// between reports whether the bytes between two zeros are not a record but the separator between two messages.
func between(frame []byte) bool {
	frame = bytes.TrimPrefix(frame, []byte("\n"))
	return len(frame) == 0 || isHeader(frame)
}
