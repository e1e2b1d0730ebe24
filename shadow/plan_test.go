// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package shadow

import "testing"

// TestEachLineUnreadable: what cannot be read, here a folder, must not count as the end of a file: rows whose results are not seen would be
// sent again.
func TestEachLineUnreadable(t *testing.T) {
	if eachLine(t.TempDir(), func([]byte) error { return nil }) == nil {
		t.Error("want an error")
	}
}
