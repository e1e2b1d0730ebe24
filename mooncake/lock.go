// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package mooncake

import (
	"errors"
	"os"
)

// ErrLocked is a lock that somebody else holds.
var ErrLocked = errors.New("another process holds its lock")

// Lock takes the lock of a name, without waiting: it creates a file of that name and holds a lock on it until unlock is
// called, which removes it, or the process ends, however it ends. The error is [ErrLocked] when another process, or another
// part of this one, holds it. On file systems and platforms without locks everybody gets it.
func Lock(name string) (unlock func(), err error) {
	for {
		f, err := os.OpenFile(name, os.O_CREATE|os.O_RDWR, 0o600) //nolint:gosec // the caller chooses the name
		if err != nil {
			return nil, err
		}
		if !tryLock(f) {
			_ = f.Close()
			return nil, ErrLocked
		}
		if !inPlace(f) { // its holder removed it between the two
			_ = f.Close()
			continue
		}
		return func() {
			_ = os.Remove(name) // first: who opens it from now on opens another file
			_ = f.Close()
		}, nil
	}
}

// inPlace reports whether an open file is the one that has its name.
func inPlace(f *os.File) bool {
	mine, err := f.Stat()
	if err != nil {
		return false
	}
	named, err := os.Lstat(f.Name())
	return err == nil && os.SameFile(mine, named)
}
