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

// splitter finds the tokens in the bytes of a streamed HTTP/1.1 reply as they arrive, without net/http: the least work that a reader of
// many sockets must do. It understands only what the simulated engine sends: a chunked body of events whose data is one line.
type splitter struct {
	scan *send.TokenScanner // may be shared by splitters that one goroutine feeds
	at   part
	left int    // bytes of the chunk that have not arrived
	head []byte // the beginning of an incomplete HTTP line
	line []byte // the beginning of an incomplete line of the body
}

// part is the part of a reply that is read next.
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

// feed processes the next bytes, and returns the number of tokens that they complete.
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

// framing processes a line of HTTP.
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

// body processes bytes of the body, and returns how many events with a token end in them.
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

// cutLine returns the line that p completes, without its end, and the bytes after it. begun holds the beginning of the line from earlier
// calls. The line is valid until the next call.
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
