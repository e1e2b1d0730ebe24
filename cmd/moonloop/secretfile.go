// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
)

// maxSecretFile bounds a file with a key or with headers, in bytes. Servers refuse far less.
const maxSecretFile = 64 << 10

// Why a file of secrets cannot be used, beside what the system says.
var (
	errFolder  = errors.New("it is a directory")
	errEmpty   = errors.New("the file is empty")
	errTooLong = fmt.Errorf("the file has more than %d KiB", maxSecretFile>>10)
)

// readSecretFile reads a small file. It may be a pipe, which a shell makes of <(command); the end of ctx ends the wait for it.
func readSecretFile(ctx context.Context, name string) (string, error) {
	if info, err := os.Stat(name); err == nil && info.IsDir() {
		return "", errFolder
	}
	f, err := openInput(ctx, name)
	if err != nil {
		return "", err
	}
	defer func() { _ = f.Close() }()
	content, err := io.ReadAll(io.LimitReader(f, maxSecretFile+1))
	switch text := strings.TrimPrefix(string(content), "\ufeff"); {
	case err != nil:
		return "", err
	case len(content) > maxSecretFile:
		return "", errTooLong
	case strings.TrimSpace(text) == "":
		return "", errEmpty
	default:
		return text, nil
	}
}

// unlessInterrupted returns what a function makes of files, or an error if one of them is a pipe that nobody writes to, and ctx
// ends: then the function is left behind.
func unlessInterrupted[T any](ctx context.Context, read func() (T, error), files ...string) (T, error) {
	if !slices.ContainsFunc(files, func(name string) bool {
		info, err := os.Stat(name)
		return err == nil && !info.Mode().IsRegular()
	}) {
		return read()
	}
	type outcome struct {
		value T
		err   error
	}
	done := make(chan outcome, 1)
	go func() {
		value, err := read()
		done <- outcome{value, err}
	}()
	select {
	case o := <-done:
		return o.value, o.err
	case <-ctx.Done():
		var none T
		return none, errInterrupted
	}
}
