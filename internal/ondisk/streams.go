// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package ondisk

import (
	"encoding/binary"
	"fmt"
)

// Streams are sequences of bytes that are written in alternation to one temporary file. Each is read back from its beginning. At most two
// blocks of each stream are in memory.
type Streams struct {
	dir   string
	block int // bytes
	file  File
	of    []stream
}

type stream struct {
	tail   []byte  // written since the last full block
	blocks []int64 // offsets in the file
	rest   []byte  // the rest of the block that is being read
	buf    []byte  // memory of rest
}

// NewStreams returns this many streams, with blocks of this many bytes.
func NewStreams(dir string, count, block int) *Streams {
	return &Streams{dir: dir, block: block, of: make([]stream, count)}
}

// Add appends to a stream. After it has been read, nothing can be added.
func (s *Streams) Add(i int, b []byte) error {
	one := &s.of[i]
	for len(b) > 0 {
		if one.tail == nil {
			one.tail = make([]byte, 0, s.block)
		}
		n := min(len(b), s.block-len(one.tail))
		one.tail, b = append(one.tail, b[:n]...), b[n:]
		if len(one.tail) < s.block {
			return nil
		}
		if err := s.file.Open(s.dir); err != nil {
			return err
		}
		one.blocks = append(one.blocks, s.file.Size)
		if _, err := s.file.Write(one.tail); err != nil {
			return fmt.Errorf("what memory has no room for cannot be kept on disk: %w", err)
		}
		one.tail = one.tail[:0]
	}
	return nil
}

// more reports whether a stream has another byte, and makes it available.
func (s *Streams) more(i int) (bool, error) {
	one := &s.of[i]
	switch {
	case len(one.rest) > 0:
	case len(one.blocks) > 0:
		if one.buf == nil {
			one.buf = make([]byte, s.block)
		}
		if _, err := s.file.File.ReadAt(one.buf, one.blocks[0]); err != nil {
			return false, fmt.Errorf("what memory had no room for cannot be read back from disk: %w", err)
		}
		one.rest, one.blocks = one.buf, one.blocks[1:]
	default:
		one.rest, one.tail, one.buf = one.tail, nil, nil
	}
	return len(one.rest) > 0, nil
}

// Read fills b with the next bytes of a stream, and reports whether there are that many.
func (s *Streams) Read(i int, b []byte) (bool, error) {
	for len(b) > 0 {
		if ok, err := s.more(i); !ok || err != nil {
			return false, err
		}
		n := copy(b, s.of[i].rest)
		b, s.of[i].rest = b[n:], s.of[i].rest[n:]
	}
	return true, nil
}

// Uvarint reads a number that binary.AppendUvarint has written; at the end of the stream, it returns 0.
func (s *Streams) Uvarint(i int) (n uint64, err error) {
	for shift := uint(0); ; shift += 7 {
		var b [1]byte
		if len(s.of[i].rest) > 0 {
			b[0], s.of[i].rest = s.of[i].rest[0], s.of[i].rest[1:]
		} else if ok, err := s.Read(i, b[:]); !ok || err != nil || shift >= 7*binary.MaxVarintLen64 {
			return 0, err
		}
		if n |= uint64(b[0]&0x7f) << shift; b[0] < 0x80 {
			return n, nil
		}
	}
}

// Close frees memory and disk.
func (s *Streams) Close() {
	s.file.Close()
	s.of = nil
}
