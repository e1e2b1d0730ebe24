// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package jsonrows

import (
	"bufio"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"
)

func TestLines(t *testing.T) {
	broken := errors.New("broken")
	long := strings.Repeat("x", 100)
	for name, test := range map[string]struct {
		in   io.Reader
		want []string
		err  error
	}{
		"empty":                                  {strings.NewReader(""), nil, io.EOF},
		"lines":                                  {strings.NewReader("a\r\n\nb\n"), []string{"a\r\n", "\n", "b\n"}, io.EOF},
		"without an end":                         {strings.NewReader("a\nb"), []string{"a\n", "b"}, io.EOF},
		"of the maximum length":                  {strings.NewReader(long[1:] + "\n" + long[1:] + "\n"), []string{long[1:] + "\n", long[1:] + "\n"}, io.EOF},
		"of the maximum length, without an end":  {strings.NewReader(long), []string{long}, io.EOF},
		"too long":                               {strings.NewReader("a\n" + long + "\nb\n"), []string{"a\n"}, ErrLongLine},
		"too long, without an end":               {strings.NewReader(long + "x"), nil, ErrLongLine},
		"a source that fails":                    {io.MultiReader(strings.NewReader("a\nb"), iotest.ErrReader(broken)), []string{"a\n"}, broken},
		"a source that fails within a long line": {io.MultiReader(strings.NewReader(long), iotest.ErrReader(broken)), nil, broken},
	} {
		t.Run(name, func(t *testing.T) {
			lines := NewLines(bufio.NewReaderSize(iotest.OneByteReader(test.in), 16), len(long))
			var got []string
			for {
				line, err := lines.Next()
				if err != nil {
					if !errors.Is(err, test.err) {
						t.Errorf("error %v, want %v", err, test.err)
					}
					break
				}
				got = append(got, string(line))
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// counted counts the calls of Read, each of which returns at most 4 KiB.
type counted struct {
	r     io.Reader
	calls int
}

func (c *counted) Read(p []byte) (int, error) {
	c.calls++
	return c.r.Read(p[:min(len(p), 4096)])
}

// TestLinesEndEarly: a line without an end, as in a device, is read only up to the bound.
func TestLinesEndEarly(t *testing.T) {
	in := &counted{r: zeros{}}
	if _, err := NewLines(bufio.NewReaderSize(in, 4096), 1<<20).Next(); !errors.Is(err, ErrLongLine) {
		t.Error(err)
	}
	if in.calls > 1<<20/4096+1 {
		t.Errorf("%d pieces were read", in.calls)
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}
