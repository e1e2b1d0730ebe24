// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

//go:build !linux && !darwin && !freebsd && !windows

package segment

// Free returns false: on this platform nobody can tell.
func (*Journal) Free() (bytes int64, ok bool) { return 0, false }
