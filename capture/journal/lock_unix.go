// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix && !solaris && !aix

package journal

import (
	"os"

	"golang.org/x/sys/unix"
)

// lock takes an exclusive lock that ends with the file's close or the process.
func lock(f *os.File) error {
	return unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
}
