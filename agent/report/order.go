// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"bufio"
	"bytes"
	"container/heap"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
)

// The bounds of the buffer that restores the trace's order. A request that ended after more others than this, which began
// after it, stands behind them. In a shard, which lacks rows, the buffer is always full.
const (
	maxHeld      = 8192
	maxHeldBytes = 16 << 20
)

// sortRequests reads the lines of a file of records, in the order in which requests ended, and writes them to another one
// in the order of their rows. It returns the number of lines that stand after a line of a later row all the same. The file
// gets its name when it is complete.
func sortRequests(from *os.File, path string) (late int64, err error) {
	if _, err := from.Seek(0, io.SeekStart); err != nil {
		return 0, err
	}
	out, err := createFile(path, ".ordered"+partialSuffix)
	if err != nil {
		return 0, err
	}
	s := sorter{out: out.Writer, last: -1}
	if err = out.complete(s.sort(bufio.NewReaderSize(from, 1<<18))); err != nil {
		_ = out.file.Discard() // all of it is in the other file
	}
	return s.late, err
}

// sorter restores the order of lines.
type sorter struct {
	out       *bufio.Writer
	last      int64 // index of the line written last, the greatest so far
	late      int64
	held      lines
	heldBytes int
}

func (s *sorter) sort(in *bufio.Reader) error {
	for {
		text, err := in.ReadBytes('\n')
		if errors.Is(err, io.EOF) && len(text) == 0 {
			break
		}
		if err != nil {
			return err
		}
		index, err := lineRow(text)
		if err != nil {
			return err
		}
		s.heldBytes += len(text)
		heap.Push(&s.held, line{index, text})
		for len(s.held) > 0 && (s.held[0].index == s.last+1 || len(s.held) > maxHeld || s.heldBytes > maxHeldBytes) {
			if err := s.writeFirst(); err != nil {
				return err
			}
		}
	}
	for len(s.held) > 0 {
		if err := s.writeFirst(); err != nil {
			return err
		}
	}
	return nil
}

func (s *sorter) writeFirst() error {
	first := heap.Pop(&s.held).(line)
	s.heldBytes -= len(first.text)
	if first.index < s.last {
		s.late++
	}
	s.last = max(s.last, first.index)
	_, err := s.out.Write(first.text)
	return err
}

// lineRow returns the row of a line that appendLine has made. Its result is the last of its members, and no string can hold
// the key with its quotes.
func lineRow(text []byte) (int64, error) {
	const result, row = `"result": {`, `,"row":`
	if at := bytes.LastIndex(text, []byte(result)); at >= 0 {
		if _, rest, found := bytes.Cut(text[at:], []byte(row)); found {
			if end := bytes.IndexByte(rest, ','); end > 0 {
				return strconv.ParseInt(string(rest[:end]), 10, 64)
			}
		}
	}
	return 0, fmt.Errorf("a line of %d bytes is not one that was written", len(text))
}

// line is one encoded record.
type line struct {
	index int64
	text  []byte
}

// lines is a heap by index.
type lines []line

func (l lines) Len() int           { return len(l) }
func (l lines) Less(i, j int) bool { return l[i].index < l[j].index }
func (l lines) Swap(i, j int)      { l[i], l[j] = l[j], l[i] }
func (l *lines) Push(x any)        { *l = append(*l, x.(line)) }
func (l *lines) Pop() any {
	last := (*l)[len(*l)-1]
	(*l)[len(*l)-1] = line{}
	*l = (*l)[:len(*l)-1]
	return last
}
