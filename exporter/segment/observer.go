// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package segment

import (
	"time"

	"github.com/moonloop/moonloop/capture"
)

// Observer is told what happens to segments. Its methods are called from several goroutines, some of them while Append
// waits: they must return soon, and must not call the Journal but for its Size.
type Observer interface {
	// Synced is called after each sync of the open segment.
	Synced(took time.Duration, err error)
	// Cut is called after each end of a segment, and after each attempt that failed, whose Err says why: the segment
	// then goes on, and the next attempt is some seconds away.
	Cut(Cut)
	// Compiled is called after each attempt to compile a segment.
	Compiled(Compilation)
	// Removed is called for each segment that retention removed, or failed to.
	Removed(Removal)
	// Leftover is called for a file of an earlier process that could not be used. It is left alone.
	Leftover(file string, err error)
}

// Cut is the end of a segment.
type Cut struct {
	Segment string // the file of the journal
	Bytes   int64
	Waited  bool          // it was larger than MaxBytes, and younger than a grace period
	Took    time.Duration // for which Append waited
	// Cause is why the segment could not be written any more, if that is why it ended.
	Cause error
	// Lost is the number of bytes of records that went when somebody removed or replaced the journal, those included whose Append
	// said so.
	Lost int64
	Err  error
}

// Compilation is a segment's own trace.
type Compilation struct {
	Segment string
	Result  capture.Result
	Took    time.Duration
	// Err is why there is no trace. The next process tries again.
	Err error
}

// Removal is the end of a segment's files.
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
