// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package lines

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestRead(t *testing.T) {
	stop := errors.New("enough")
	for name, tc := range map[string]struct {
		file, partial string
		want          []int
		err           string
	}{
		"records": {"1\n\n2\n3\n", "", []int{1, 2, 3}, ""},
		"the complete file before the partial one": {"1\n", "2\n", []int{1}, ""},
		"killed":                  {"", "2\n1\n", []int{2, 1}, ""},
		"torn at the end":         {"", "2\n{", []int{2}, ""},
		"torn midway":             {"", "2\n{\n1\n", []int{2}, Partial + ": line 2: unexpected end"},
		"torn, but ended":         {"1\n{", "", []int{1}, File + ": line 2: unexpected end"},
		"a value of another type": {"1\n\"x\"\n", "", []int{1}, File + ": line 2: the value is a string; want an integer of 64 bits"},
		"stopped by the caller":   {"1\n7\n{\n", "", []int{1}, "enough"},
		"too long":                {"1\n" + strings.Repeat(" ", Longest) + "2\n", "", []int{1}, File + ": line 2: the line is too long"},
		"no file":                 {"", "", nil, "has neither"},
	} {
		dir := t.TempDir()
		for file, text := range map[string]string{File: tc.file, Partial: tc.partial} {
			if text != "" {
				if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
		}
		var got []int
		err := Read(dir, func(line []byte) (n int, err error) { return n, json.Unmarshal(line, &n) }, func(n int) error {
			if n == 7 {
				return stop
			}
			got = append(got, n)
			return nil
		})
		if !slices.Equal(got, tc.want) || (err == nil) != (tc.err == "") || err != nil && !strings.Contains(err.Error(), tc.err) || errors.Is(err, fs.ErrNotExist) != (tc.want == nil) {
			t.Errorf("%s: %v, %v; want %v, %q", name, got, err, tc.want, tc.err)
		}
	}
}
