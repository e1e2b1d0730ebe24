// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package segment

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// files is what one segment has on the disk.
type files struct {
	id    id
	names []string
	bytes int64
	last  time.Time // when the journal was written last
}

// retain removes the segments that are too old, and the oldest ones until the others are small enough.
func (j *Journal) retain() {
	limit := j.opt.Retention
	if limit == (Retention{}) {
		return
	}
	closed := j.closedSegments()
	total := j.Size()
	segments := make([]files, len(closed))
	for n, i := range closed {
		segments[n] = j.filesOf(i)
		total += segments[n].bytes
	}
	now := time.Now()
	j.date(segments, now)
	for _, s := range segments {
		if (limit.MaxAge == 0 || now.Sub(s.last) <= limit.MaxAge) && (limit.MaxBytes == 0 || total <= limit.MaxBytes) {
			continue
		}
		total -= s.bytes
		j.remove(s)
	}
}

// date puts the ends of segments, oldest first, on the time line of this process, on which a clock that is set does nothing: or
// it would make everything old at once. Those of earlier processes are as much older than this process as they are
// older than the newest of them; so the time in which none ran is no age.
func (j *Journal) date(segments []files, now time.Time) {
	j.mu.Lock()
	defer j.mu.Unlock()
	oldest, next := j.open.id.number, now
	if len(segments) > 0 {
		oldest = segments[0].id.number
	}
	maps.DeleteFunc(j.ended, func(number int64, _ time.Time) bool { return number < oldest }) // removed, whoever did it
	for n := len(segments) - 1; n >= 0; n-- {
		s := &segments[n]
		ended, ours := j.ended[s.id.number]
		if !ours {
			ended = j.begun.Add(s.last.Sub(j.newest))
		}
		if ended.After(next) {
			ended = next // none is younger than the one after it
		}
		s.last, next = ended, ended
	}
}

// filesOf finds the files of a segment, the journal last.
func (j *Journal) filesOf(i id) files {
	f := files{id: i}
	entries, _ := os.ReadDir(j.opt.Directory) // what cannot be listed is not removed
	add := func(name string) {
		if info, err := os.Stat(filepath.Join(j.opt.Directory, name)); err == nil {
			f.names = append(f.names, filepath.Join(j.opt.Directory, name))
			f.bytes += info.Size()
			f.last = info.ModTime()
		}
	}
	journal := i.String() + journalSuffix
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), i.String()+".") && e.Name() != journal {
			add(e.Name())
		}
	}
	add(journal)
	return f
}

// remove removes the files of a segment, the journal last: what is not removed is found again.
func (j *Journal) remove(s files) {
	r := Removal{Segment: j.opt.path(s.id, journalSuffix), Bytes: s.bytes}
	for _, name := range s.names {
		r.Pending = r.Pending || strings.HasSuffix(name, pendingSuffix)
		if err := os.Remove(name); err != nil && !errors.Is(err, os.ErrNotExist) {
			r.Err = errors.Join(r.Err, err)
		}
	}
	j.opt.Observer.Removed(r)
}
