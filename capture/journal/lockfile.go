// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package journal

import (
	"errors"
	"fmt"
	"os"
	"syscall"
)

// Lock takes the exclusive lock that a [Writer] holds on its journal on another file, without waiting: for those who keep
// several journals. It ends with the file's close, or with the process.
func Lock(f *os.File) error { return lock(f) }

// ErrGone is a file that was removed or replaced while it was open. What is written to it still succeeds, and is lost.
var ErrGone = errors.New("file was removed or replaced while it was open")

// InPlace returns an error unless an open file is the one that has its name: ErrGone, or what kept it from being looked at.
func InPlace(f *os.File) error {
	mine, err := f.Stat()
	if err != nil {
		return err
	}
	named, err := os.Stat(f.Name())
	switch {
	case errors.Is(err, os.ErrNotExist), errors.Is(err, syscall.ENOTDIR), err == nil && !os.SameFile(mine, named):
		return fmt.Errorf("%s: %w", f.Name(), ErrGone)
	}
	return err
}
