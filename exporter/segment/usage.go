// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package segment

import (
	"os"
	"strings"
)

// Usage is the disk usage of a journal's segments.
type Usage struct {
	Bytes   int64 // of all files, including traces and the open segment
	Closed  int64 // segments that are closed
	Pending int64 // those whose trace is not compiled yet
}

// Usage returns the disk usage. Closed segments are measured when one is closed, compiled or removed, so that this call is cheap.
func (j *Journal) Usage() Usage {
	var u Usage
	if seen := j.usage.Load(); seen != nil {
		u = *seen
	}
	u.Bytes += j.Size()
	return u
}

// measure measures the closed segments. Files that cannot be listed are measured the next time.
func (j *Journal) measure() {
	j.mu.Lock()
	current := j.open.id.number
	j.mu.Unlock()
	entries, err := os.ReadDir(j.opt.Directory)
	if err != nil {
		return
	}
	var u Usage
	for _, e := range entries {
		rest, _ := strings.CutPrefix(e.Name(), j.opt.Name)
		stamp, suffix, _ := strings.Cut(rest, ".")
		i, ok := parse(j.opt.Name, j.opt.Name+stamp+journalSuffix)
		if !ok || i.number >= current {
			continue
		}
		info, err := e.Info()
		if err != nil {
			continue // removed meanwhile
		}
		u.Bytes += info.Size()
		switch "." + suffix {
		case journalSuffix:
			u.Closed++
		case pendingSuffix:
			u.Pending++
		}
	}
	j.usage.Store(&u)
}
