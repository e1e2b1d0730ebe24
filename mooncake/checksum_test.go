// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package mooncake

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestChecksum: the checksum depends on the file's bytes, not on its name; a pipe has none.
func TestChecksum(t *testing.T) {
	const row = `{"timestamp": 0, "input_length": 10, "output_length": 2}` + "\n"
	sum := func(name, text string) string {
		t.Helper()
		opt := OpenOptions{Stdin: strings.NewReader(text)}
		if name != "-" {
			name = filepath.Join(t.TempDir(), name)
			if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		trace, err := Open(t.Context(), name, opt)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = trace.Close() }()
		sum, err := trace.Checksum(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := trace.Checksum(ctx); name != "-" && !errors.Is(err, context.Canceled) {
			t.Errorf("interrupted: %v", err)
		}
		return sum
	}
	a := sum("a.jsonl", row)
	if a == "" || a != sum("b.jsonl", row) || a == sum("a.jsonl", row+row) || sum("-", row) != "" {
		t.Errorf("%q, %q, %q, %q", a, sum("b.jsonl", row), sum("a.jsonl", row+row), sum("-", row))
	}
}
