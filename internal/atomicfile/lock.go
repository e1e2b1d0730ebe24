// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package atomicfile

import (
	"errors"
	"fmt"
	"os"
	"syscall"
)

// ErrLocked is a lock that somebody else holds.
var ErrLocked = errors.New("another process holds its lock")

// ErrGone is a file that was removed or replaced while it was open. What is written to it still succeeds, and is lost.
var ErrGone = errors.New("file was removed or replaced while it was open")

// Lock takes an exclusive lock on an open file, without waiting. It ends with the file's close or with the process, however
// that ends. It is a lock of the very file that is written, and on Windows, which keeps readers off what is locked, of one byte
// far behind its end; libraries open a file of their own and lock its first byte. On platforms without such locks
// everybody gets it: one file must have one writer.
func Lock(f *os.File) error { return lock(f) }

// Hold takes the lock of a name, without waiting: it creates a file of that name and locks it until unlock is called, which
// removes it, or the process ends. The error is [ErrLocked] when another process, or another part of this one, holds it. On
// file systems and platforms without locks everybody gets it.
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
		if InPlace(f) != nil { // its holder removed it between the two
			_ = f.Close()
			continue
		}
		return func() {
			_ = os.Remove(name) // first: who opens it from now on opens another file
			_ = f.Close()
		}, nil
	}
}

// InPlace returns an error unless an open file is the one that has its name: [ErrGone], or what kept it from being looked at.
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
