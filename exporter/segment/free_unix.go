// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux || darwin || freebsd

package segment

import "golang.org/x/sys/unix"

// Free returns the free bytes of the journal's file system, for this user; ok is false if they are not known.
func (j *Journal) Free() (bytes int64, ok bool) {
	var s unix.Statfs_t
	if err := unix.Statfs(j.opt.Directory, &s); err != nil {
		return 0, false
	}
	return int64(s.Bavail) * int64(s.Bsize), true //nolint:gosec,unconvert // no disk has 2^63 bytes; types differ between systems
}
