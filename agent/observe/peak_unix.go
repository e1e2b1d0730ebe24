// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix && !linux

package observe

import "runtime"

// peakMemory returns the peak of the process's resident memory in bytes, from ru_maxrss.
func peakMemory(maxRSS int64) int64 {
	if runtime.GOOS == "darwin" { // bytes there, KiB elsewhere
		return maxRSS
	}
	return maxRSS << 10
}
