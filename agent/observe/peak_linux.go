// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"os"
	"strconv"
	"strings"
)

// peakMemory returns the most memory that the process itself had resident, in bytes. Linux's ru_maxrss, in KiB, also
// includes what the process that started this one had before exec, which may be a gigabyte.
func peakMemory(maxRSS int64) int64 {
	status, _ := os.ReadFile("/proc/self/status") // if it cannot be read, maxRSS is used
	kib, _ := lineAfter(status, "VmHWM:")
	n, err := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(kib, "kB")), 10, 64)
	if err != nil {
		n = maxRSS
	}
	return n << 10
}
