// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/parquet-go/parquet-go"
)

// TestParquet: a trace, and a file of another format, may be Parquet: a file, standard input, or a file in a folder. The result is the
// same as for the same rows as JSON lines.
func TestParquet(t *testing.T) {
	t.Parallel()
	type mooncakeRow struct {
		At      float64  `parquet:"timestamp"`
		Input   int64    `parquet:"input_length"`
		Output  *int64   `parquet:"output_length,optional"`
		IDs     []uint64 `parquet:"hash_ids,list"`
		Session *string  `parquet:"session_id,optional"`
	}
	type wekaCall struct {
		At    float64 `parquet:"t"`
		Type  string  `parquet:"type"`
		Model string  `parquet:"model"`
		In    int64   `parquet:"in"`
		Out   int64   `parquet:"out"`
		IDs   []int64 `parquet:"hash_ids,list"`
	}
	type wekaTalk struct {
		ID       string     `parquet:"id"`
		Block    int64      `parquet:"block_size"`
		Requests []wekaCall `parquet:"requests,list"`
	}
	two, session := int64(2), "s"
	folder := t.TempDir()
	trace, weka := filepath.Join(folder, "t.parquet"), filepath.Join(folder, "weka", "train-00000.parquet")
	if err := os.Mkdir(filepath.Dir(weka), 0o700); err != nil {
		t.Fatal(err)
	}
	writeParquet(t, trace, []mooncakeRow{{0, 600, &two, []uint64{1<<64 - 1, 7}, &session}, {40.5, 1100, &two, []uint64{1<<64 - 1, 8, 9}, nil}})
	writeParquet(t, weka, []wekaTalk{
		{"c1", 64, []wekaCall{{0, "s", "m", 130, 4, []int64{1, 2}}, {0.2, "n", "m", 200, 3, []int64{1, 2, 3}}}},
		{"c2", 64, []wekaCall{{0.1, "s", "m", 70, 5, []int64{1}}}},
	})
	const rows = `{"timestamp": 0, "input_length": 600, "output_length": 2, "hash_ids": [0, 1], "session_id": "s"}
{"timestamp": 40.5, "input_length": 1100, "output_length": 2, "hash_ids": [0, 2, 3]}
`
	piped, err := os.ReadFile(trace)
	if err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"transform", trace}, {"transform", "-"}} {
		var stdout, stderr bytes.Buffer
		if status := run(t.Context(), args, bytes.NewReader(piped), &stdout, &stderr); status != exitOK {
			t.Fatalf("%v: status %d, %s", args, status, &stderr)
		}
		if diff := cmp.Diff(rows, stdout.String()); diff != "" {
			t.Errorf("%v (-want +got):\n%s", args, diff)
		}
	}
	out := filepath.Join(folder, "weka.jsonl")
	var stdout, stderr bytes.Buffer
	if status := run(t.Context(), []string{"convert", weka, "--out", out}, strings.NewReader(""), &stdout, &stderr); status != exitOK {
		t.Fatalf("status %d, %s", status, &stderr)
	}
	text, _ := os.ReadFile(out)
	want := `{"timestamp": 0, "input_length": 130, "output_length": 4, "hash_ids": [0, 1], "session_id": "c1", "model": "m"}
{"timestamp": 100, "input_length": 70, "output_length": 5, "hash_ids": [2], "session_id": "c2", "model": "m"}
{"timestamp": 200, "input_length": 200, "output_length": 3, "hash_ids": [0, 1, 3], "session_id": "c1", "model": "m"}
`
	if diff := cmp.Diff(want, string(text)); diff != "" {
		t.Errorf("weka (-want +got):\n%s", diff)
	}
	for line, sees := range map[string]string{
		trace + " --url ENGINE": "requests 2; over 40ms",
		"profile --url HOST:PORT --endpoint-type chat --streaming --public-dataset semianalysis_cc_traces_weka --input-file " + filepath.Dir(weka): "requests 3; over 200ms",
	} {
		r := begin(t, aliasTrace, recorded(strings.Fields("replay --overhead 1 --model sim "+line), sees))()
		r.good(t)
		r.see(t, sees, r.out)
	}
	cut := filepath.Join(folder, "cut.parquet")
	if err := os.WriteFile(cut, piped[:len(piped)-20], 0o600); err != nil {
		t.Fatal(err)
	}
	stderr.Reset()
	if status := run(t.Context(), []string{"inspect", cut}, strings.NewReader(""), &stdout, &stderr); status != exitUsage || !strings.Contains(stderr.String(), "cut.parquet: the Parquet file is damaged or cut off: use a complete copy of the file") {
		t.Errorf("status %d, %s", status, &stderr)
	}
}

func writeParquet[T any](t *testing.T, name string, rows []T) {
	t.Helper()
	if err := parquet.WriteFile(name, rows); err != nil {
		t.Fatal(err)
	}
}
