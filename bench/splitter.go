// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"bytes"
	"fmt"
	"strconv"

	"github.com/moonloop/moonloop/agent/send"
)

// splitter finds the tokens in the bytes of a streamed HTTP/1.1 reply as they come, without net/http: the least that a reader
// which has many sockets at once must do. It knows what the simulated engine sends, and no more: a chunked body of events
// whose data is one line.
type splitter struct {
	scan *send.TokenScanner // may be shared by splitters that one goroutine feeds
	at   part
	left int    // bytes of the chunk that have not come
	head []byte // the beginning of a line of HTTP whose end has not come
	line []byte // the same, of a line of the body
}

// part is what of a reply comes next.
type part uint8

const (
	status part = iota
	header
	chunkSize
	chunkData
	chunkEnd
	trailer
	over
)

// feed takes the next bytes, and returns how many tokens were completed by them.
func (s *splitter) feed(p []byte) (tokens int, err error) {
	for len(p) > 0 {
		switch s.at {
		case over:
			return tokens, fmt.Errorf("%d bytes after the reply's end", len(p))
		case chunkData:
			n := min(len(p), s.left)
			tokens += s.body(p[:n])
			p = p[n:]
			if s.left -= n; s.left == 0 {
				s.at = chunkEnd
			}
		case status, header, chunkSize, chunkEnd, trailer:
			var line []byte
			var whole bool
			if line, p, whole = cutLine(&s.head, p); whole {
				if err := s.framing(bytes.TrimSuffix(line, []byte("\r"))); err != nil {
					return tokens, err
				}
			}
		}
	}
	return tokens, nil
}

// framing takes a line of HTTP.
func (s *splitter) framing(line []byte) error {
	switch s.at {
	case status:
		if !bytes.HasPrefix(line, []byte("HTTP/1.1 200 ")) {
			return fmt.Errorf("status %q", line)
		}
		s.at = header
	case header:
		if len(line) == 0 {
			s.at = chunkSize
		}
	case chunkSize:
		n, err := strconv.ParseUint(string(line), 16, 31)
		if err != nil {
			return fmt.Errorf("the size of a chunk: %w", err)
		}
		if s.left, s.at = int(n), chunkData; n == 0 {
			s.at = trailer
		}
	case chunkEnd:
		s.at = chunkSize
	case trailer:
		if len(line) == 0 {
			s.at = over
		}
	case chunkData, over:
	}
	return nil
}

// body takes bytes of the body, and returns how many events with a token ended in them.
func (s *splitter) body(p []byte) (tokens int) {
	for len(p) > 0 {
		var line []byte
		var whole bool
		if line, p, whole = cutLine(&s.line, p); !whole {
			break
		}
		if data, ok := bytes.CutPrefix(line, []byte("data: ")); ok && s.scan.Token(data) {
			tokens++
		}
	}
	return tokens
}

// cutLine returns the line that p completes, without its end, and what is after it. begun holds its beginning where that came
// before; the line is good until the next call.
func cutLine(begun *[]byte, p []byte) (line, rest []byte, whole bool) {
	if line, rest, whole = bytes.Cut(p, []byte("\n")); !whole {
		*begun = append(*begun, p...)
		return nil, nil, false
	}
	if len(*begun) > 0 {
		line = append(*begun, line...)
		*begun = line[:0]
	}
	return line, rest, true
}
