// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package prompt

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/moonloop/moonloop/mooncake"
)

// conversationTrace reads the public conversation trace, if it is available next to the repository.
func conversationTrace(t *testing.T) (rows []*mooncake.Row) {
	t.Helper()
	root, err := filepath.Abs(".")
	if err != nil {
		t.Fatal(err)
	}
	for {
		if _, err := os.Stat(filepath.Join(root, "go.mod")); err == nil {
			break
		}
		if root == filepath.Dir(root) {
			t.Fatal("no go.mod above this package")
		}
		root = filepath.Dir(root)
	}
	f, err := os.Open(filepath.Join(root, "..", "shared", "data", "conversation_trace.jsonl"))
	if errors.Is(err, fs.ErrNotExist) {
		t.Skip("the public conversation trace is not next to the repository")
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var r struct {
			In  int64    `json:"input_length"`
			Out int64    `json:"output_length"`
			IDs []uint64 `json:"hash_ids"`
		}
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
			t.Fatal(err)
		}
		rows = append(rows, lengthRow(r.In, r.Out, r.IDs...))
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	return rows
}

// Every row of the public trace gets a prompt of exactly its length. The overhead cuts the last block of every row whose last block is no
// longer than the overhead.
func TestConversationTrace(t *testing.T) {
	rows := conversationTrace(t)
	for _, tt := range []struct {
		overhead int
		cut      string // percent of rows
	}{{5, "0.82"}, {10, "1.65"}, {20, "3.43"}, {40, "7.28"}, {80, "14.25"}} {
		b := newBuilder(t, Options{Model: "m", Overhead: tt.overhead})
		cut, bytes := 0, int64(0)
		for i, row := range rows {
			p := build(t, b, int64(i), row, nil)
			if p.Tokens != row.InputLength.V || p.TooShort || p.Added != p.Tokens-int64(tt.overhead) {
				t.Fatalf("row %d: Tokens %d, Added %d, TooShort %v; the row says %d", i, p.Tokens, p.Added, p.TooShort, row.InputLength.V)
			}
			if p.TailCut {
				cut++
			}
			bytes += p.Request.Body.Size
			if i%500 == 0 {
				if n := len(content(t, p.Request)); int64(n) != 5*p.Added+2 {
					t.Errorf("row %d: %d bytes of text for %d words", i, n, p.Added)
				}
			}
		}
		if got := fmt.Sprintf("%.2f", 100*float64(cut)/float64(len(rows))); got != tt.cut {
			t.Errorf("overhead %d: the last block is gone in %s %% of rows, want %s", tt.overhead, got, tt.cut)
		}
		if bytes < 700e6 || bytes > 750e6 {
			t.Errorf("overhead %d: %d bytes of bodies, want about 725 MB", tt.overhead, bytes)
		}
	}
}
