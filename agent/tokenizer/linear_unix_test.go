// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package tokenizer

import (
	"fmt"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// cost returns the processor time of a call, in microseconds, which does not depend on other processes.
func cost(t *testing.T, call func()) int64 {
	t.Helper()
	used := func() int64 {
		var u unix.Rusage
		if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
			t.Fatal(err)
		}
		return (int64(u.Utime.Sec)+int64(u.Stime.Sec))*1e6 + int64(u.Utime.Usec) + int64(u.Stime.Usec) //nolint:unconvert // narrower elsewhere
	}
	before := used()
	call()
	return used() - before
}

// TestLongPieces: a text of one character that is ten times as long costs about ten times as much, not a hundred times; 200 kB of one
// letter cost as much as twice 100 kB.
func TestLongPieces(t *testing.T) {
	for name := range goldens(t).IDs {
		tok := load(t, name)
		for what, unit := range map[string]string{"letter": "a", "space": " ", "line": "\n", "dots": ".", "ideographs": "\u4e00", "marks": "\u0301", "capitals": "A"} {
			encode := func(n, times int) int64 {
				text := strings.Repeat(unit, n)
				return cost(t, func() {
					for range times {
						if _, err := tok.Encode(text); err != nil {
							t.Errorf("%s, %s: %v", name, what, err)
						}
					}
				})
			}
			encode(5_000, 1)
			if what == "letter" {
				within(t, name, func() (short, long, most int64) { // if it were quadratic, long would be twice short
					short, long = encode(100_000, 2), encode(200_000, 1)
					return short, long, short*8/5 + 20_000
				})
			}
			within(t, name+", "+what, func() (short, long, most int64) {
				short, long = encode(5_000, 10), encode(50_000, 1)
				return short, long, 4*short + 20_000
			})
		}
	}
}

// TestManyAddedTokens: a file with four times as many added tokens takes about four times as long to read, not sixteen times.
func TestManyAddedTokens(t *testing.T) {
	read := func(tokens, times int) int64 {
		list := make([]string, tokens)
		for i := range list {
			list[i] = fmt.Sprintf(`{"id": %d, "content": "<unused%d>"}`, i, i)
		}
		text := []byte(`{"added_tokens": [` + strings.Join(list, ",") + `], "model": {"type": "BPE", "vocab": {"a": 0}, "merges": []}}`)
		return cost(t, func() {
			for range times {
				if _, err := parse(text); err != nil {
					t.Error(err)
				}
			}
		})
	}
	within(t, "added tokens", func() (short, long, most int64) {
		short, long = read(5_000, 4), read(20_000, 1)
		return short, long, 2*short + 20_000
	})
}

// within requires that a long text or list costs at most a bound that is measured next to it. The costs include the garbage collector's work,
// which may come at any time, so one success in five measurements is enough.
func within(t *testing.T, name string, measure func() (short, long, most int64)) {
	t.Helper()
	var short, long, most int64
	for range 5 {
		if short, long, most = measure(); long <= most {
			return
		}
	}
	t.Errorf("%s: a long one took %d us, short ones of the same total length %d us", name, long, short)
}
