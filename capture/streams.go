// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"encoding/binary"
	"fmt"

	"github.com/moonloop/moonloop/internal/ondisk"
)

// streams are many sequences of bytes that are written side by side, and read back each from its beginning, in one temporary file. Two
// blocks of each are in memory at most.
type streams struct {
	dir   string
	block int // bytes
	file  ondisk.File
	of    []stream
}

type stream struct {
	tail   []byte  // what was written since the last full block
	blocks []int64 // offsets in the file
	rest   []byte  // what is left of the block that is being read
	buf    []byte  // of that
}

func newStreams(dir string, count, block int) *streams {
	return &streams{dir: dir, block: block, of: make([]stream, count)}
}

// add appends to a stream.
func (s *streams) add(i int, b []byte) error {
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
			return fmt.Errorf("block ids cannot be numbered on disk: %w", err)
		}
		one.tail = one.tail[:0]
	}
	return nil
}

// more reports whether a stream has another byte, and sees to it that it can be taken.
func (s *streams) more(i int) (bool, error) {
	one := &s.of[i]
	switch {
	case len(one.rest) > 0:
	case len(one.blocks) > 0:
		if one.buf == nil {
			one.buf = make([]byte, s.block)
		}
		if _, err := s.file.File.ReadAt(one.buf, one.blocks[0]); err != nil {
			return false, fmt.Errorf("block ids that were numbered on disk cannot be read back: %w", err)
		}
		one.rest, one.blocks = one.buf, one.blocks[1:]
	default:
		one.rest, one.tail = one.tail, nil
	}
	return len(one.rest) > 0, nil
}

// read fills b with the next bytes of a stream, and reports whether there are that many.
func (s *streams) read(i int, b []byte) (bool, error) {
	for len(b) > 0 {
		if ok, err := s.more(i); !ok || err != nil {
			return false, err
		}
		n := copy(b, s.of[i].rest)
		b, s.of[i].rest = b[n:], s.of[i].rest[n:]
	}
	return true, nil
}

// uvarint reads a number that binary.AppendUvarint has written.
func (s *streams) uvarint(i int) (n uint64, err error) {
	for shift := uint(0); ; shift += 7 {
		var b [1]byte
		if len(s.of[i].rest) > 0 {
			b[0], s.of[i].rest = s.of[i].rest[0], s.of[i].rest[1:]
		} else if ok, err := s.read(i, b[:]); !ok || err != nil || shift >= 7*binary.MaxVarintLen64 {
			return 0, err
		}
		if n |= uint64(b[0]&0x7f) << shift; b[0] < 0x80 {
			return n, nil
		}
	}
}

func (s *streams) close() {
	s.file.Close()
	s.of = nil
}
