// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"bytes"
	"os"
	"strconv"
)

// peakMemory returns the most memory that the process itself had resident, in bytes. Linux counts in ru_maxrss also what the process that
// started this one had before exec, which may be a gigabyte.
func peakMemory(int64) int64 {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0
	}
	_, rest, _ := bytes.Cut(status, []byte("VmHWM:"))
	kib, _, _ := bytes.Cut(rest, []byte("kB"))
	n, err := strconv.ParseInt(string(bytes.TrimSpace(kib)), 10, 64)
	if err != nil {
		return 0
	}
	return n << 10
}
