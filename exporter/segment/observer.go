// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package segment

import (
	"time"

	"github.com/moonloop/moonloop/capture"
)

// Observer is notified of events of segments. Its methods are called from several goroutines, some of them while Append waits: they must
// return soon, and may call only the Journal's Size.
type Observer interface {
	// Synced is called after each sync of the open segment.
	Synced(took time.Duration, err error)
	// Cut is called after each end of a segment with records, and after each failed attempt, with Err set: the segment then continues, and
	// the next attempt is some seconds away.
	Cut(Cut)
	// Compiled is called after each attempt to compile a segment.
	Compiled(Compilation)
	// Removed is called for each segment that retention removed, or failed to remove.
	Removed(Removal)
	// Leftover is called for a file of an earlier process that could not be used. It is not changed.
	Leftover(file string, err error)
}

// Cut is the end of a segment.
type Cut struct {
	Segment string // the file of the journal
	Bytes   int64
	Waited  bool          // the cut was delayed: at MaxBytes, the segment was younger than a grace period
	Took    time.Duration // how long Append waited
	// Cause is why the segment could no longer be written, if it ended for that reason.
	Cause error
	// Lost is the size of the records that were lost because somebody removed or replaced the journal, including those whose Append
	// returned an error.
	Lost int64
	Err  error
}

// Compilation is the compilation of a segment's trace.
type Compilation struct {
	Segment string
	Result  capture.Result
	Took    time.Duration
	// Err is why there is no trace. The next process tries again.
	Err error
}

// Removal is the removal of a segment's files.
type Removal struct {
	Segment string
	Bytes   int64
	Pending bool // its trace had not been compiled
	Err     error
}

type nobody struct{}

func (nobody) Synced(time.Duration, error) {}
func (nobody) Cut(Cut)                     {}
func (nobody) Compiled(Compilation)        {}
func (nobody) Removed(Removal)             {}
func (nobody) Leftover(string, error)      {}
