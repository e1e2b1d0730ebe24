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
// unusual or looks wrong is left to net/http, from its first byte, so that it decides.

// usual reads the head of a reply. The response is the link's, until it takes another request. It returns nil, and has read nothing, if the
// reply is not a usual one.
func (l *link) usual(wanted []string) *http.Response {
	ahead, _ := l.br.Peek(l.br.Buffered()) // what is buffered can be peeked at
	end := bytes.Index(ahead, []byte("\r\n\r\n"))
	if end < 0 {
		return nil
	}
	status, lines, _ := bytes.Cut(ahead[:end+2], []byte("\r\n"))
	if string(status) != "HTTP/1.1 200 OK" && string(status) != "HTTP/1.1 200 " {
		return nil
	}
	if l.header == nil {
		l.header = make(http.Header)
	}
	clear(l.header)
	length, chunked := int64(Unknown), false
	for len(lines) > 0 {
		var line []byte
		line, lines, _ = bytes.Cut(lines, []byte("\r\n"))
		name, value, ok := field(line)
		switch {
		case !ok, is(name, "Trailer"), is(name, "Connection") && !is(value, "keep-alive"):
			return nil
		case is(name, "Transfer-Encoding"):
			if chunked || !is(value, "chunked") {
				return nil
			}
			chunked = true
		case is(name, "Content-Length"):
			if length != Unknown {
				return nil
			}
			if length = digits(value); length == Unknown {
				return nil
			}
		default:
			l.collect(wanted, name, value)
		}
	}
	if chunked == (length != Unknown) { // both, or neither: then the end of the connection is the reply's
		return nil
	}
	_, _ = l.br.Discard(end + 4) // it is buffered
	l.body = usualBody{link: l, left: length}
	if chunked {
		l.body.chunks = httputil.NewChunkedReader(l.br)
	}
	l.resp = http.Response{
		Status: "200 OK", StatusCode: http.StatusOK, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: l.header, ContentLength: length, Body: &l.body,
	}
	return &l.resp
}

// is compares a name or a keyword with one in ASCII letters.
func is(text []byte, word string) bool {
	return len(text) == len(word) && strings.EqualFold(string(text), word)
}

// collect keeps a header if it is one of those wanted.
func (l *link) collect(wanted []string, name, value []byte) {
	for _, w := range wanted {
		if is(name, w) {
			l.header[w] = append(l.header[w], known(value))
		}
	}
}

// medias are the media types of nearly all replies.
var medias = []string{mediaEvents, mediaEvents + "; charset=utf-8", mediaJSON}

// known returns a header's value as a string, which is a copy only if it is rare.
func known(value []byte) string {
	for _, media := range medias {
		if string(value) == media {
			return media
		}
	}
	return string(value)
}

// field splits a line of a head. It returns false if net/http might refuse or change it.
func field(line []byte) (name, value []byte, ok bool) {
	name, value, ok = bytes.Cut(line, []byte(":"))
	if !ok || len(name) == 0 || bytes.ContainsFunc(name, notInNames) {
		return nil, nil, false
	}
	for _, b := range value {
		if b < ' ' || b >= 0x7f {
			return nil, nil, false
		}
	}
	return name, bytes.Trim(value, " "), true
}

func notInNames(r rune) bool {
	return r != '-' && (r < '0' || r > '9') && (r < 'A' || r > 'Z') && (r < 'a' || r > 'z')
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
