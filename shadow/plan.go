// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package shadow

// This file compiles a window, and writes the plan of its rows.

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/moonloop/moonloop/capture"
	"github.com/moonloop/moonloop/exporter/segment"
	"github.com/moonloop/moonloop/internal/atomicfile"
	"github.com/moonloop/moonloop/internal/jsonrows"
	"github.com/moonloop/moonloop/mooncake"
)

const (
	plansFolder = "plans"
	planSuffix  = ".jsonl"
	maxLine     = 64 << 20
)

// planner makes plans. Rows of plans have timestamps in ms since the Unix epoch, and permanent ids.
type planner struct {
	cfg    *Config
	dir    string
	spans  *follower
	coarse numbering                    // of hash_ids
	fine   numbering                    // of hash_ranges
	rows   map[int64][]mooncake.SpanRef // rows with known ids, by window of their plan

	// places number the rows of plans in order. The replies of such rows refer to rows by these numbers.
	places map[mooncake.SpanRef]int64
	place  int64 // of the next row
}

func newPlanner(cfg *Config, spans *follower) (*planner, error) {
	p := &planner{cfg: cfg, dir: filepath.Join(cfg.Dir, plansFolder), spans: spans, rows: map[int64][]mooncake.SpanRef{}, places: map[mooncake.SpanRef]int64{}}

	return p, os.MkdirAll(p.dir, 0o700)
}

// dropped counts what Compile left out of a window, by reason.
type dropped = []mooncake.Dropped

// plan compiles a window and writes its plan: its rows, and late rows of earlier windows, back to the first, that are in none of their
// plans. When it returns, the plan is on disk.
func (p *planner) plan(ctx context.Context, window, first int64) (rows []*mooncake.Row, left dropped, err error) {
	opt := capture.Options{Replays: capture.ReplaysDrop, Graphs: capture.GraphsNever, TempDir: p.spans.dir}
	after := p.spans.sources(window+1, window+1+p.cfg.windows(p.cfg.Delay)+1)
	beside := max(1, p.cfg.windows(segment.DefaultGrace))

	// Left-out records count once: only in their window, as in the trace of a segment.
	one := opt
	one.Before, one.After = p.spans.sources(window-beside, window), after
	res, err := compile(ctx, one, &collected{}, p.spans.sources(window, window+1))
	if err != nil {
		return nil, nil, err
	}
	for _, t := range res.Traces {
		if !t.Replay {
			left = t.Meta.Dropped
		}
	}

	opt.After = after
	all := &collected{}
	if _, err := compile(ctx, opt, all, p.spans.sources(window-p.cfg.windows(p.cfg.History), window+1)); err != nil {
		return nil, nil, err
	}
	rows = p.number(all, window, first)
	return rows, left, p.write(window, rows)
}

// compile compiles journals; the result is empty if there are none, because production sent nothing in these windows.
func compile(ctx context.Context, opt capture.Options, rows *collected, journals []capture.Source) (capture.Result, error) {
	if len(journals) == 0 {
		return capture.Result{}, nil
	}
	return capture.Compile(ctx, opt, func(capture.Partition) (capture.TraceWriter, error) { return rows, nil }, journals...)
}

// number sets the times and ids of rows, and returns the new rows.
func (p *planner) number(all *collected, window, first int64) (rows []*mooncake.Row) {
	base := float64(all.meta.TimeBase.UnixNano()) / float64(time.Millisecond)
	p.coarse.begin()
	p.fine.begin()
	for i, row := range all.rows {
		row.Timestamp.V = math.Round((base+row.Timestamp.V)*1e3) / 1e3
		in := p.cfg.windowOfRow(row)
		if in > window {
			break // rows are in order of time: those of other windows follow
		}
		_, known := p.coarse.known[row.OTel]
		row.HashIDs = idsOrNil(row.HashIDs, p.coarse.translate(row.OTel, rangesOf(row.HashIDs)))
		row.HashRanges = p.fine.translate(row.OTel, row.HashRanges)
		if known {
			continue
		}
		p.rows[window] = append(p.rows[window], row.OTel)
		if in < first {
			continue
		}
		p.add(row)
		replies := row.Replies[:0]
		for _, r := range row.Replies {
			if to, known := p.places[all.rows[i-int(r.Back)].OTel]; known && to < p.place-1 {
				r.Back = p.place - 1 - to
				replies = append(replies, r)
			}
		}
		row.Replies = replies
		rows = append(rows, row)
	}
	return rows
}

// add assigns a number to a row of a plan.
func (p *planner) add(row *mooncake.Row) {
	p.places[row.OTel] = p.place
	p.place++
}

func idsOrNil(was []uint64, ranges []mooncake.HashRange) []uint64 {
	if was == nil {
		return nil
	}
	return idsOf(ranges)
}

// windowOfRow returns the window of a row of a plan.
func (c *Config) windowOfRow(row *mooncake.Row) int64 {
	return c.windowOf(int64(row.Timestamp.V * 1e6))
}

// collected is a trace in memory.
type collected struct {
	rows []*mooncake.Row
	meta mooncake.Meta
}

func (c *collected) Write(row *mooncake.Row) error {
	own := *row
	own.HashIDs, own.HashRanges, own.Replies = slices.Clone(row.HashIDs), slices.Clone(row.HashRanges), slices.Clone(row.Replies)
	c.rows = append(c.rows, &own)
	return nil
}
func (c *collected) Commit(meta *mooncake.Meta) error { c.meta = *meta; return nil }
func (c *collected) Close() error                     { return nil }

func (p *planner) file(window int64) string {
	return filepath.Join(p.dir, stamp(p.cfg.begin(window))+planSuffix)
}

func (p *planner) write(window int64, rows []*mooncake.Row) error {
	var lines []byte
	for _, row := range rows {
		lines = append(mooncake.AppendRow(lines, row), '\n')
	}
	return writeFile(p.file(window), lines)
}

// read reads a plan, and remembers the ids of its rows.
func (p *planner) read(window int64) (rows []*mooncake.Row, err error) {
	err = eachLine(p.file(window), func(line []byte) error {
		row, err := mooncake.ParseRow(line)
		if err != nil {
			return err
		}
		rows = append(rows, row)
		return nil
	})
	for _, row := range rows {
		p.coarse.remember(row.OTel, rangesOf(row.HashIDs))
		p.fine.remember(row.OTel, row.HashRanges)
		p.rows[window] = append(p.rows[window], row.OTel)
		p.add(row)
	}
	return rows, err
}

// windows returns the windows that have plans.
func (p *planner) windows() (all []int64, err error) {
	entries, err := os.ReadDir(p.dir)
	for _, e := range entries {
		if window, ok := p.cfg.windowNamed(e.Name()); ok && filepath.Ext(e.Name()) == planSuffix {
			all = append(all, window)
		}
	}
	slices.Sort(all)
	return all, err
}

// forget removes the plans before a window, and the ids of their rows.
func (p *planner) forget(oldest int64) {
	for window, rows := range p.rows {
		if window < oldest {
			for _, row := range rows {
				delete(p.coarse.known, row)
				delete(p.fine.known, row)
				delete(p.places, row)
			}
			delete(p.rows, window)
		}
	}
	p.cfg.removeBefore(p.dir, oldest)
}

// writeFile writes a file completely or not at all.
func writeFile(name string, content []byte) error {
	return atomicfile.Write(name, atomicfile.Regular, func(w io.Writer) error {
		_, err := w.Write(content)
		return err
	})
}

// eachLine calls yield for each whole line of a file. A missing file has none. A last line that a kill has torn is left out.
func eachLine(name string, yield func([]byte) error) error {
	content, err := atomicfile.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer func() { _ = content.Close() }() // it was only read
	lines := bufio.NewReaderSize(content, 1<<20)
	for n := 1; ; n++ {
		line, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("%s: line %d cannot be read: %w", name, n, err)
		}
		if err := yield(bytes.TrimSpace(line)); err != nil {
			return fmt.Errorf("%s: line %d: %w", name, n, jsonrows.Explain(err))
		}
	}
}
