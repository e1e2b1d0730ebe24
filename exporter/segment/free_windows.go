// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package segment

import "golang.org/x/sys/windows"

// Free returns the free bytes of the journal's file system, for this user; ok is false if they are not known.
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
