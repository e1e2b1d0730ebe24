// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package agent

import (
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/moonloop/moonloop/mooncake"
)

// Whoever wrote a trace into a named pipe may have ended before the last row is asked for. Opening the pipe again would wait for another
// writer, without end.
func TestLastRowOfAPipe(t *testing.T) {
	name := filepath.Join(t.TempDir(), "trace")
	if err := syscall.Mkfifo(name, 0o600); err != nil {
		t.Fatal(err)
	}
	done := make(chan *mooncake.Row, 1)
	go func() { done <- lastRow(name, mooncake.ParseRow) }()
	select {
	case row := <-done:
		if row != nil {
			t.Errorf("a row of an empty pipe: %+v", row)
		}
	case <-time.After(10 * time.Second):
		t.Fatal("the open pipe is waited for")
	}
}
