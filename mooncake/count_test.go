// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package mooncake

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestCountRows(t *testing.T) {
	name := filepath.Join(t.TempDir(), "trace.jsonl")
	long := `{"text_input": "` + strings.Repeat("x", 3<<20) + `"}` // longer than what is read at once
	for _, tc := range []struct {
		what, text string
		limit      time.Duration
		rows       int64
		whole      bool
		err        error
	}{
		{"nothing", "", time.Hour, 0, true, nil},
		{"a row", "{}\n", time.Hour, 1, true, nil},
		{"no newline at the end", "{}\n{}", time.Hour, 2, true, nil},
		{"blank lines", "\n{}\n \t\r\n{}\r\n\n  ", time.Hour, 2, true, nil},
		{"long lines", long + "\n" + long + "\n{}", time.Hour, 3, true, nil},
		{"no time", strings.Repeat("{}\n", 1<<20), 0, 1 << 20 / 3, false, nil}, // what was read at once
		{"gzip", "\x1f\x8b\x08", time.Hour, 0, false, ErrUncountable},
		{"zstd", "\x28\xb5\x2f\xfd", time.Hour, 0, false, ErrUncountable},
		{"bzip2", "BZh9", time.Hour, 0, false, ErrUncountable},
		{"Parquet", "PAR1\x15\n\n\n", time.Hour, 0, false, ErrUncountable},
		{"a table", "timestamp,input_length\n0,1\n", time.Hour, 0, false, ErrUncountable},
		{"an array", "[\n{},\n{}\n]\n", time.Hour, 0, false, ErrUncountable},
		{"a row of several lines", "{}\n{\n\"input_length\": 1\n}\n", time.Hour, 0, false, ErrUncountable},
	} {
		if err := os.WriteFile(name, []byte(tc.text), 0o600); err != nil {
			t.Fatal(err)
		}
		if rows, whole, err := CountRows(name, tc.limit); rows != tc.rows || whole != tc.whole || !errors.Is(err, tc.err) {
			t.Errorf("%s: %d rows, whole %t, error %v; want %d, %t, %v", tc.what, rows, whole, err, tc.rows, tc.whole, tc.err)
		}
	}
	for _, other := range []string{"-", "http://host/trace.jsonl", t.TempDir(), filepath.Join(t.TempDir(), "missing")} {
		if _, _, err := CountRows(other, time.Hour); !errors.Is(err, ErrUncountable) {
			t.Errorf("%s: error %v", other, err)
		}
	}
}
