// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package main

import (
	"bytes"
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestInterruptedWaiting: the first interrupt ends a command that waits for input, at whatever point it waits.
func TestInterruptedWaiting(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	silent := filepath.Join(dir, "silent") // has a writer, which writes nothing
	for _, name := range []string{"nobody", "silent"} {
		if err := unix.Mkfifo(filepath.Join(dir, name), 0o600); err != nil {
			t.Skipf("no FIFO here: %v", err)
		}
	}
	writer, err := os.OpenFile(silent, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = writer.Close() }()
	nobody := filepath.Join(dir, "nobody")
	defer func() { // releases the goroutine that waits for a writer
		if f, err := os.OpenFile(nobody, os.O_WRONLY|unix.O_NONBLOCK, 0); err == nil {
			_ = f.Close()
		}
	}()
	out := filepath.Join(dir, "t.jsonl")
	for _, args := range [][]string{
		{"convert", nobody, "-o", out},
		{"convert", "--from", "otlp", nobody, "-o", out},
		{"convert", silent, "-o", out},
		{"convert", "-", "-o", out},
		{"compile", nobody, "-o", out},
		{"compile", silent, "-o", out},
		{"compile", "--list", silent},
	} {
		stdin, never := io.Pipe()
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(20*time.Millisecond, cancel)
		var stdout, stderr bytes.Buffer
		if status := run(ctx, args, stdin, &stdout, &stderr); status != exitInterrupted || !strings.Contains(stderr.String(), "error: interrupted") {
			t.Errorf("%v: status %d, %s", args, status, &stderr)
		}
		_ = never.Close()
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 2 {
		t.Errorf("left %v (%v), want the two FIFOs", left, err)
	}
}
