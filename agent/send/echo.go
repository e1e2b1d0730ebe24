// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package send

import (
	"encoding/binary"
	"io"
	"strings"
	"unicode/utf8"
)

// What is kept of a server's words; see Error.
const (
	maxServerMessage = 200
	maxMessage       = 512
	echoRun          = 16 // bytes in common with the request's body that make an echo
	maxWord          = 64 // bytes of a word that may be common
	echoed           = "[...]"
)

// cleaned makes a server's message fit to be shown: see Error.
func cleaned(message string, secrets []string, body Body, limit int) string {
	for _, s := range secrets {
		message = strings.ReplaceAll(message, s, "[hidden]")
	}
	// An echo that is cut off would be too short to be found, so the search sees more than is kept.
	m := []byte(printable(message, 4*maxMessage))
	if len(m) >= echoRun && body.Open != nil {
		m = withoutEchoes(m, body)
	}
	return printable(string(m), limit)
}

// printable keeps the ASCII text of s: other characters become a question mark each run of them, blanks a space.
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

// withoutEchoes takes out of m each run that stands in the body too and is more than one word. The body is made again,
// in pieces, and passed over once: a request that was refused costs about two nanoseconds a byte more.
func withoutEchoes(m []byte, body Body) []byte {
	at := make(map[uint64][]int, len(m)) // positions of eight bytes in m
	var filter [1 << 10]uint64           // 64 Ki bits: most positions of the body need no look at the map
	slot := func(v uint64) (int, uint64) {
		h := v * 0x9e3779b97f4a7c15 >> 48
		return int(h >> 6), 1 << (h & 63) //nolint:gosec // below 1024
	}
	for i := range len(m) - 7 {
		v := binary.LittleEndian.Uint64(m[i:])
		at[v] = append(at[v], i)
		w, bit := slot(v)
		filter[w] |= bit
	}
	taken := make([]bool, len(m))
	r := body.Open()
	buf := make([]byte, 64<<10)
	have := 0
	for {
		n, err := io.ReadFull(r, buf[have:])
		have += n
		piece := buf[:have]
		for j := 0; j+echoRun <= len(piece); j++ {
			v := binary.LittleEndian.Uint64(piece[j:])
			if w, bit := slot(v); filter[w]&bit == 0 {
				continue
			}
			for _, i := range at[v] {
				run := common(m[i:], piece[j:])
				if run >= echoRun && !isWord(m, i, i+run) {
					for k := i; k < i+run; k++ {
						taken[k] = true
					}
				}
			}
		}
		if err != nil {
			break
		}
		have = copy(buf, piece[len(piece)-len(m):]) // a run may go on
	}
	out := make([]byte, 0, len(m))
	for i, c := range m {
		switch {
		case !taken[i]:
			out = append(out, c)
		case i == 0 || !taken[i-1]:
			out = append(out, echoed...)
		}
	}
	return out
}

func common(a, b []byte) int {
	n := min(len(a), len(b))
	for i := range n {
		if a[i] != b[i] {
			return i
		}
	}
	return n
}

// isWord reports whether m[from:to] lies in one word, such as the name of a model or a field, with the quotes around it.
func isWord(m []byte, from, to int) bool {
	for from < to && !wordByte(m[from]) {
		from++
	}
	for from < to && !wordByte(m[to-1]) {
		to--
	}
	for _, c := range m[from:to] {
		if !wordByte(c) {
			return false
		}
	}
	return to-from <= maxWord
}

func wordByte(c byte) bool {
	return c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' ||
		c == '_' || c == '-' || c == '.' || c == '/' || c == ':'
}

// code keeps a server's code or type if it is one word.
func code(s string) string {
	if s == "" || !isWord([]byte(s), 0, len(s)) || !wordByte(s[0]) || !wordByte(s[len(s)-1]) {
		return ""
	}
	return s
}
