// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"bufio"
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// throttled returns how long the process's cgroup (version 2) has been held back by its quota since it exists.
func throttled() (time.Duration, bool) {
	self, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return 0, false
	}
	for line := range strings.Lines(string(self)) {
		path, found := strings.CutPrefix(strings.TrimSpace(line), "0::")
		if !found {
			continue
		}
		// In a container with its own cgroup namespace the path is "/" and the files are at the mount's root.
		for _, dir := range []string{filepath.Join("/sys/fs/cgroup", path), "/sys/fs/cgroup"} {
			if stat, err := os.ReadFile(filepath.Join(dir, "cpu.stat")); err == nil { //nolint:gosec // the kernel names the folder
				return parseThrottled(stat)
			}
		}
	}
	return 0, false
}

// parseThrottled reads throttled_usec out of a cpu.stat file. A cgroup without a quota has no such line.
func parseThrottled(stat []byte) (time.Duration, bool) {
	lines := bufio.NewScanner(bytes.NewReader(stat))
	for lines.Scan() {
		if v, found := strings.CutPrefix(lines.Text(), "throttled_usec "); found {
			usec, err := strconv.ParseInt(v, 10, 64)
			return time.Duration(usec) * time.Microsecond, err == nil
		}
	}
	return 0, false
}
