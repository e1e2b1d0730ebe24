// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package atomicfile

import (
	"errors"
	"fmt"
	"os"
	"syscall"
)

// ErrLocked is the error for a lock that another process or another part of this one holds.
var ErrLocked = errors.New("another process holds its lock")

// ErrGone is the error for a file that was removed or replaced while it was open. Writing to it still succeeds, but the data is lost.
var ErrGone = errors.New("file was removed or replaced while it was open")

// Lock acquires an exclusive lock on an open file, without waiting. The lock is released when the file is closed or the process ends. Lock
// locks the written file itself, whereas libraries lock the first byte of a separate file. On Windows, which blocks readers of locked bytes,
// it locks one byte far beyond the file's end. On platforms without such locks it always succeeds: there must be only one writer.
func Lock(f *os.File) error { return lock(f) }

// Hold acquires the lock of a name, without waiting: it creates a file with that name and locks it until unlock is called, which removes
// it, or the process ends. The error is [ErrLocked] if another process, or another part of this one, holds it. On file systems and
// platforms without locks it always succeeds.
func Hold(name string) (unlock func(), err error) {
	for {
		f, err := os.OpenFile(name, os.O_CREATE|os.O_RDWR, 0o600) //nolint:gosec // the caller chooses the name
		if err != nil {
			return nil, err
		}
		if errors.Is(Lock(f), errHeld) {
			_ = f.Close()
			return nil, ErrLocked
		}
		if InPlace(f) != nil { // its holder removed it in between
			_ = f.Close()
			continue
		}
		return func() {
			_ = os.Remove(name) // first, so that later callers open another file
			_ = f.Close()
		}, nil
	}
}

// InPlace returns an error unless an open file still has its name: [ErrGone], or the error of the check.
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
