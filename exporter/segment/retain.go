// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package segment

import (
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// retain removes the segments that are too old, and the oldest ones until the others are small enough.
func (j *Journal) retain() {
	limit := j.opt.Retention
	if limit == (Retention{}) {
		return
	}
	closed := j.closedSegments()
	total := j.Size()
	names, bytes := make([][]string, len(closed)), make([]int64, len(closed))
	for n, i := range closed {
		names[n], bytes[n] = j.filesOf(i)
		total += bytes[n]
	}
	for n, ended := range j.ends(closed) {
		if limit.MaxAge > 0 && time.Since(ended) > limit.MaxAge || limit.MaxBytes > 0 && total > limit.MaxBytes {
			total -= bytes[n]
			j.remove(closed[n], names[n], bytes[n])
		}
	}
}

// ends returns when closed segments, oldest first, were closed, on the time line of this process. Setting the clock does not affect it;
// otherwise everything could become old at once. For segments of earlier processes, the age at the start of this process is their
// difference from the newest of them, so time without a process does not count.
func (j *Journal) ends(closed []id) []time.Time {
	j.mu.Lock()
	defer j.mu.Unlock()
	maps.DeleteFunc(j.ended, func(number int64, _ time.Time) bool { // removed, whoever did it
		return len(closed) == 0 || number < closed[0].number
	})
	ends, next := make([]time.Time, len(closed)), time.Now()
	for n, i := range slices.Backward(closed) {
		ended, ours := j.ended[i.number]
		if info, err := os.Stat(j.opt.path(i, journalSuffix)); err == nil && !ours {
			ended = j.begun.Add(min(0, info.ModTime().Sub(j.newest)))
		}
		if ended.After(next) {
			ended = next // none is younger than the one after it
		}
		ends[n], next = ended, ended
	}
	return ends
}

// filesOf finds the files of a segment, the journal last, and how many bytes they take.
func (j *Journal) filesOf(i id) (names []string, bytes int64) {
	journal := i.String() + journalSuffix
	found, _ := fs.Glob(os.DirFS(j.opt.Directory), i.String()+".*") // files that cannot be listed are not removed
	for _, name := range append(slices.DeleteFunc(found, func(name string) bool { return name == journal }), journal) {
		name = filepath.Join(j.opt.Directory, name)
		if info, err := os.Stat(name); err == nil {
			names, bytes = append(names, name), bytes+info.Size()
		}
	}
	return names, bytes
}

// remove removes the files of a segment in the given order: with the journal last, files that remain after a failure are found again.
func (j *Journal) remove(i id, names []string, bytes int64) {
	r := Removal{Segment: j.opt.path(i, journalSuffix), Bytes: bytes}
	for _, name := range names {
		r.Pending = r.Pending || strings.HasSuffix(name, pendingSuffix)
		if err := os.Remove(name); err != nil && !errors.Is(err, os.ErrNotExist) {
			r.Err = errors.Join(r.Err, err)
		}
	}
	j.opt.Observer.Removed(r)
}
