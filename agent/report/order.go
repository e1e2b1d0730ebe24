// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"bufio"
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
)

// The limits of the buffer that restores the trace's order. If more requests than this began after a request and ended before it, its line
// comes after theirs in the file. In a shard, which has only some rows, the buffer is always full.
const (
	maxHeld      = 8192
	maxHeldBytes = 16 << 20
)

// The limits of the memory that is used again after its line has been written.
const (
	maxFree      = 64
	maxFreeBytes = 16 << 10 // of a line
)

// sortRequests reads the lines of a file of records, in the order in which requests ended, and writes them to another file in the order of
// their rows. It returns the number of lines that still come after a line of a later row. The new file gets its final name when it is
// complete.
func sortRequests(from *os.File, path string) (late int64, err error) {
	if _, err := from.Seek(0, io.SeekStart); err != nil {
		return 0, err
	}
	out, err := createFile(path, ".ordered"+partialSuffix)
	if err != nil {
		return 0, err
	}
	s := sorter{last: -1}
	if err = fill(out, func(w io.Writer) error { return s.sort(bufio.NewReaderSize(from, 64<<10), w) }); err != nil {
		_ = out.Discard() // the input file still has all lines
	}
	return s.late, err
}

// sorter restores the order of lines.
type sorter struct {
	last      int64 // the greatest index written so far
	late      int64
	held      []line // by index
	heldBytes int
	free      [][]byte
}

// line is one encoded record.
type line struct {
	index int64
	text  []byte
}

func (s *sorter) sort(in *bufio.Reader, out io.Writer) error {
	for {
		text, err := s.read(in)
		if errors.Is(err, io.EOF) && len(text) == 0 {
			return s.release(out, true)
		}
		if err != nil {
			return err
		}
		index, err := lineRow(text)
		if err != nil {
			return err
		}
		at, _ := slices.BinarySearchFunc(s.held, index, func(l line, index int64) int { return cmp.Compare(l.index, index) })
		s.held = slices.Insert(s.held, at, line{index, text}) // mostly near the end
		s.heldBytes += len(text)
		if err := s.release(out, false); err != nil {
			return err
		}
	}
}

// read reads a line. At the end of the file it returns io.EOF, with the last line if that has no line end.
func (s *sorter) read(in *bufio.Reader) (text []byte, err error) {
	if n := len(s.free); n > 0 {
		text, s.free = s.free[n-1], s.free[:n-1]
	}
	for {
		part, err := in.ReadSlice('\n')
		text = append(text, part...)
		if !errors.Is(err, bufio.ErrBufferFull) {
			return text, err
		}
	}
}

// release writes the lines that are next in order, and those for which there is no room; if end is set, all lines.
func (s *sorter) release(out io.Writer, end bool) error {
	for len(s.held) > 0 && (end || s.held[0].index == s.last+1 || len(s.held) > maxHeld || s.heldBytes > maxHeldBytes) {
		first := s.held[0]
		s.held[0] = line{}
		s.held, s.heldBytes = s.held[1:], s.heldBytes-len(first.text)
		if first.index < s.last {
			s.late++
		}
		s.last = max(s.last, first.index)
		if _, err := out.Write(first.text); err != nil {
			return err
		}
		if len(s.free) < maxFree && cap(first.text) <= maxFreeBytes {
			s.free = append(s.free, first.text[:0])
		}
	}
	return nil
}

// lineRow returns the row of a line that appendLine has written. The member "result" comes last in the line. No string can contain that key
// with its quotes, because quotes in strings are escaped.
func lineRow(text []byte) (int64, error) {
	const result, row = `"result": {`, `,"row":`
	_, last, found := bytes.Cut(text, []byte(result))
	for more := found; more; { // forward, which takes a tenth of the time of bytes.LastIndex
		var rest []byte
		if _, rest, more = bytes.Cut(last, []byte(result)); more {
			last = rest
		}
	}
	if _, rest, ok := bytes.Cut(last, []byte(row)); found && ok {
		if end := bytes.IndexByte(rest, ','); end > 0 {
			return strconv.ParseInt(string(rest[:end]), 10, 64)
		}
	}
	return 0, fmt.Errorf("a line of %d bytes does not have the form of a record", len(text))
}
