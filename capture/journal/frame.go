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
	// MaxRanges is the most ranges of fine ids in a record: those of 1 Mi tokens in blocks of 16 of which no two follow one another.
	MaxRanges = 1 << 16
	// MaxReplies is the most replies in the prompt of a record.
	MaxReplies = 1 << 13
)

// maxFrame is the size of the largest frame without its delimiter.
const maxFrame = MaxRecord + 4 + (MaxRecord+4)/254 + 1

// header begins every journal. The number is the version of the format.
const header = "moonloop-journal 1\n"

// HeaderSize is the size of a journal without records, in bytes.
const HeaderSize = int64(len(header))

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// appendFrame appends a payload and its CRC-32C, without the byte 0 by consistent overhead byte stuffing (Cheshire and
// Baker, 1999), and then a 0. A reader that has lost its way finds the next record behind the next 0, so that damage
// costs what it hits.
func appendFrame(dst, payload []byte) []byte {
	var sum [4]byte
	binary.LittleEndian.PutUint32(sum[:], crc32.Checksum(payload, castagnoli))
	group := len(dst) // where the length of the current group goes
	dst = append(dst, 0)
	for _, part := range [2][]byte{payload, sum[:]} {
		for len(part) > 0 {
			// A group ends where it stands for a 0, or at its full length, where it stands for none.
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

// openFrame undoes appendFrame in place, without the final 0. ok is false when the frame is not what was written.
func openFrame(frame []byte) (payload []byte, ok bool) {
	out, in := 0, 0
	for in < len(frame) {
		n := int(frame[in])
		if n == 0 || in+n > len(frame) {
			return nil, false
		}
		out += copy(frame[out:], frame[in+1:in+n])
		in += n
		if n < 255 && in < len(frame) {
			frame[out] = 0
			out++
		}
	}
	if out < 4 {
		return nil, false
	}
	payload = frame[:out-4]
	return payload, binary.LittleEndian.Uint32(frame[out-4:out]) == crc32.Checksum(payload, castagnoli)
}
