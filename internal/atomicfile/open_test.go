// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package atomicfile

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestOpen: anything but a file is refused at once. Opening a pipe would wait forever.
func TestOpen(t *testing.T) {
	dir := t.TempDir()
	pipe, file := filepath.Join(dir, "pipe"), filepath.Join(dir, "file")
	if err := errors.Join(syscall.Mkfifo(pipe, 0o600), os.WriteFile(file, []byte("three"), 0o600)); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{pipe: "pipe: a pipe or a device", os.DevNull: "a pipe or a device", dir: "is a directory", file: "larger than 0 MiB"} {
		if _, err := ReadFile(name, 4); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", name, err, want)
		}
	}
	if content, err := ReadFile(file, 5); err != nil || string(content) != "three" {
		t.Errorf("%q, %v", content, err)
	}
	if _, err := ReadFile(filepath.Join(dir, "none"), 5); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a file that is not there: %v", err)
	}
}
