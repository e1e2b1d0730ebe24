// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package journal

import (
	"os"

	"golang.org/x/sys/windows"
)

// lock takes an exclusive lock that ends with the file's close or the process. It is on one byte far behind the end,
// because Windows keeps readers off what is locked.
func lock(f *os.File) error {
	at := &windows.Overlapped{OffsetHigh: 1 << 30}
	return windows.LockFileEx(windows.Handle(f.Fd()), windows.LOCKFILE_EXCLUSIVE_LOCK|windows.LOCKFILE_FAIL_IMMEDIATELY, 0, 1, 0, at)
}
