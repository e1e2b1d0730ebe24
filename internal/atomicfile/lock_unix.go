// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix && !solaris && !aix

package atomicfile

import (
	"os"

	"golang.org/x/sys/unix"
)

const errHeld = unix.EWOULDBLOCK // somebody else has the lock

func lock(f *os.File) error { return unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) }

// removeStale removes a temporary file unless its writer still has it.
func removeStale(name string) {
	f, err := os.OpenFile(name, os.O_RDWR|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0) //nolint:gosec // next to a file that the caller names
	if err != nil {
		return
	}
	defer func() { _ = f.Close() }()
	if lock(f) == nil && InPlace(f) == nil {
		_ = os.Remove(name)
	}
}
