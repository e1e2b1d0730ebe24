// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package atomicfile

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// TestHold: one holder at a time, and nothing remains after the release.
func TestHold(t *testing.T) {
	name := filepath.Join(t.TempDir(), "lock")
	for range 3 {
		unlock, err := Hold(name)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := Hold(name); !errors.Is(err, ErrLocked) {
			t.Errorf("a second holder: %v", err)
		}
		unlock()
		if _, err := os.Stat(name); err == nil {
			t.Error("the file exists after the release")
		}
	}
	if err := os.WriteFile(name, nil, 0o600); err != nil { // of a process that was killed
		t.Fatal(err)
	}
	unlock, err := Hold(name)
	if err != nil {
		t.Fatal(err)
	}
	unlock()
	if _, err := Hold(filepath.Join(name, "no folder")); err == nil {
		t.Error("no error")
	}
}
