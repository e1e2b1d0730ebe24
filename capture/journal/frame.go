// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package journal

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
)

// MaxRecord is the size of the largest record, in bytes before framing: the cells of a prompt of 128 MB.
const MaxRecord = 8 << 20

const (
	// MaxRanges is the maximum number of ranges of fine ids in a record: those of 1 Mi tokens in blocks of 16, none of which are
	// consecutive.
	MaxRanges = 1 << 16
	// MaxReplies is the maximum number of replies in the prompt of a record.
	MaxReplies = 1 << 13
)

// maxFrame is the size of the largest frame without its delimiter.
const maxFrame = MaxRecord + 4 + (MaxRecord+4)/254 + 1

// header is the beginning of every journal. The number is the version of the format. Version 1 is the same without packed records: it can
// be read, and is continued in version 1.
const (
	header  = "moonloop-journal 2\n"
	header1 = "moonloop-journal 1\n"
)

// HeaderSize is the size of a journal without records, in bytes.
const HeaderSize = int64(len(header))

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// checksum returns the CRC-32C of a payload. seed is the checksum that it continues; 0 = none.
func checksum(seed uint32, payload []byte) uint32 { return crc32.Update(seed, castagnoli, payload) }

// appendFrame appends a payload and its checksum, with consistent overhead byte stuffing to avoid the byte 0 (Cheshire and Baker, 1999),
// and then a 0. After damage, a reader finds the next record after the next 0.
func appendFrame(dst, payload []byte, sum uint32) []byte {
	var end [4]byte
	binary.LittleEndian.PutUint32(end[:], sum)
	group := len(dst) // where the length of the current group goes
	dst = append(dst, 0)
	for _, part := range [2][]byte{payload, end[:]} {
		for len(part) > 0 {
			// A group ends at a 0, which it represents, or at its full length, where it represents none.
			run := part[:min(len(part), group+255-len(dst))]
			zero := bytes.IndexByte(run, 0)
			if zero >= 0 {
				run = run[:zero]
				part = part[1:]
			}
			dst = append(dst, run...)
			part = part[len(run):]
			if n := len(dst) - group; zero >= 0 || n == 255 {
				dst[group] = byte(n) //nolint:gosec // at most 255
				group = len(dst)
				dst = append(dst, 0)
			}
		}
	}
	dst[group] = byte(len(dst) - group) //nolint:gosec // at most 254
	return append(dst, 0)
}

// openFrame reverses appendFrame in place, without the final 0. ok is false if it is not a frame. The caller checks the checksum.
func openFrame(frame []byte) (payload []byte, sum uint32, ok bool) {
	out, in := 0, 0
	for in < len(frame) {
		n := int(frame[in])
		if n == 0 || in+n > len(frame) {
			return nil, 0, false
		}
		out += copy(frame[out:], frame[in+1:in+n])
		in += n
		if n < 255 && in < len(frame) {
			frame[out] = 0
			out++
		}
	}
	if out < 4 {
		return nil, 0, false
	}
	return frame[:out-4], binary.LittleEndian.Uint32(frame[out-4:]), true
}

// appendMark appends a frame of a kind that has no ids and no fields.
func appendMark(dst []byte, kind byte) []byte {
	payload := []byte{kind}
	return appendFrame(dst, payload, checksum(0, payload))
}

// isMark reports whether a payload is a mark.
func isMark(payload []byte, sum uint32, kind byte) bool {
	return len(payload) == 1 && payload[0] == kind && checksum(0, payload) == sum
}
