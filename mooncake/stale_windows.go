// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package mooncake

import (
	"errors"
	"os"

	"golang.org/x/sys/windows"
)

// tryLock locks a file until it is closed or the process ends. It reports false when somebody else has it locked.
func tryLock(f *os.File) bool {
	err := windows.LockFileEx(windows.Handle(f.Fd()), windows.LOCKFILE_EXCLUSIVE_LOCK|windows.LOCKFILE_FAIL_IMMEDIATELY, 0, 1, 0, new(windows.Overlapped))
	return !errors.Is(err, windows.ERROR_LOCK_VIOLATION)
}

// claim has nothing to do: nobody can remove a file that is open.
func claim(*os.File) bool { return true }

// removeStale removes a temporary file, which fails while its writer has it open.
func removeStale(name string) { _ = os.Remove(name) }
