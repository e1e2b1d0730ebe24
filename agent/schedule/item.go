// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package schedule

import (
	"time"

	"github.com/moonloop/moonloop/mooncake"
	"github.com/moonloop/moonloop/mooncake/stats"
)

// Item is one row on its way through the schedule. The source fills the first group of fields; the scheduler
// fills the second before it fires or skips the item.
type Item struct {
	Row       *mooncake.Row
	Index     int64            // row index in the trace
	Timed     bool             // Offset comes from a timestamp
	Offset    time.Duration    // intended instant in replay time, from the schedule's zero
	Spread    time.Duration    // the part of Offset that spreading added
	After     []int64          // rows that it waits for, by index, and nil for a row of no graph; those that the source has not yielded before are not waited for
	Predicted stats.Prediction // of its cached tokens; -1 where none can be made
	Prompts   int64            // Predicted.Finest where no reply is carried

	Session   *Session      // the row's session; nil without one, and for rows that never reached theirs
	Turn      int           // turn of its session, from 0
	Intended  time.Duration // on the run's clock
	Scheduled bool          // Intended comes from a timestamp or a delay, not from a free slot
	Due       time.Duration // instant at which its turn had come; clock.Never until then
	Waited    bool          // the cap held it back between Due and its dispatch

	// Data is the hooks' own.
	Data any

	vertex     *vertex       // in its graph; nil without one
	prefilling bool          // holds a prefill slot
	prepared   bool          // Hooks.Prepare has had it
	wake       time.Duration // instant at which it is to be prepared, or, if it is, offered
}

// Source yields items by rising offset, items of one session in the order in which they are to be sent. Next is
// called on a goroutine of its own; it returns io.EOF at the end, and any other error ends the schedule.
//
// Stop says that nothing will be sent any more: Next then yields the items that the source has read already, each of
// which is skipped, and returns io.EOF without reading on. It may be called at any time, from any goroutine, more than once.
type Source interface {
	Next() (*Item, error)
	Stop()
}
