// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"io"
	"strings"
	"testing"
	"testing/synctest"
)

// TestStandardInputIsLeftAlone: a command that does not read its standard input leaves it to the next command, as in a shell's loop.
func TestStandardInputIsLeftAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		typed := strings.NewReader("next")
		in := standardInput(t.Context(), typed)
		synctest.Wait()
		if typed.Len() != len("next") {
			t.Errorf("%d bytes are left before anybody has read", typed.Len())
		}
		if got, err := io.ReadAll(in); string(got) != "next" || err != nil {
			t.Errorf("read %q, %v", got, err)
		}
	})
}
