// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package term

import (
	"bytes"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// TestProgress: what is shown when, in each mode, for work that takes a while.
func TestProgress(t *testing.T) {
	const frame = "\r\x1b[K"
	for name, tc := range map[string]struct {
		mode string
		keep bool
		part float64
		want string
	}{
		"lines":               {"lines", true, -1, "5 of 9\n"},
		"no terminal":         {"auto", false, 0.5, "5 of 9\n"},
		"none":                {"none", true, -1, ""},
		"bar that is removed": {"bar", false, -1, frame + "" + strings.Repeat(frame+"5 of 9", 39) + frame},
		"bar that stays":      {"bar", true, -1, frame + "" + strings.Repeat(frame+"5 of 9", 40) + "\n"},
		"part of a whole":     {"bar", false, 0.5, frame + " ██████████░░░░░░░░░░  50%" + strings.Repeat(frame+"5 of 9 ██████████░░░░░░░░░░  50%", 39) + frame},
		"more than expected":  {"bar", false, 1.5, frame + " ████████████████████ 100%" + strings.Repeat(frame+"5 of 9 ████████████████████ 100%", 39) + frame},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var b bytes.Buffer
				p := NewProgress(&b, tc.mode)
				text, begin := "5 of 9", time.Now()
				p.Show(func() (string, float64) {
					if time.Since(begin) < 300*time.Millisecond { // nothing to say yet
						return "", tc.part
					}
					return text, tc.part
				})
				time.Sleep(10*time.Second + time.Millisecond)
				synctest.Wait()
				p.Stop(tc.keep)
				if got := b.String(); got != tc.want {
					t.Errorf("%q, want %q", got, tc.want)
				}
			})
		})
	}
}

// TestProgressFitsTheLine: a line that is longer than the terminal cannot be redrawn.
func TestProgressFitsTheLine(t *testing.T) {
	for _, part := range []float64{-1, 0.25} {
		var b bytes.Buffer
		p := NewProgress(&b, "bar")
		p.look = func() (string, float64) { return strings.Repeat("ö", 500), part }
		p.bar()
		if n := len([]rune(strings.TrimPrefix(b.String(), clearLine))); n != defaultWidth-1 {
			t.Errorf("part %g: %d columns, want %d", part, n, defaultWidth-1)
		}
	}
	var b bytes.Buffer
	NewProgress(&b, "bar").Stop(true) // without anything to show
	if b.Len() > 0 {
		t.Errorf("%q without anything to show, want no output", &b)
	}
}

// A part without room is left out as a whole: no number is cut.
func TestShorten(t *testing.T) {
	for _, c := range []struct {
		text  string
		width int
		want  string
	}{
		{"1s  failed 0 · late 1 ms · done 5", 40, "1s  failed 0 · late 1 ms · done 5"},
		{"1s  failed 0 · late 1 ms · done 5", 32, "1s  failed 0 · late 1 ms"},
		{"1s  failed 0 · late 1 ms · done 5", 14, "1s  failed 0"},
		{"1s  failed 0", 4, "1s  "},
		{"", 0, ""},
	} {
		if got := shorten(c.text, c.width); got != c.want {
			t.Errorf("shorten(%q, %d) is %q, want %q", c.text, c.width, got, c.want)
		}
	}
}
