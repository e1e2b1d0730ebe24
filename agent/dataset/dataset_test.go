// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package dataset

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
)

func write(t *testing.T, text string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "data")
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

// text returns the text of a corpus, joined from its segments.
func (c *Corpus) text() string {
	var b strings.Builder
	for _, at := range c.Order {
		b.WriteString(c.Segments[at])
	}
	return b.String()
}

// TestFormats: Read finds the texts in each kind of file, and joins them in order.
func TestFormats(t *testing.T) {
	for name, test := range map[string]struct{ file, want string }{
		"ShareGPT":                   {`[{"id":"x","conversations":[{"from":"human","value":"Hi there"},{"from":"gpt","value":"Hello, you"}]}, {"id":"y","conversations":[]}]`, " Hi there Hello, you"},
		"JSONL text":                 {"{\"text\":\"one two\"}\n{\"text\":\"three\",\"other\":1}\n", " one two three"},
		"JSONL prompt":               {`{"prompt":"one two"}`, " one two"},
		"JSONL messages":             {`{"messages":[{"role":"system","content":"be kind"},{"role":"user","content":[{"type":"text"}]},{"role":"user","content":"what"}]}`, " be kind what"},
		"trace rows":                 {`{"text_input":"from a trace","output_length":3}`, " from a trace"},
		"array of strings":           {`["one", "two words"]`, " one two words"},
		"plain text":                 {"\xef\xbb\xbfFirst line\nsecond line\n\nNext paragraph, 42 (really).\n", " First line\nsecond line Next paragraph, 42 (really)."},
		"escape sequences":           {`{"text":"quote \" and \u00e9t\u00e9"}`, ` quote " and été`},
		"segments that are left out": {`["see <|im_end|> and [INST] but keep this", "中文没有空格但是有很多很多很多很多很多很多很多字的句子", "\u0000 nul here"]`, " but keep this here"},
	} {
		c, err := Read(t.Context(), write(t, test.file))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if diff := cmp.Diff(test.want, c.text()); diff != "" || int(c.Bytes) != len(test.want) || len(c.Digest) != 64 {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

// TestBadFiles: errors say what is wrong and where, and quote nothing.
func TestBadFiles(t *testing.T) {
	for name, test := range map[string]struct{ file, want string }{
		"empty":      {"", "no text"},
		"numbers":    {"[1, 2]", "element 1 has no text"},
		"no text":    {`{"secret":"value"}`, "element 1 has no text"},
		"syntax":     {"{\"text\":\"fine\"}\n{\"text\":secret}", "element 2 is not JSON"},
		"broken off": {`[{"text":"fine"},`, "element 2 is not JSON"},
		"binary":     {"\x7fELF\x00\x00secret", "not text"},
		"no words":   {"1234 5678", "no text of words"},
		"an archive": {"PK\x03\x04secret\x00", "not text"},
		"HTML":       {"<html>secret</html>", "HTML"},
	} {
		_, err := Read(t.Context(), write(t, test.file))
		if err == nil || !strings.Contains(err.Error(), test.want) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v, want %q", name, err, test.want)
		}
	}
	for _, format := range []string{"{\"text\":\"number %d\"}\n", "number %d\n"} {
		var packed bytes.Buffer
		z := gzip.NewWriter(&packed)
		for i := range 100_000 {
			fmt.Fprintf(z, format, i)
		}
		if err := z.Close(); err != nil {
			t.Fatal(err)
		}
		half := packed.String()[:packed.Len()/2]
		if _, err := Read(t.Context(), write(t, half)); err == nil || !strings.Contains(err.Error(), "cannot be read to its end: unexpected EOF; use a complete copy") {
			t.Errorf("half of a compressed file: %v", err)
		}
	}
	if _, err := Read(t.Context(), filepath.Join(t.TempDir(), "none")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a file that does not exist: %v", err)
	}
}

// TestBounds: no more is kept than the bounds allow, even of an endless file. An element that is too long is refused.
func TestBounds(t *testing.T) {
	long := &bounded{in: strings.NewReader(strings.Repeat("x", 2*maxValue)), read: func() int64 { return 0 }}
	if n, err := bufio.NewReaderSize(long, 1<<20).Discard(2 * maxValue); !errors.Is(err, errTooLong) || n > maxValue+2<<20 {
		t.Errorf("%d bytes, %v", n, err)
	}
	var b strings.Builder
	for i := 0; b.Len() < MaxBytes+MaxBytes/2; i++ {
		fmt.Fprintf(&b, "word%d and more ", i)
	}
	c, err := Read(t.Context(), write(t, b.String()))
	if err != nil {
		t.Fatal(err)
	}
	if len(c.Segments) != MaxDistinct || c.Bytes > MaxBytes+maxSegment || c.LeftOut == 0 {
		t.Errorf("%d segments, %d bytes, %d left out", len(c.Segments), c.Bytes, c.LeftOut)
	}
}

// FuzzRead: every file gives a text or an error. Each segment begins with a space before a letter and ends with a visible character. The
// same file gives the same text.
func FuzzRead(f *testing.F) {
	for _, seed := range []string{
		`[{"conversations":[{"value":"Hi there, all of you"}]}]`, "{\"text\":\"a b\"}\n{\"prompt\":\"c d\"}", "plain  text\n\n with spaces", "[\"\\ud800 a b\"]", "a\u0301 \u0301b c", "",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		name := write(t, string(data))
		c, err := Read(t.Context(), name)
		if err != nil {
			return
		}
		for _, s := range c.Segments {
			first, _ := utf8.DecodeRuneInString(s[1:])
			last, _ := utf8.DecodeLastRuneInString(s)
			if s[0] != ' ' || !unicode.IsLetter(first) || unicode.IsSpace(last) || len(s) > maxSegment {
				t.Errorf("segment %q", s)
			}
		}
		again, err := Read(t.Context(), name)
		if err != nil || again.Digest != c.Digest || again.text() != c.text() {
			t.Errorf("again: %v", err)
		}
	})
}
