// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package jsonrows

import (
	"bufio"
	"errors"
	"io"
)

// Lines reads the lines of any file, with a maximum length. It examines each byte once, however long a line is and however it arrives; a
// [bufio.Scanner] examines the whole line again for each piece of it.
type Lines struct {
	src  *bufio.Reader
	max  int
	long []byte // a line that does not fit into src's buffer
}

// NewLines returns a reader of lines of at most maxLen bytes, including the line end.
func NewLines(src *bufio.Reader, maxLen int) *Lines { return &Lines{src: src, max: maxLen} }

// Next returns the next line with its line end, which the last one of a file may lack. It is valid until the next call. After the last line
// it returns io.EOF. For a line that is too long it returns [ErrLongLine]; after that, and after an error of the source, there is nothing
// more to read.
func (l *Lines) Next() ([]byte, error) {
	line, err := l.src.ReadSlice('\n')
	if errors.Is(err, bufio.ErrBufferFull) {
		l.long = append(l.long[:0], line...)
		for errors.Is(err, bufio.ErrBufferFull) && len(l.long) <= l.max {
			line, err = l.src.ReadSlice('\n')
			l.long = append(l.long, line...)
		}
		line = l.long
	}
	switch {
	case len(line) > l.max:
		return nil, ErrLongLine
	case errors.Is(err, io.EOF) && len(line) > 0:
		return line, nil
	}
	return line, err
}
