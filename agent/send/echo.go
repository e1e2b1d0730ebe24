// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package send

import (
	"bytes"
	"encoding/binary"
	"io"
	"strings"
	"unicode/utf8"
)

// The limits of what is kept of a server's message; see Error.
const (
	maxServerMessage = 200
	maxMessage       = 512
	echoRun          = 16 // bytes: a common run of this length in the message and the request's body is an echo
	minSecret        = 8  // bytes: shorter values of headers, and shorter beginnings of them, are not hidden
	maxWord          = 64 // maximum length, in bytes, of a word that is kept although it is also in the request's body
	echoed           = "[...]"
)

// cleaned prepares a server's message for display: see Error.
func cleaned(message string, secrets []string, body Body, limit int) string {
	message = Hidden(message, secrets)
	// A truncated echo would be too short to be found, so the search covers more than is kept.
	m := []byte(printable(message, 4*maxMessage))
	if len(m) >= echoRun && body.Open != nil {
		m = withoutEchoes(m, body)
	}
	return printable(string(m), limit)
}

// Hidden replaces secrets in a server's message. If the message was cut off within a secret, the beginning of the secret at the
// message's end is replaced, too.
func Hidden(text string, secrets []string) string {
	for _, s := range secrets {
		text = strings.ReplaceAll(text, s, "[hidden]")
		for n := min(len(s), len(text)); n >= minSecret; n-- {
			if strings.HasSuffix(text, s[:n]) {
				text = text[:len(text)-n] + "[hidden]"
				break
			}
		}
	}
	return text
}

// printable keeps the ASCII text of s. Each run of other characters becomes a question mark, and each run of white space a space.
func printable(s string, limit int) string {
	var b strings.Builder
	last := byte(' ')
	for len(s) > 0 && b.Len() < limit {
		r, n := utf8.DecodeRuneInString(s)
		s = s[n:]
		c := byte('?')
		switch {
		case r == ' ', r == '\t', r == '\n', r == '\r':
			c = ' '
		case r > ' ' && r < 0x7f:
			c = byte(r)
		}
		if c == ' ' && last == ' ' || c == '?' && last == '?' && (r < ' ' || r >= 0x7f) {
			continue
		}
		b.WriteByte(c)
		last = c
	}
	return strings.TrimRight(b.String(), " ")
}

// withoutEchoes removes from m each run that is also in the body and is more than one word. The body is generated again in pieces,
// and scanned once. The time is linear in the lengths of both, whatever they contain.
func withoutEchoes(m []byte, body Body) []byte {
	windows := make(map[[echoRun]byte][]int, len(m)) // positions in m that were not yet found in the body
	var filter [1 << 10]uint64                       // 64 Ki bits: for most positions of the body, the map need not be searched
	slot := func(b []byte) (int, uint64) {
		h := binary.LittleEndian.Uint64(b) * 0x9e3779b97f4a7c15 >> 48
		return int(h >> 6), 1 << (h & 63) // below 1024
	}
	for i := range len(m) - echoRun + 1 {
		key := [echoRun]byte(m[i:])
		windows[key] = append(windows[key], i)
		w, bit := slot(m[i:])
		filter[w] |= bit
	}
	taken := make([]bool, len(m))
	r := body.Open()
	buf := make([]byte, 64<<10)
	for have, end := 0, false; !end; {
		n, err := io.ReadFull(r, buf[have:])
		have += n
		end = err != nil
		j := 0
		for ; j+echoRun <= have; j++ {
			if w, bit := slot(buf[j:]); filter[w]&bit == 0 {
				continue
			}
			key := [echoRun]byte(buf[j:])
			for _, i := range windows[key] {
				for k := range echoRun {
					taken[i+k] = true
				}
			}
			delete(windows, key)
		}
		have = copy(buf, buf[j:have])
	}
	out := make([]byte, 0, len(m))
	for i := 0; i < len(m); {
		from := i
		for i < len(m) && taken[i] == taken[from] {
			i++
		}
		if taken[from] && !isWord(m[from:i]) {
			out = append(out, echoed...)
		} else {
			out = append(out, m[from:i]...)
		}
	}
	return out
}

// isWord reports whether b is one word, such as the name of a model or a field, with the quotes around it.
func isWord(b []byte) bool {
	b = bytes.TrimFunc(b, between)
	return len(b) <= maxWord && !bytes.ContainsFunc(b, between)
}

// between reports whether a character is not part of a word.
func between(c rune) bool {
	return (c < '0' || c > '9') && (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && !strings.ContainsRune("_-./:", c)
}

// code returns a server's code or type of an error if it is one word, else nothing.
func code(s string) string {
	if len(s) > maxWord || strings.ContainsFunc(s, between) {
		return ""
	}
	return s
}
