// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package send

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httputil"
	"strings"
)

// This file reads the usual replies of an engine without net/http, whose http.ReadResponse makes a map with a copy of each header: a fifth of
// the garbage of a short request. A usual reply has the status 200, a length or chunks, and a head that has arrived as a whole. Whatever is
// unusual or looks wrong is left to net/http, from its first byte, so that net/http decides.

// head is the head of a usual reply, with only the headers that are wanted. Its memory is used again.
type head struct {
	header  http.Header
	values  []string
	length  int64
	chunked bool // there is no length
}

// usual reads the head of a reply into the link's response. It returns false, and has read nothing, if the reply is not a usual one.
func (l *link) usual(wanted []string) bool {
	ahead, _ := l.br.Peek(l.br.Buffered()) // what is buffered can be peeked at
	end := bytes.Index(ahead, []byte("\r\n\r\n"))
	if h := &l.head; end < 0 || !h.parse(ahead[:end], wanted) {
		return false
	}
	_, _ = l.br.Discard(end + 4) // it is buffered
	l.body = usualBody{link: l, left: l.head.length}
	if l.head.chunked {
		l.body.chunks = httputil.NewChunkedReader(l.br)
	}
	l.resp = http.Response{
		Status: "200 OK", StatusCode: http.StatusOK, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: l.head.header, ContentLength: l.head.length, Body: &l.body,
	}
	return true
}

// parse reads a head. It returns false if the reply is not a usual one.
func (h *head) parse(text []byte, wanted []string) bool {
	status, lines, more := bytes.Cut(text, []byte("\r\n"))
	if string(status) != "HTTP/1.1 200 OK" && string(status) != "HTTP/1.1 200 " {
		return false
	}
	if h.header == nil {
		h.header = make(http.Header)
	}
	clear(h.header)
	h.values, h.length, h.chunked = h.values[:0], Unknown, false
	for more {
		var line []byte
		line, lines, more = bytes.Cut(lines, []byte("\r\n"))
		name, value, ok := field(line)
		switch {
		case !ok, is(name, "Trailer"), is(name, "Content-Encoding"), is(name, "Connection") && !is(value, "keep-alive"):
			return false
		case is(name, "Transfer-Encoding"):
			if h.chunked || !is(value, "chunked") {
				return false
			}
			h.chunked = true
		case is(name, "Content-Length"):
			if h.length != Unknown {
				return false
			}
			if h.length = digits(value); h.length == Unknown {
				return false
			}
		default:
			for _, w := range wanted {
				if is(name, w) {
					h.add(w, value)
				}
			}
		}
	}
	return h.chunked == (h.length == Unknown) // else the reply has both, or neither, and ends with its connection
}

// medias are the media types of nearly all replies.
var medias = [...]string{mediaEventsUTF8, mediaEvents, mediaJSON}

// add adds a value to the header. Only a rare value is copied.
func (h *head) add(name string, value []byte) {
	known := ""
	for _, media := range medias {
		if string(value) == media {
			known = media
		}
	}
	if known == "" {
		known = string(value)
	}
	if before := h.header[name]; before != nil {
		h.header[name] = append(before, known)
		return
	}
	n := len(h.values)
	h.values = append(h.values, known)
	h.header[name] = h.values[n : n+1 : n+1]
}

// is compares a name or a keyword with an ASCII word, whatever the case of their letters.
func is(text []byte, word string) bool {
	return len(text) == len(word) && strings.EqualFold(string(text), word)
}

// field splits a line of a head. It returns false if net/http might refuse or change it.
func field(line []byte) (name, value []byte, ok bool) {
	name, value, ok = bytes.Cut(line, []byte(":"))
	if !ok || !plainName(name) || !plainValue(value) {
		return nil, nil, false
	}
	return name, bytes.Trim(value, " "), true
}

// usualBody is the body of a usual reply.
type usualBody struct {
	link   *link
	chunks io.Reader // nil: the body has a length
	left   int64     // of the length
	ended  bool
	odd    bool // the reply has trailers, which nobody reads: another reply cannot follow it
}

// Read implements io.Reader.
func (b *usualBody) Read(p []byte) (n int, err error) {
	switch {
	case b.ended:
		return 0, io.EOF
	case b.chunks == nil:
		if b.left > 0 {
			n, err = b.link.br.Read(p[:min(int64(len(p)), b.left)])
			b.left -= int64(n)
		}
		switch {
		case b.left == 0:
			err = io.EOF
		case err == io.EOF:
			err = io.ErrUnexpectedEOF
		}
	default:
		if n, err = b.chunks.Read(p); err == io.EOF { // of the last chunk; an empty line is left
			var rest []byte
			if rest, err = b.link.br.Peek(2); err == nil {
				if b.odd = string(rest) != "\r\n"; !b.odd {
					_, _ = b.link.br.Discard(2) // it is buffered
				}
				err = io.EOF
			} else if err == io.EOF {
				err = io.ErrUnexpectedEOF
			}
		}
	}
	b.ended = err == io.EOF
	return n, err
}

// Close implements io.Closer. The link decides what becomes of the connection.
func (*usualBody) Close() error { return nil }
