// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package capture

import "testing"

// TestSpillHasNoName: what a killed compile spilled goes with it.
func TestSpillHasNoName(t *testing.T) {
	dir := t.TempDir()
	var s spill
	if err := s.open(dir); err != nil {
		t.Fatal(err)
	}
	defer s.close()
	if _, err := s.Write([]byte("records")); err != nil {
		t.Fatal(err)
	}
	equal(t, "files", 0, countFiles(t, dir))
	b := make([]byte, 7)
	if _, err := s.file.ReadAt(b, 0); err != nil || string(b) != "records" {
		t.Errorf("read %q, %v", b, err)
	}
}
