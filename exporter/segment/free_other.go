// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

//go:build !linux && !darwin && !freebsd && !windows

package segment

// Free returns false: on this platform the value is not available.
func (*Journal) Free() (bytes int64, ok bool) { return 0, false }
