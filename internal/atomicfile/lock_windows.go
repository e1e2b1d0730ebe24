// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package atomicfile

import (
	"os"

	"golang.org/x/sys/windows"
)

const errHeld = windows.ERROR_LOCK_VIOLATION // somebody else has the lock

func lock(f *os.File) error {
	at := &windows.Overlapped{OffsetHigh: 1 << 30}
	return windows.LockFileEx(windows.Handle(f.Fd()), windows.LOCKFILE_EXCLUSIVE_LOCK|windows.LOCKFILE_FAIL_IMMEDIATELY, 0, 1, 0, at)
}

// removeStale removes a temporary file, which fails while its writer has it open.
func removeStale(name string) { _ = os.Remove(name) }
