// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix && !solaris && !aix

package mooncake

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// tryLock locks a file until it is closed or the process ends. It reports false when somebody else has it locked; where
// there are no locks nobody has.
func tryLock(f *os.File) bool {
	return !errors.Is(unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB), unix.EWOULDBLOCK)
}

// claim locks a temporary file that was just created, until it is closed or the process ends. It reports false when
// somebody's sweep was faster and the file is gone. File systems without locks are never swept.
func claim(f *os.File) bool { return tryLock(f) && inPlace(f) }

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
