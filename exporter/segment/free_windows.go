// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package segment

import "golang.org/x/sys/windows"

// Free returns the bytes that are free on the file system of the journal, for this user; ok is false where nobody can tell.
func (j *Journal) Free() (bytes int64, ok bool) {
	name, err := windows.UTF16PtrFromString(j.opt.Directory)
	if err != nil {
		return 0, false
	}
	var free uint64
	if err := windows.GetDiskFreeSpaceEx(name, &free, nil, nil); err != nil {
		return 0, false
	}
	return int64(free), true //nolint:gosec // no disk has 2^63 bytes
}
