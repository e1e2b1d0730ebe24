// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package shadow

// This file records the result of each row, by windows of production, and makes the report of each window.

import (
	"cmp"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/moonloop/moonloop/agent/measure"
	"github.com/moonloop/moonloop/mooncake"
	"github.com/moonloop/moonloop/study"
)

// ReportSchema is the version of [Report].
const ReportSchema = 1

// Report describes the results of the rows of a window of production.
type Report struct {
	Schema int       `json:"schema"`
	From   time.Time `json:"from"` // event time
	To     time.Time `json:"to"`
	// Rows is the number of the window's rows, and of late rows that its compilation found. Each is counted in Outcomes, in Dropped, or as
	// InFlight.
	Rows     int64            `json:"rows"`
	Outcomes map[string]int64 `json:"outcomes"` // served, failed, cancelled, skipped
	Reasons  map[string]int64 `json:"reasons"`  // of those that were not served
	Dropped  map[string]int64 `json:"dropped"`  // late, rate, lag, interrupted, not_running
	InFlight int64            `json:"in_flight"`
	// Left counts what production's spans had and no row has, such as failed requests.
	Left []mooncake.Dropped `json:"left_out,omitempty"`
	// Lag is the time from a row's event time + delay to its dispatch, in ms; nil if no row was sent.
	Lag *Lag `json:"lag_ms"`
	// Rates compare the seconds of production with those of the replay, minus the delay.
	Rates Rates `json:"seconds"`
	// Twin compares the replay with production over the last windows; nil if nothing is known of production.
	Twin *study.Twin `json:"twin"`
	// Totals cover all windows so far.
	Totals Totals `json:"totals"`
}

// Lag has percentiles by nearest rank.
type Lag struct {
	P50 float64 `json:"p50"`
	P99 float64 `json:"p99"`
	Max float64 `json:"max"`
}

// Rates cover the rows that were sent, and the seconds of their event times.
type Rates struct {
	Seconds int64 `json:"seconds"` // with rows
	Equal   int64 `json:"equal"`   // with the same number of rows in the replay as in production
	// Moved is the number of rows that the replay lacks in the seconds in which it has fewer rows than production; other seconds have more.
	Moved int64 `json:"rows_moved"`
}

// Totals are counts since the shadow began, over all of its processes.
type Totals struct {
	Rows     int64            `json:"rows"`
	Outcomes map[string]int64 `json:"outcomes"`
	Dropped  map[string]int64 `json:"dropped"`
	InFlight int64            `json:"in_flight"` // when their window was reported
	Left     map[string]int64 `json:"left_out"`  // of windows that were compiled
	Journals losses           `json:"journals"`
}

// window is a window that is not reported yet.
type window struct {
	rows   int64
	open   map[mooncake.SpanRef]float64 // rows without a result, and their times in ms
	report Report
	lags   []float64
	// rows that were sent, counted by the second of their event time, and by the second in which they were sent
	production, replay map[int64]int64
	twin               []study.TwinRow
}

// books are used by one goroutine.
type books struct {
	cfg     *Config
	windows map[int64]*window
	twin    map[int64][]study.TwinRow // of windows that are reported
	// unsent are the open rows that a replay had not sent when it was stopped.
	unsent map[mooncake.SpanRef]bool
}

func newBooks(cfg *Config) *books {
	return &books{cfg: cfg, windows: map[int64]*window{}, twin: map[int64][]study.TwinRow{}, unsent: map[mooncake.SpanRef]bool{}}
}

// add opens a window, with the rows of its plan.
func (b *books) add(in int64, rows []*mooncake.Row, left dropped) {
	w := &window{rows: int64(len(rows)), open: map[mooncake.SpanRef]float64{}, production: map[int64]int64{}, replay: map[int64]int64{}}
	w.report = Report{
		Schema: ReportSchema, From: b.cfg.begin(in).UTC(), To: b.cfg.begin(in + 1).UTC(), Rows: w.rows, Left: left,
		Outcomes: map[string]int64{}, Reasons: map[string]int64{}, Dropped: map[string]int64{},
	}
	for _, row := range rows {
		w.open[row.OTel] = row.Timestamp.V
	}
	b.windows[in] = w
}

// of returns the window in which a row is open; nil if there is none: it was reported, or the row has a result already.
func (b *books) of(row mooncake.SpanRef) *window {
	for _, w := range b.windows {
		if _, ok := w.open[row]; ok {
			return w
		}
	}
	return nil
}

// drop records a row that is not replayed.
func (b *books) drop(row mooncake.SpanRef, reason string) {
	if w := b.of(row); w != nil {
		delete(w.open, row)
		w.report.Dropped[reason]++
	}
}

// result is the part of a line of requests.jsonl that the books need, in addition to the part that the comparison needs.
type result struct {
	Timestamp float64 `json:"timestamp"`
	OTel      struct {
		Trace string `json:"trace_id"`
		Span  string `json:"span_id"`
	} `json:"otel"`
	Result struct {
		Outcome  string   `json:"outcome"`
		Reason   string   `json:"reason"`
		Lateness *float64 `json:"lateness_ms"`
	} `json:"result"`
}

// spanOf reads the ids of a span.
func spanOf(trace, span string) (s mooncake.SpanRef, err error) {
	if len(trace) != 2*len(s.TraceID) || len(span) != 2*len(s.SpanID) {
		return s, fmt.Errorf("ids of %d and %d digits name no span", len(trace), len(span))
	}
	if _, err = hex.Decode(s.TraceID[:], []byte(trace)); err == nil {
		_, err = hex.Decode(s.SpanID[:], []byte(span))
	}
	return s, err
}

// ended records a line of requests.jsonl, and returns its row. A row that a replay had not sent when it was stopped stays open.
func (b *books) ended(line []byte) (row mooncake.SpanRef, err error) {
	var r result
	if err := json.Unmarshal(line, &r); err != nil {
		return row, err
	}
	if row, err = spanOf(r.OTel.Trace, r.OTel.Span); err != nil {
		return row, err
	}
	skipped := r.Result.Outcome == measure.Skipped.String()
	w := b.of(row)
	if w == nil {
		return row, nil
	}
	if skipped && r.Result.Reason == measure.SkipInterrupted {
		b.unsent[row] = true
		return row, nil
	}
	delete(w.open, row)
	w.report.Outcomes[r.Result.Outcome]++
	if r.Result.Reason != "" {
		w.report.Reasons[r.Result.Reason]++
	}
	if skipped {
		return row, nil
	}
	lag := max(0, or(r.Result.Lateness))
	w.lags = append(w.lags, lag)
	w.production[int64(r.Timestamp/1e3)]++
	w.replay[int64((r.Timestamp+lag)/1e3)]++
	one, err := study.ParseTwinRow(line)
	if err == nil {
		w.twin = append(w.twin, one)
	}
	return row, err
}

func or(v *float64) float64 {
	if v == nil {
		return 0
	}
	return *v
}

// due returns the oldest window if it can be reported: it has ended in replay time and no row of it is open, or the waiting time after its
// end is over.
func (b *books) due(now time.Time) (in int64, ok bool) {
	if len(b.windows) == 0 {
		return 0, false
	}
	in = slices.Min(slices.Collect(maps.Keys(b.windows)))
	end := b.cfg.begin(in + 1).Add(b.cfg.Delay)
	return in, len(b.windows[in].open) == 0 && !now.Before(end) || now.After(end.Add(settle))
}

// close makes the report of a window, and adds it to the totals.
func (b *books) close(in int64, totals *Totals) (*Report, error) {
	w := b.windows[in]
	delete(b.windows, in)
	r := &w.report
	r.InFlight = int64(len(w.open))
	if n := len(w.lags); n > 0 {
		slices.Sort(w.lags)
		rank := func(q float64) float64 { return w.lags[max(0, int(math.Ceil(q*float64(n)))-1)] }
		r.Lag = &Lag{rank(0.5), rank(0.99), w.lags[n-1]}
	}
	for second, n := range w.production {
		r.Rates.Seconds++
		if w.replay[second] == n {
			r.Rates.Equal++
		}
		r.Rates.Moved += max(0, n-w.replay[second])
	}
	b.twin[in] = w.twin
	maps.DeleteFunc(b.twin, func(old int64, _ []study.TwinRow) bool { return old <= in-b.cfg.windows(b.cfg.TwinOver) })
	var rows []study.TwinRow
	for _, old := range slices.Sorted(maps.Keys(b.twin)) {
		rows = append(rows, b.twin[old]...)
	}
	var err error
	if study.AnyObserved(rows) {
		if r.Twin, err = study.TwinOf(rows, b.cfg.Tolerances); err != nil {
			return nil, err
		}
		r.Twin.Distributions, r.Twin.Parts = nil, nil // a line has no room for them
	}
	add(&totals.Outcomes, r.Outcomes)
	add(&totals.Dropped, r.Dropped)
	totals.Rows += r.Rows
	totals.InFlight += r.InFlight
	r.Totals = *totals
	r.Totals.Outcomes, r.Totals.Dropped, r.Totals.Left = maps.Clone(totals.Outcomes), maps.Clone(totals.Dropped), maps.Clone(totals.Left)
	return r, nil
}

func add(to *map[string]int64, counts map[string]int64) {
	if *to == nil {
		*to = map[string]int64{}
	}
	for name, n := range counts {
		(*to)[name] += n
	}
}

// String describes a window in one line.
func (r *Report) String() string {
	sent := ""
	if r.Lag != nil { // otherwise nothing was sent, and there is nothing to compare with production
		sent = fmt.Sprintf("lag p99 %.1f ms, max %.1f ms · %d of %d seconds as in production", r.Lag.P99, r.Lag.Max, r.Rates.Equal,
			r.Rates.Seconds)
	}
	text := fmt.Sprintf("%s  %d rows: %s", r.From.Format("15:04:05"), r.Rows, account(r.Outcomes, sent, r.Dropped, r.InFlight))
	if r.Twin != nil {
		text += " · twin: " + string(r.Twin.Answer)
	}
	return text
}

// String lists the counts.
func (t Totals) String() string { return account(t.Outcomes, "", t.Dropped, t.InFlight) }

// account lists what became of rows. sent describes those that were sent; it may be empty.
func account(outcomes map[string]int64, sent string, dropped map[string]int64, inFlight int64) string {
	ended, left, open := counted(outcomes), counted(dropped), ""
	if left != "" {
		left = "dropped: " + left
	}
	if inFlight > 0 {
		open = fmt.Sprintf("in flight %d", inFlight)
	} else if ended == "" {
		ended = "none sent"
	}
	empty := func(part string) bool { return part == "" }
	return strings.Join(slices.DeleteFunc([]string{ended, sent, left, open}, empty), " · ")
}

// counted lists counts by name.
func counted(counts map[string]int64) string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(counts)) {
		parts = append(parts, fmt.Sprintf("%s %d", name, counts[name]))
	}
	return strings.Join(parts, ", ")
}

// drop is a row of a plan that is not replayed: a line of the plan's file of dropped rows.
type drop struct {
	Trace  string `json:"trace_id"`
	Span   string `json:"span_id"`
	Reason string `json:"reason"`
}

const dropSuffix = ".dropped"

func (c *Config) dropFile(in int64) string {
	return filepath.Join(c.Dir, plansFolder, stamp(c.begin(in))+dropSuffix)
}

// noteDrop appends a row to its plan's file of dropped rows.
func (c *Config) noteDrop(in int64, row mooncake.SpanRef, reason string) error {
	line, err := json.Marshal(drop{hex.EncodeToString(row.TraceID[:]), hex.EncodeToString(row.SpanID[:]), reason})
	if err != nil {
		return err
	}
	f, err := os.OpenFile(c.dropFile(in), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(append(line, '\n'))
	return cmp.Or(err, f.Close())
}

// readDrops records the dropped rows that the file of a plan names.
func (b *books) readDrops(in int64) error {
	return eachLine(b.cfg.dropFile(in), func(line []byte) error {
		var d drop
		if err := json.Unmarshal(line, &d); err != nil {
			return err
		}
		row, err := spanOf(d.Trace, d.Span)
		if err == nil {
			b.drop(row, d.Reason)
		}
		return err
	})
}
