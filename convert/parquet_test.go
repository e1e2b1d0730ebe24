// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/parquet-go/parquet-go"

	"github.com/moonloop/moonloop/capture"
	"github.com/moonloop/moonloop/mooncake"
)

// basetenRow has some columns of Baseten's files.
type basetenRow struct {
	Start   int64   `parquet:"timestamp_start_unix_ms"`
	Input   int32   `parquet:"input_tokens"`
	Output  int32   `parquet:"output_tokens"`
	Session *string `parquet:"provided_session_id,optional"`
	Hashes  []int64 `parquet:"total_hashes,list"`
	Block   int32   `parquet:"block_size"`
}

func parquetFile(t *testing.T) []byte {
	t.Helper()
	var b bytes.Buffer
	w := parquet.NewGenericWriter[basetenRow](&b)
	name := "s"
	if _, err := w.Write([]basetenRow{
		{1750000000000, 100, 7, &name, []int64{-5, 1 << 62}, 64},
		{1750000000250, 128, 0, nil, []int64{-5, 3}, 64},
	}); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// parquetSource is a file of Parquet as the command opens it.
func parquetSource(t *testing.T, content []byte) capture.Source {
	t.Helper()
	name := filepath.Join(t.TempDir(), "rows.parquet")
	if err := os.WriteFile(name, content, 0o600); err != nil {
		t.Fatal(err)
	}
	folder := t.TempDir()
	t.Cleanup(func() {
		if left, err := os.ReadDir(folder); err != nil || len(left) > 0 {
			t.Errorf("%d temporary files are left, %v", len(left), err)
		}
	})
	return capture.Source{Name: "rows.parquet", Open: func() (io.ReadCloser, error) {
		in, err := mooncake.OpenInput(t.Context(), name, mooncake.OpenOptions{})
		if err == nil {
			err = Unpack(in, folder)
		}
		return in, err
	}}
}

// TestParquet: columns are what members of JSON are.
func TestParquet(t *testing.T) {
	got, _ := convert(t, Options{}, parquetSource(t, parquetFile(t)))
	want := `{"timestamp": 0, "input_length": 100, "output_length": 7, "hash_ids": [0, 1], "session_id": "s"}
{"timestamp": 250, "input_length": 128, "output_length": 0, "hash_ids": [0, 2]}
`
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("rows (-want +got):\n%s", diff)
	}
}

// TestDamagedParquet: wherever a file is cut off or wrong, that is an error or rows, never a panic, and no file is left.
func TestDamagedParquet(t *testing.T) {
	whole := parquetFile(t)
	for at := len(parquetMagic); at < len(whole); at += 7 {
		wrong := bytes.Clone(whole)
		wrong[at] ^= 0x55
		for _, content := range [][]byte{whole[:at], wrong} {
			source := parquetSource(t, content)
			if _, err := Convert(t.Context(), Options{Format: "baseten"}, writeTo(new(strings.Builder)).sink, source); err == nil && len(content) == at {
				t.Errorf("%d of %d bytes are a file", at, len(whole))
			}
		}
	}
}
