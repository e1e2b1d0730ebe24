// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"bytes"
	"io"
	"math"
	"time"

	"github.com/moonloop/moonloop/agent/clock"
	"github.com/moonloop/moonloop/internal/atomicfile"
	"github.com/moonloop/moonloop/mooncake"
)

// tailBytes is the number of bytes at a trace's end that are searched for its last row.
const tailBytes = 1 << 20

// horizon returns the offset of the trace's last row, so that progress can show how long a run will take; 0 if only reading the trace would
// show it. It is a guess, because rows need not be in order.
func (in *input) horizon(cfg Config) time.Duration {
	end := in.lastOffset(cfg)
	if limit := cfg.Schedule.MaxDuration; limit > 0 {
		end = min(end, limit)
	}
	return max(0, end)
}

func (in *input) lastOffset(cfg Config) time.Duration {
	info := in.stream.Info()
	if cfg.Trace.LoopFor > 0 {
		return cfg.Trace.LoopFor
	}
	if a := cfg.Schedule.Arrivals; a.Any() {
		return a.At(float64(max(1, in.rowsToSend(cfg.Trace)) - 1))
	}
	if !info.Timed || cfg.Trace.MaxRows > 0 {
		return 0
	}
	last := info.Last
	if !info.Whole {
		row := lastRow(cfg.Trace.Name, in.trace.ParseRow)
		if row == nil || !row.Timestamp.Set {
			return 0
		}
		last = row.Timestamp.V
	}
	end := last - info.First
	if w := cfg.Trace; w.End > 0 {
		end = min(end, clock.Millis(w.End-w.Start))
	}
	if !info.Whole { // else the look-ahead saw every pass
		end *= float64(max(1, cfg.Trace.Loop))
	}
	return mooncake.Duration(end / cfg.Schedule.Speedup)
}

// rowsToSend returns the number of rows that a run will send; 0 if it is unknown, because only reading the trace shows which rows a window
// or shards leave out.
func (in *input) rowsToSend(t Trace) int64 {
	if t.Shards > 0 || t.Start > 0 || t.End > 0 || t.LoopFor > 0 {
		return 0
	}
	rows := int64(0)
	if meta := in.trace.Meta(); meta != nil {
		rows = timesPasses(meta.Rows, int64(max(1, t.Loop)))
	}
	if limit := t.MaxRows; limit > 0 && (rows == 0 || limit < rows) {
		return limit
	}
	return rows
}

// timesPasses returns the number of rows in all passes, or the greatest number if there are more: a sidecar may claim any number of rows.
func timesPasses(rows, passes int64) int64 {
	if rows > math.MaxInt64/passes {
		return math.MaxInt64
	}
	return rows * passes
}

// lastRow reads the last row of a plain trace file; nil for other inputs.
func lastRow(name string, parse func([]byte) (*mooncake.Row, error)) *mooncake.Row {
	f, err := atomicfile.Open(name)
	if err != nil {
		return nil
	}
	defer func() { _ = f.Close() }() // it was only read
	stat, err := f.Stat()
	if err != nil {
		return nil
	}
	tail, err := io.ReadAll(io.NewSectionReader(f, max(0, stat.Size()-tailBytes), tailBytes))
	if err != nil {
		return nil
	}
	tail = bytes.TrimRight(tail, "\r\n\t ")
	row, err := parse(tail[bytes.LastIndexByte(tail, '\n')+1:])
	if err != nil {
		return nil
	}
	return row
}
