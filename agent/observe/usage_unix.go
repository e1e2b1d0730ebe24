// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package observe

import (
	"time"

	"golang.org/x/sys/unix"
)

// usage returns the user and system time that the process has used, and its peak resident memory in bytes.
func usage() (cpu time.Duration, maxRSS int64, ok bool) {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		return 0, 0, false
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()), peakMemory(u.Maxrss), true
}
