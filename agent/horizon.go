// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"bytes"
	"io"
	"os"
	"time"

	"github.com/moonloop/moonloop/mooncake"
)

// tailBytes is how much of a trace's end is looked at for its last row.
const tailBytes = 1 << 20

// horizon returns the offset of the trace's last row, so that progress can say how long a run will take; 0 when that
// cannot be told without reading the trace. It is a guess: rows need not be in order.
func (r *run) horizon() time.Duration {
	info := r.stream.Info()
	if !info.Timed || r.cfg.Trace.MaxRows > 0 {
		return 0
	}
	last := info.Last
	if !info.Whole {
		row := lastRow(r.cfg.Trace.Name)
		if row == nil || !row.Timestamp.Set {
			return 0
		}
		last = row.Timestamp.V * millis(r.cfg.Trace.Unit)
	}
	end := time.Duration((last - info.First) * float64(time.Millisecond))
	if w := r.cfg.Trace; w.End > 0 {
		end = min(end, w.End-w.Start)
	}
	if speed := r.cfg.Schedule.Speedup; speed > 0 {
		end = time.Duration(float64(end) / speed)
	}
	if limit := r.cfg.Schedule.MaxDuration; limit > 0 {
		end = min(end, limit)
	}
	return max(0, end)
}

// lastRow reads the last row of a plain trace file; nil for everything else.
func lastRow(name string) *mooncake.Row {
	f, err := os.Open(name) //nolint:gosec // the user's trace
	if err != nil {
		return nil
	}
	defer func() { _ = f.Close() }() // it was only read
	stat, err := f.Stat()
	if err != nil || !stat.Mode().IsRegular() {
		return nil
	}
	tail, err := io.ReadAll(io.NewSectionReader(f, max(0, stat.Size()-tailBytes), tailBytes))
	if err != nil {
		return nil
	}
	tail = bytes.TrimRight(tail, "\r\n\t ")
	line := tail[bytes.LastIndexByte(tail, '\n')+1:]
	row, err := mooncake.ParseRow(line)
	if err != nil {
		return nil
	}
	return row
}
