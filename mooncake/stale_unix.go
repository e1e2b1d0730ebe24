// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix && !solaris && !aix

package mooncake

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// claim locks a temporary file that was just created, until it is closed or the process ends. It reports false when
// somebody's sweep was faster and the file is gone. File systems without locks are never swept.
func claim(f *os.File) bool {
	if errors.Is(unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB), unix.EWOULDBLOCK) {
		return false
	}
	return inPlace(f)
}

// removeStale removes a temporary file unless its writer still has it.
func removeStale(name string) {
	f, err := os.OpenFile(name, os.O_RDWR|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0) //nolint:gosec // beside a file that the caller names
	if err != nil {
		return
	}
	defer func() { _ = f.Close() }()
	if unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) == nil && inPlace(f) {
		_ = os.Remove(name)
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
