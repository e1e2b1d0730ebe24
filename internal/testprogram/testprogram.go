// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

// Package testprogram gives tests the commands of this repository as programs that they run as processes: those that `make test` has
// built, or else those that it builds itself.
package testprogram

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"testing"
)

// program is a command of cmd.
type program struct {
	variable string // of the environment, which names a binary that is there
	once     sync.Once
	file     string
	err      error
}

var programs = map[string]*program{
	"moonloop":         {variable: "MOONLOOP_BIN"},
	"otelcol-moonloop": {variable: "MOONLOOP_OTELCOL"},
}

// File returns the file name of the command with this name. What it builds stays in build/test, so that the next run only checks that
// it is up to date.
func File(t testing.TB, name string) string {
	t.Helper()
	p, known := programs[name]
	if !known {
		t.Fatalf("cmd has no %q that tests run", name)
	}
	if file := os.Getenv(p.variable); file != "" {
		return file
	}
	p.once.Do(func() { p.file, p.err = build(name) })
	if p.err != nil {
		t.Fatalf("%s does not build: %v", name, p.err)
	}
	return p.file
}

// build builds as make build does, so that no package is compiled a second time with other flags.
func build(name string) (string, error) {
	_, here, _, _ := runtime.Caller(0)
	root := filepath.Join(filepath.Dir(here), "..", "..")
	file := filepath.Join(root, "build", "test", name)
	cmd := exec.CommandContext(context.Background(), "go", "build", "-trimpath", "-gcflags=all=-dwarf=false", "-ldflags", "-s -w", "-o", file, "./cmd/"+name)
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w\n%s", err, out)
	}
	return file, nil
}
