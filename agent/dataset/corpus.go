// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package dataset

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash"
	"io"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/moonloop/moonloop/mooncake"
)

// The limits of a corpus. If a trace needs more text than this, its blocks begin at different positions of the text.
const (
	// MaxBytes is the maximum size of the stored text.
	MaxBytes = 8 << 20
	// MaxDistinct is the maximum number of distinct segments, because the tokens of each are counted.
	MaxDistinct = 1 << 16
	// maxSegment is the maximum length of a segment in bytes.
	maxSegment = 64
	// maxRead is the maximum size of the text that is searched for segments.
	maxRead = 1 << 30
)

// Corpus is the text of a dataset, split into segments.
type Corpus struct {
	Name string // of the file, without secrets
	// Segments are the distinct segments; Order is the text, as indices of Segments.
	Segments []string
	Order    []uint32
	Texts    int64  // texts read
	Bytes    int64  // of Order
	LeftOut  int64  // bytes of the texts outside all segments
	Digest   string // SHA-256 of Order's text, in hexadecimal digits

	index map[string]uint32
	sum   hash.Hash
}

// Read reads a dataset: a file or a URL, compressed or not. It stops when it has enough text. The same file gives the same corpus.
// Its errors do not quote the text.
func Read(ctx context.Context, name string) (*Corpus, error) {
	in, err := mooncake.OpenInput(ctx, name, mooncake.OpenOptions{})
	if err != nil {
		return nil, fmt.Errorf("dataset: %w", err)
	}
	defer func() { _ = in.Close() }()
	if err := in.Text(); err != nil {
		return nil, fmt.Errorf("dataset: %w", err)
	}
	c := &Corpus{Name: in.Label, index: make(map[string]uint32), sum: sha256.New()}
	read := int64(0)
	if err := texts(in.Reader, func(text string) bool {
		read += int64(len(text))
		return c.add(text) && read < maxRead && ctx.Err() == nil
	}); err != nil {
		return nil, fmt.Errorf("dataset: %s %w", c.Name, err)
	}
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("dataset: %s: %w", c.Name, err)
	}
	if len(c.Order) == 0 {
		return nil, fmt.Errorf("dataset: %s has no text of words with spaces between them", c.Name)
	}
	c.Digest = hex.EncodeToString(c.sum.Sum(nil))
	return c, nil
}

// add adds the segments of a text, and reports whether there is room for more.
func (c *Corpus) add(text string) bool {
	c.Texts++
	text = strings.TrimSpace(text)
	if r, _ := utf8.DecodeRuneInString(text); unicode.IsLetter(r) {
		text = " " + text
	}
	for len(text) > 0 && c.Bytes < MaxBytes {
		n := segment(text)
		s := text[:n]
		text = text[n:]
		at, known := c.index[s]
		if !known {
			if !usable(s) || len(c.Segments) >= MaxDistinct {
				c.LeftOut += int64(n)
				continue
			}
			s = strings.Clone(s)         // so as not to keep the whole text in memory
			at = uint32(len(c.Segments)) //nolint:gosec // below MaxDistinct
			c.index[s] = at
			c.Segments = append(c.Segments, s)
		}
		c.Order = append(c.Order, at)
		c.Bytes += int64(n)
		_, _ = io.WriteString(c.sum, s)
	}
	return c.Bytes < MaxBytes
}

// segment returns the length of the first segment of a text: up to the next space that follows a visible character and precedes a letter.
func segment(text string) int {
	for from := 1; from < len(text); {
		i := strings.IndexByte(text[from:], ' ')
		if i < 0 {
			break
		}
		at := from + i
		before, _ := utf8.DecodeLastRuneInString(text[:at])
		after, _ := utf8.DecodeRuneInString(text[at+1:])
		if unicode.IsGraphic(before) && !unicode.IsSpace(before) && unicode.IsLetter(after) {
			return at
		}
		from = at + 1
	}
	return len(text)
}

// usable reports whether a segment may be part of a prompt.
func usable(s string) bool {
	if len(s) > maxSegment || !utf8.ValidString(s) || s[0] != ' ' {
		return false
	}
	if first, _ := utf8.DecodeRuneInString(s[1:]); !unicode.IsLetter(first) {
		return false
	}
	if strings.ContainsAny(s, "<[") { // special tokens begin with these
		return false
	}
	return !strings.ContainsFunc(s, func(r rune) bool { return unicode.IsControl(r) && r != '\n' && r != '\t' || r == utf8.RuneError })
}
