// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package shadow

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/moonloop/moonloop/capture"
	"github.com/moonloop/moonloop/internal/atomicfile"
	"github.com/moonloop/moonloop/internal/jsonrows"
	"github.com/moonloop/moonloop/mooncake"
)

const (
	// StateFile has the state from which a shadow continues.
	StateFile = "shadow.json"
	// ReportsFile has the report of each window, one per line.
	ReportsFile = "reports.jsonl"

	stateSchema = 1
	maxState    = 64 << 20 // bytes
	tick        = time.Second
)

var fineBlock = capture.FineBlockSizeOf(mooncake.BlockSize)

// state is the state for the next process.
type state struct {
	Schema  int           `json:"schema"`
	Delay   time.Duration `json:"delay_ns"`
	Window  time.Duration `json:"window_ns"`
	First   int64         `json:"first_window"`     // of the shadow
	Planned int64         `json:"planned_windows"`  // the next window to plan
	Next    int64         `json:"reported_windows"` // the next window to report
	Alive   time.Time     `json:"alive"`            // when the state was written
	Replays int64         `json:"replays"`
	Coarse  uint64        `json:"next_id"` // of hash_ids
	Fine    uint64        `json:"next_fine_id"`

	Journals map[string]place  `json:"journals"`
	Left     map[int64]dropped `json:"left_out,omitempty"` // of windows that are planned and not reported
	Totals   Totals            `json:"totals"`
}

// shadow is one call of Run.
type shadow struct {
	cfg Config
	state
	spans   *follower
	planner *planner
	books   *books
	feeder  *feeder
	replays []*replay
	reports *os.File

	begun    time.Time // of this process
	stopping bool
}

// Run follows the journals and replays their requests, until ctx ends, which is not an error. It continues from the state in Config.Dir. It
// returns an error if the shadow cannot continue: a folder cannot be read or written, or the configuration is wrong.
func Run(ctx context.Context, cfg Config) (Totals, error) {
	if err := cfg.complete(); err != nil {
		return Totals{}, err
	}
	if err := os.MkdirAll(cfg.Dir, 0o700); err != nil {
		return Totals{}, fmt.Errorf("folder of the shadow: %w", err)
	}
	unlock, err := atomicfile.Hold(filepath.Join(cfg.Dir, StateFile+".lock"))
	if err != nil {
		return Totals{}, fmt.Errorf("another shadow is using %s: %w", cfg.Dir, err)
	}
	defer unlock()
	s := &shadow{cfg: cfg, begun: time.Now()}
	if err := s.open(time.Now()); err != nil {
		return s.Totals, err
	}
	defer s.close()
	if err := s.resume(time.Now()); err != nil {
		return s.Totals, err
	}
	replaying, stop := context.WithCancel(ctx)
	fed, number := make(chan struct{}), s.Replays
	go func() {
		defer close(fed)
		s.feeder.run(replaying, number)
	}()
	err = s.loop(ctx)
	stop()
	<-fed
	s.stopping = true
	err = errors.Join(err, s.note())
	for _, r := range s.replays {
		<-r.done
	}
	err = errors.Join(err, s.note())
	return s.Totals, errors.Join(err, s.save(time.Now()))
}

// open reads the state, or makes a new one.
func (s *shadow) open(now time.Time) (err error) {
	text, err := atomicfile.ReadFile(filepath.Join(s.cfg.Dir, StateFile), maxState)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		// The shadow begins with the first window whose first row can be sent in time.
		first := s.cfg.windowOf(now.Add(2*Lead-s.cfg.Delay).UnixNano()) + 1
		s.state = state{
			Schema: stateSchema, Delay: s.cfg.Delay, Window: s.cfg.Window, First: first, Planned: first, Next: first, Alive: now, Replays: 1,
			Journals: map[string]place{},
		}
	case err != nil:
		return fmt.Errorf("the shadow cannot continue: %w", err)
	default:
		if err = json.Unmarshal(text, &s.state); err == nil && s.Schema != stateSchema {
			err = fmt.Errorf("its schema is %d, not %d", s.Schema, stateSchema)
		}
		if err != nil {
			return fmt.Errorf("the shadow cannot continue: %s is not the state of a shadow: %w; name another folder", filepath.Join(s.cfg.Dir, StateFile), jsonrows.Explain(err))
		}
		if s.Delay != s.cfg.Delay || s.Window != s.cfg.Window {
			return fmt.Errorf("the shadow in %s has a delay of %v and windows of %v, not %v and %v: use its values, or name another folder", s.cfg.Dir, s.Delay, s.Window, s.cfg.Delay, s.cfg.Window)
		}
	}
	if s.Journals == nil {
		s.Journals = map[string]place{}
	}
	if s.Left == nil {
		s.Left = map[int64]dropped{}
	}
	if s.spans, err = newFollower(&s.cfg, s.Journals, &s.Totals.Journals); err != nil {
		return err
	}
	s.spans.oldest = s.Planned - s.cfg.windows(s.cfg.History)
	if s.planner, err = newPlanner(&s.cfg, s.spans); err != nil {
		return err
	}
	s.planner.coarse.next, s.planner.fine.next = s.Coarse, s.Fine
	s.books, s.feeder = newBooks(&s.cfg), newFeeder(&s.cfg)
	s.reports, err = os.OpenFile(filepath.Join(s.cfg.Dir, ReportsFile), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	return err
}

func (s *shadow) close() {
	s.spans.close()
	_ = s.reports.Close()
}

// resume processes the rows of the earlier process's plans: the results that they have, and the rows that are still to be sent.
func (s *shadow) resume(now time.Time) error {
	windows, err := s.planner.windows()
	if err != nil {
		return err
	}
	plans := map[int64][]*mooncake.Row{}
	for _, in := range windows {
		if in >= s.Planned {
			continue // the state was not written after it: the window is planned again, with the same rows
		}
		rows, err := s.planner.read(in)
		if err != nil {
			return err
		}
		if in >= s.Next {
			plans[in] = rows
			s.books.add(in, rows, s.Left[in])
		}
	}
	dirs, err := s.cfg.runFolders()
	if err != nil {
		return err
	}
	for _, dir := range dirs {
		clear(s.books.unsent) // a later replay may have sent what an earlier one had not
		if err := allResults(dir, func(line []byte) error {
			_, err := s.books.ended(line)
			return err
		}); err != nil {
			return err
		}
		s.Replays = max(s.Replays, numberOf(dir)+1)
	}
	for in := s.Next; in < s.Planned; in++ {
		if err := s.books.readDrops(in); err != nil {
			return err
		}
		err := s.send(in, plans[in], func(row *mooncake.Row) string {
			switch due := s.cfg.dueAt(row); {
			case due.After(now.Add(tick)):
				return ""
			case due.After(s.Alive.Add(2 * tick)), s.books.unsent[row.OTel]:
				return DropNotRunning
			}
			return DropInterrupted
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func numberOf(dir string) (n int64) {
	_, _ = fmt.Sscanf(filepath.Base(dir), runPrefix+"%d", &n)
	return n
}

// send passes those rows of a plan that have no result to the feeder, if they may still be sent. why returns the reason if a row may not.
func (s *shadow) send(in int64, rows []*mooncake.Row, why func(*mooncake.Row) string) error {
	w := s.books.windows[in]
	if w == nil {
		return nil
	}
	perSecond := map[int64]int{}
	var entries []entry
	for _, row := range rows {
		second := int64(row.Timestamp.V / 1e3)
		perSecond[second]++
		if _, open := w.open[row.OTel]; !open {
			continue
		}
		reason := ""
		switch {
		case s.cfg.windowOfRow(row) < in:
			reason = DropLate
		case perSecond[second] > s.cfg.MaxRate:
			reason = DropRate
		default:
			reason = why(row)
		}
		if reason != "" {
			if err := s.drop(in, row, reason); err != nil {
				return err
			}
			continue
		}
		entries = append(entries, entry{row, in, s.planner.places[row.OTel]})
	}
	s.feeder.add(entries)
	return nil
}

func (s *shadow) drop(in int64, row *mooncake.Row, reason string) error {
	s.books.drop(row.OTel, reason)
	return s.cfg.noteDrop(in, row.OTel, reason)
}

// loop takes a step each second.
func (s *shadow) loop(ctx context.Context) error {
	each := time.NewTicker(tick)
	defer each.Stop()
	for {
		if err := s.step(ctx, time.Now()); err != nil {
			if ctx.Err() != nil && errors.Is(err, context.Cause(ctx)) {
				return nil
			}
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-each.C:
		}
	}
}

// step reads new records, plans the windows that are due, and reports those that are over.
func (s *shadow) step(ctx context.Context, now time.Time) error {
	if err := s.spans.poll(ctx, now); err != nil {
		return err
	}
	for !now.Before(s.cfg.begin(s.Planned + 1).Add(s.cfg.hold())) {
		rows, left, err := s.planner.plan(ctx, s.Planned, s.First)
		if err != nil {
			return err
		}
		in := s.Planned
		s.books.add(in, rows, left)
		s.Left[in] = left
		for _, l := range left {
			add(&s.Totals.Left, map[string]int64{l.What + ": " + l.Reason: l.Count})
		}
		s.Planned++
		if err := s.save(now); err != nil {
			return err
		}
		err = s.send(in, rows, func(row *mooncake.Row) string {
			if s.cfg.dueAt(row).Before(s.begun) {
				return DropNotRunning
			}
			return ""
		})
		if err != nil {
			return err
		}
	}
	if err := s.note(); err != nil {
		return err
	}
	for {
		in, ok := s.books.due(now)
		if !ok {
			break
		}
		if err := s.report(in); err != nil {
			return err
		}
	}
	s.forget(now)
	return s.save(now)
}

// drainNews processes the news of the feeder.
func (s *shadow) drainNews() (drops []entry) {
	started, drops := s.feeder.news()
	s.replays = append(s.replays, started...)
	s.Replays += int64(len(started))
	return drops
}

// note records results of rows.
func (s *shadow) note() error {
	for _, e := range s.drainNews() {
		if err := s.drop(e.in, e.Row, DropLag); err != nil {
			return err
		}
	}
	left := s.replays[:0]
	for _, r := range s.replays {
		over := false
		select {
		case <-r.done:
			over = true
		default:
		}
		if err := s.results(r, over); err != nil {
			return err
		}
		if !over {
			left = append(left, r)
		}
	}
	s.replays = left
	return nil
}

// results records the results of a replay.
func (s *shadow) results(r *replay, over bool) error {
	ended := func(line []byte) error {
		row, err := s.books.ended(line)
		s.feeder.mu.Lock()
		delete(r.fed, row)
		s.feeder.mu.Unlock()
		return err
	}
	if !over {
		return r.results(ended)
	}
	if err := allResults(r.dir, ended); err != nil || s.stopping {
		return err // the next process continues with the rows that are not due yet
	}
	if r.err != nil {
		s.cfg.Warn(fmt.Sprintf("the replay in %s has ended, and the next one begins with the next row: %v", r.dir, r.err))
	}
	s.feeder.mu.Lock()
	defer s.feeder.mu.Unlock()
	for row, in := range r.fed {
		if w := s.books.windows[in]; w != nil {
			if _, open := w.open[row]; open {
				s.books.drop(row, DropInterrupted)
				if err := s.cfg.noteDrop(in, row, DropInterrupted); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// report reports a window. Its line is written before the state: after a kill between the two, it is written again.
func (s *shadow) report(in int64) error {
	r, err := s.books.close(in, &s.Totals)
	if err != nil {
		return err
	}
	s.Next = in + 1
	delete(s.Left, in)
	line, err := json.Marshal(r)
	if err != nil {
		return err
	}
	if _, err := s.reports.Write(append(line, '\n')); err != nil {
		return fmt.Errorf("%s: %w", s.reports.Name(), err)
	}
	s.cfg.Report(r)
	return nil
}

// forget removes what is no longer needed.
func (s *shadow) forget(now time.Time) {
	history := s.cfg.windows(s.cfg.History)
	s.spans.forget(s.Planned - history)
	s.planner.forget(min(s.Next, s.Planned-history))
	dirs, _ := s.cfg.runFolders() // folders that cannot be listed are removed the next time
	for _, dir := range dirs {
		info, err := os.Stat(dir)
		if err != nil || numberOf(dir) >= s.Replays-1 {
			continue
		}
		if now.Sub(info.ModTime()) > s.cfg.Keep+renew+s.cfg.Delay {
			_ = os.RemoveAll(dir)
		}
	}
}

// save writes the state.
func (s *shadow) save(now time.Time) error {
	s.Alive, s.Coarse, s.Fine = now, s.planner.coarse.next, s.planner.fine.next
	text, err := json.Marshal(&s.state)
	if err != nil {
		return err
	}
	if err := writeFile(filepath.Join(s.cfg.Dir, StateFile), append(text, '\n')); err != nil {
		return fmt.Errorf("the state of the shadow cannot be written: %w", err)
	}
	return nil
}
