// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package send

import (
	"bytes"
	"io"
)

// lines splits a stream at LF, CRLF and CR, as the grammar of server-sent events has it, without waiting for the byte
// behind a CR. Its buffer grows with the longest line, up to max.
type lines struct {
	src     io.Reader
	buf     []byte
	r, w    int // unread bytes are buf[r:w]
	max     int
	skipLF  bool // the last line ended with a CR at the end of the buffer
	started bool
	err     error
}

const lineBuffer = 1 << 10 // a chunk is a third of it

func (l *lines) reset(src io.Reader, bound int) {
	if l.buf == nil || len(l.buf) > 16*lineBuffer {
		l.buf = make([]byte, lineBuffer)
	}
	*l = lines{src: src, buf: l.buf, max: bound}
}

// next returns the next line without its end; it is valid until the next call. The rest of a stream that does not end
// with a line end comes together with the error.
func (l *lines) next() ([]byte, error) {
	seen := l.r // no line end before it
	for {
		if l.skipLF && l.r < l.w {
			l.skipLF = false
			if l.buf[l.r] == '\n' {
				l.r++
				seen = max(seen, l.r)
			}
		}
		if line, ok := l.cut(seen); ok {
			return line, nil
		}
		if l.err != nil {
			rest := l.first(l.buf[l.r:l.w])
			l.r = l.w
			return rest, l.err
		}
		if l.r > 0 {
			copy(l.buf, l.buf[l.r:l.w])
			l.r, l.w = 0, l.w-l.r
		}
		seen = l.w
		l.fill()
	}
}

// cut takes a line off the buffer if it ends there.
func (l *lines) cut(seen int) ([]byte, bool) {
	end := bytes.IndexByte(l.buf[seen:l.w], '\n')
	stop := l.w
	if end >= 0 {
		stop = seen + end
	}
	if cr := bytes.IndexByte(l.buf[seen:stop], '\r'); cr >= 0 {
		line := l.buf[l.r : seen+cr]
		l.r = seen + cr + 1
		l.skipLF = true
		return l.first(line), true
	}
	if end < 0 {
		return nil, false
	}
	line := l.buf[l.r:stop]
	l.r = stop + 1
	return l.first(line), true
}

// first takes the byte order mark off the first line.
func (l *lines) first(line []byte) []byte {
	if l.started {
		return line
	}
	l.started = true
	return bytes.TrimPrefix(line, []byte("\xef\xbb\xbf"))
}

// fill reads more, in a larger buffer if need be. The unread bytes are at its start.
func (l *lines) fill() {
	if l.w == len(l.buf) {
		if len(l.buf) >= l.max {
			l.err = errLineTooLong
			return
		}
		grown := make([]byte, min(2*len(l.buf), l.max))
		copy(grown, l.buf)
		l.buf = grown
	}
	for range 100 {
		n, err := l.src.Read(l.buf[l.w:])
		l.w += n
		if n > 0 || err != nil {
			l.err = err
			return
		}
	}
	l.err = io.ErrNoProgress
}
