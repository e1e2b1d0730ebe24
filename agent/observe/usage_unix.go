// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package observe

import (
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

// cpuTime returns the user and system time that the process has used.
func cpuTime() (time.Duration, bool) {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		return 0, false
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()), true
}

// maxRSS returns the peak resident memory in bytes.
func maxRSS() int64 {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	if runtime.GOOS == "darwin" { // bytes there, KiB elsewhere
		return u.Maxrss
	}
	return u.Maxrss * 1024
}
