// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package ondisk

import (
	"os"
	"testing"
)

// TestFileHasNoName: an open temporary file has no name, so it disappears with its process, even one that is killed.
func TestFileHasNoName(t *testing.T) {
	dir := t.TempDir()
	var s File
	if err := s.Open(dir); err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if _, err := s.Write([]byte("records")); err != nil {
		t.Fatal(err)
	}
	left, err := os.ReadDir(dir)
	if err != nil || len(left) > 0 {
		t.Errorf("files: %v, %v", left, err)
	}
	b := make([]byte, 7)
	if _, err := s.File.ReadAt(b, 0); err != nil || string(b) != "records" {
		t.Errorf("read %q, %v", b, err)
	}
}
