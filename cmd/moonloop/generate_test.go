// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/moonloop/moonloop/mooncake"
)

func TestGenerateWritesATraceAndItsSidecar(t *testing.T) {
	path := filepath.Join(t.TempDir(), "t.jsonl")
	flags := []string{"--rows", "200", "--rate", "20", "--turns", "4", "--think", "1,0.5,3", "--sessions", "--block-size", "64", "--grid", "1s"}
	stdout, stderr, err := command(t, newGenerateCommand(), "", append(flags, "--out", path)...)
	if err != nil || stdout != "" || !strings.Contains(stderr, "200 rows") {
		t.Fatalf("error %v, stdout %q, stderr %q", err, stdout, stderr)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if stdout, _, err = command(t, newGenerateCommand(), "", flags...); err != nil || stdout != string(data) {
		t.Errorf("error %v; standard output is not what the file contains", err)
	}
	out, _, err := command(t, newInspectCommand(), "", "--strict", path)
	if err != nil {
		t.Errorf("inspect --strict: %v\n%s", err, out)
	}
	for _, want := range []string{"64 tokens", "1s, 100.0 % of gaps on it", "in 200 rows, mode full"} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is not in the output:\n%s", want, out)
		}
	}
	meta, err := mooncake.LoadMeta(path)
	if err != nil {
		t.Fatal(err)
	}
	if meta.Rows != 200 || meta.BlockSize != 64 || meta.SessionMode != mooncake.SessionFull || !strings.Contains(out, meta.Digests.Seq) ||
		!strings.Contains(out, meta.Digests.Tree) || !strings.Contains(out, meta.Digests.Arrival) {
		t.Errorf("sidecar %+v", meta)
	}
}

func TestGenerateRefuses(t *testing.T) {
	dir := t.TempDir()
	for _, test := range []struct {
		args []string
		want string
	}{
		{[]string{"--rows", "0"}, "--rows and --duration"},
		{[]string{"--user", "5"}, "is not MEDIAN,SIGMA"},
		{[]string{"--user", "5,x"}, "is not a number"},
		{[]string{"--think", "NaN,1"}, "--think: median NaN"},
		{[]string{"surplus"}, "takes no argument"},
		{[]string{"--out", filepath.Join(dir, "none", "t.jsonl")}, "cannot be created"},
	} {
		stdout, _, err := command(t, newGenerateCommand(), "", append([]string{"--out", filepath.Join(dir, "t.jsonl")}, test.args...)...)
		if err == nil || !strings.Contains(err.Error(), test.want) || stdout != "" {
			t.Errorf("%v: error %v, want it to contain %q", test.args, err, test.want)
		}
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}
