// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"bytes"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"
)

// MaxDepth is the deepest nesting of attribute values that is accepted. Producers nest messages five levels deep. A million
// levels would exhaust the stack of the process.
const MaxDepth = 128

// The memory for one element of a list of strings or numbers, including the spare capacity of the slice, in bytes.
const (
	stringSize = 32
	numberSize = 14
)

// scan returns the memory, in bytes, that the messages of an encoded request need in addition to its texts. It stops above a limit.
func scan(body []byte, m *message, limit int64) (int64, *refusal) {
	s := scanner{limit: limit}
	err := s.message(body, m, 0)
	return s.bytes, err
}

type scanner struct {
	bytes, limit int64
}

func (s *scanner) message(b []byte, m *message, depth int) *refusal {
	if m.nests {
		if depth++; depth > MaxDepth {
			return errTooDeep
		}
	}
	for len(b) > 0 {
		tag, n := uvarint(b)
		if n <= 0 {
			return errMalformed
		}
		b = b[n:]
		number := uint32(tag >> 3) //nolint:gosec // the decoder also drops the higher bits
		length := 0
		switch protowire.Type(tag & 7) {
		case protowire.VarintType:
			if _, length = uvarint(b); length <= 0 {
				return errMalformed
			}
			s.bytes += int64(m.numbers>>number&1) * numberSize
		case protowire.Fixed64Type:
			length = 8
		case protowire.Fixed32Type:
			length = 4
		case protowire.BytesType:
			size, n := uvarint(b)
			if n <= 0 || size > uint64(len(b)-n) { //nolint:gosec // n is not above the length
				return errMalformed
			}
			b = b[n:]
			length = int(size) //nolint:gosec // not above the length of a slice
			var child *message
			switch {
			case number < uint32(len(m.fields)):
				child = m.fields[number]
			case number == 1000:
				child = m.deprecated
			}
			if child != nil {
				s.bytes += child.size
				if err := s.message(b[:length], child, depth); err != nil {
					return err
				}
			}
			s.bytes += int64(m.strings>>number&1) * stringSize
			s.bytes += int64(m.numbers>>number&1) * numberSize * int64(length) // in the worst case, each takes one byte
		case protowire.StartGroupType, protowire.EndGroupType: // OTLP has none, and decoders treat them differently
			return errGroup
		default:
			return errMalformed
		}
		if length > len(b) {
			return errMalformed
		}
		b = b[length:]
		if s.bytes > s.limit {
			return errTooLarge
		}
	}
	return nil
}

// uvarint reads a number as the decoder does, and returns its length in bytes, or 0 if it is invalid. It drops bits above the
// 64th; encoding/binary would refuse such a number.
func uvarint(b []byte) (v uint64, n int) {
	for i, c := range b[:min(len(b), 10)] {
		v |= uint64(c&0x7f) << (7 * i)
		if c < 0x80 {
			return v, i + 1
		}
	}
	return 0, 0
}

// The maximum memory of an object and an element of a JSON request, in bytes.
const (
	objectSize  = 336 // the largest message, and its pointer
	elementSize = 48
)

// scanJSON is scan for a JSON request: one object in UTF-8. It does not determine the type of an object, and assumes the largest one. The
// decoder would ignore what follows the object.
func scanJSON(body []byte, limit int64) (int64, *refusal) {
	const space = " \t\r\n"
	if !utf8.Valid(body) || !bytes.HasPrefix(bytes.TrimLeft(body, space), []byte("{")) {
		return 0, errMalformed
	}
	need, depth := int64(0), 0
	for i := 0; i < len(body); i++ {
		switch body[i] {
		case '"':
			for i++; i < len(body) && body[i] != '"'; i++ {
				if body[i] == '\\' {
					i++
				}
			}
		case '{', '[':
			if depth++; depth > 3*MaxDepth+16 { // a value is an object that has an object that has an array
				return need, errTooDeep
			}
			if body[i] == '{' {
				need += objectSize
			}
		case '}', ']':
			if depth--; depth == 0 {
				if len(bytes.TrimLeft(body[i+1:], space)) > 0 {
					return need, errMore
				}
				return need, nil
			}
		case ',':
			need += elementSize
		}
		if need > limit {
			return need, errTooLarge
		}
	}
	return need, errMalformed // it breaks off
}
