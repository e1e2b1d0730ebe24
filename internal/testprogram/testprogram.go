// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

// Package testprogram gives tests the binaries of this repository's commands, to run as processes: those that `make test` has built, or
// else binaries that the package builds itself.
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
	variable string // environment variable that may name a binary that is already built
	once     sync.Once
	file     string
	err      error
}

var programs = map[string]*program{
	"moonloop":         {variable: "MOONLOOP_BIN"},
	"otelcol-moonloop": {variable: "MOONLOOP_OTELCOL"},
}

// File returns the file name of the command with this name. If it builds the binary, that stays in build/test, and the next run only checks
// that it is up to date.
func File(t testing.TB, name string) string {
	t.Helper()
	p, known := programs[name]
	if !known {
		t.Fatalf("%q is not a command that tests can run", name)
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

// build builds as make build does, except for the packages of PLAIN in the Makefile, so that no other package is compiled a second time with
// other flags.
func build(name string) (string, error) {
	_, here, _, _ := runtime.Caller(0)
	root := filepath.Join(filepath.Dir(here), "..", "..")
	file := filepath.Join(root, "build", "test", name)
	cmd := exec.CommandContext(context.Background(), "go", "build", "-trimpath", "-gcflags=all=-dwarf=false", "-ldflags", "-s -w", "-o", file, "./cmd/"+name) //nolint:gosec // a name of the list above
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w\n%s", err, out)
	}
	return file, nil
}
