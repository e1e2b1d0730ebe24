// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// throttled returns how long the CPU quota of the process's cgroup (version 2) has stopped its processes since the cgroup was created.
func throttled() (time.Duration, bool) {
	self, err := os.ReadFile("/proc/self/cgroup")
	path, found := lineAfter(self, "0::")
	if err != nil || !found {
		return 0, false
	}
	// In a container with its own cgroup namespace the path is "/" and the files are at the mount's root.
	for _, dir := range []string{filepath.Join("/sys/fs/cgroup", path), "/sys/fs/cgroup"} {
		if stat, err := os.ReadFile(filepath.Join(dir, "cpu.stat")); err == nil { //nolint:gosec // the kernel names the folder
			return parseThrottled(stat)
		}
	}
	return 0, false
}

// parseThrottled reads throttled_usec out of a cpu.stat file. A cgroup without a quota has no such line.
func parseThrottled(stat []byte) (time.Duration, bool) {
	value, _ := lineAfter(stat, "throttled_usec ")
	usec, err := strconv.ParseInt(value, 10, 64)
	return time.Duration(usec) * time.Microsecond, err == nil
}

// lineAfter returns the rest of the first line that begins with a prefix.
func lineAfter(text []byte, prefix string) (rest string, found bool) {
	_, rest, found = strings.Cut("\n"+string(text), "\n"+prefix)
	rest, _, _ = strings.Cut(rest, "\n")
	return rest, found
}
