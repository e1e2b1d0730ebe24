// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package schedule

import (
	"time"

	"github.com/moonloop/moonloop/mooncake"
	"github.com/moonloop/moonloop/mooncake/stats"
)

// Item is a row in the schedule. The source fills in the first group of fields; the scheduler fills in the second before it fires or skips
// the item.
type Item struct {
	Row       *mooncake.Row
	Index     int64            // row index in the trace
	Timed     bool             // Offset comes from a timestamp
	Offset    time.Duration    // scheduled replay time, from the start of the schedule
	Spread    time.Duration    // the part of Offset that spreading added
	After     []int64          // indices of the rows that it waits for; nil for a row outside graphs; rows that the source does not yield before it are ignored
	Predicted stats.Prediction // prediction of its cached tokens; -1 if unknown
	Prompts   int64            // what Predicted.Finest would be if no reply were carried

	Session   *Session      // the row's session; nil if it has none
	Turn      int           // turn of its session, from 0
	Intended  time.Duration // on the run's clock
	Scheduled bool          // Intended comes from a timestamp or a delay, not from a free slot
	Due       time.Duration // time at which it was due; clock.Never until then
	Waited    bool          // the cap held it back between Due and its dispatch

	// Data belongs to the hooks.
	Data any

	vertex     *vertex       // in its graph; nil without one
	prefilling bool          // holds a prefill slot
	numbered   bool          // Turn is known
	prepared   bool          // Hooks.Prepare was called
	wake       time.Duration // time at which it is prepared, or, after that, sent
}

// Source yields items by ascending offset, and items of one session in the order in which they are sent. Next is called on a separate
// goroutine. It returns io.EOF at the end; any other error ends the schedule.
//
// Stop says that nothing more will be sent: Next then yields the items that the source has read already, which are skipped, and returns
// io.EOF without further reading. It may be called at any time, from any goroutine, more than once.
type Source interface {
	Next() (*Item, error)
	Stop()
}
