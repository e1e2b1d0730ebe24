// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package agent

// This file continues a run that was cut short: by a kill, a power cut, an interrupt, or its own error limit. The directory has its
// configuration, the rows that had been sent, and their results (report.JournalFile, report.PartialFile). The trace is read from its
// beginning again, because later rows depend on earlier ones. Rows that were over get their position in the schedule, but are not sent
// again.

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/moonloop/moonloop/agent/clock"
	"github.com/moonloop/moonloop/agent/measure"
	"github.com/moonloop/moonloop/agent/prompt"
	"github.com/moonloop/moonloop/agent/report"
	"github.com/moonloop/moonloop/agent/schedule"
	"github.com/moonloop/moonloop/internal/term"
	"github.com/moonloop/moonloop/mooncake"
)

// past is what a run that was cut short has left in its directory. It is nil for a new run.
type past struct {
	journal *report.Journaled
	kept    *report.Kept
	parts   []report.Part // including the resumed one, once that has begun

	// From the records of rows that will not be sent again:
	figures *measure.Aggregate
	models  map[string]int64
	view    View
	cache   predictor
	lost    lostRows

	over     fates
	inFlight map[int64]noted // rows that had been sent and have no record
	notSent  []int64         // rows that were about to be sent, but have a record that they were not
	left     int             // number of rows that were over and that the source has not yielded yet
	last     time.Duration   // the latest known time, on the clock of the records
	broken   []brokenOff     // rows in flight, as yielded by the source
}

// noted is a row that was about to be sent.
type noted struct {
	at   time.Duration // on the clock of the records
	part int
}

// brokenOff is the item of a row that was in flight.
type brokenOff struct {
	*schedule.Item
	noted
}

// lostRows are the rows that were in flight when a run was cut short.
type lostRows struct {
	count int64
	first []int64 // up to maxNamedRows of them
}

// maxNamedRows is the maximum number of rows that a report lists.
const maxNamedRows = 100

func (l *lostRows) add(row int64) {
	if l.count++; len(l.first) < maxNamedRows {
		l.first = append(l.first, row)
	}
}

// openPast reads what a run has left in its directory. It returns nil for a new run.
func openPast(cfg Config) (*past, error) {
	if !cfg.Resume {
		return nil, nil //nolint:nilnil // nil means no past
	}
	p := &past{
		figures: measure.NewAggregate(measure.Options{SLO: cfg.SLO}), models: make(map[string]int64), last: clock.Never,
		cache: predictor{blocks: blocks{fine: 1}}, over: make(fates), inFlight: make(map[int64]noted),
	}
	unsent := make(map[int64]bool)
	var err error
	p.kept, err = report.ReadKept(cfg.Out, func(r *measure.Record) (bool, error) {
		if r.Outcome == measure.Skipped && notSent(r.Reason) {
			unsent[r.Index] = true
			return false, nil
		}
		return true, p.addRecord(r)
	})
	if err != nil {
		return nil, err
	}
	p.journal, err = report.ReadJournal(cfg.Out, func(row int64, at time.Duration, part int) {
		p.last = max(p.last, at)
		if _, over := p.over.get(row); !over {
			p.inFlight[row] = noted{at, part}
		}
	}, func(row int64) { delete(p.inFlight, row) })
	if err != nil {
		return nil, err
	}
	for row := range p.inFlight {
		if unsent[row] {
			delete(p.inFlight, row)
			p.notSent = append(p.notSent, row)
		}
	}
	slices.Sort(p.notSent)
	p.parts = p.journal.Parts
	if len(p.parts) == 0 && p.left > 0 {
		return nil, fmt.Errorf("output directory %s: its records and its %s do not belong to one run; start the run again, with --force", cfg.Out, report.JournalFile)
	}
	p.left += len(p.inFlight)
	return p, nil
}

// notSent reports whether rows that were skipped for this reason are sent by the resumed part, because only the break prevented it.
func notSent(skipped string) bool {
	return skipped == measure.SkipInterrupted || skipped == measure.SkipAborted
}

// addRecord adds the record of a row that will not be sent again.
func (p *past) addRecord(r *measure.Record) error {
	if r.Index < 0 {
		return fmt.Errorf("row %d: a trace has none below 0", r.Index)
	}
	if _, twice := p.over.get(r.Index); twice {
		return fmt.Errorf("row %d has a second record", r.Index)
	}
	end := r.Dispatched
	if r.Sent {
		end = max(end, r.Exchange.End)
	}
	p.last = max(p.last, end)
	p.over.set(r.Index, end, endingOf(r))
	p.left++
	if r.Outcome == measure.Cancelled && r.Reason == measure.CancelBroken {
		p.lost.add(r.Index)
	}
	p.figures.Add(r)
	countModel(p.models, r.Model)
	p.cache.learn(r)
	p.view.count(r)
	return nil
}

// cut returns the position in the schedule at which the run was cut short, in replay time: that of the last known event.
func (p *past) cut() time.Duration {
	if p == nil || len(p.journal.Parts) == 0 {
		return 0
	}
	last := p.journal.Parts[len(p.journal.Parts)-1]
	return max(0, p.last-mooncake.Duration(last.Zero), mooncake.Duration(last.From))
}

// shift returns what is added to times of the resumed part, to convert them to the clock of the records.
func (p *past) shift(zero time.Duration) time.Duration {
	if p == nil || len(p.journal.Parts) == 0 {
		return 0
	}
	return p.zero() - zero
}

// check returns an error if the trace or the configuration differs from that of the run.
func (p *past) check(b report.Beginning, said *notices) error {
	if p == nil {
		return nil
	}
	was := p.journal.Beginning
	if was.Checksum != "" && b.Checksum != "" && was.Checksum != b.Checksum || was.Lookahead != b.Lookahead {
		return fmt.Errorf("trace %s: it is not the trace that the run began with (%s): name that one, unchanged", b.Trace.Name, was.Trace.Name)
	}
	for _, pair := range [][2]any{{was.Schedule, b.Schedule}, {identity(was), identity(b)}} {
		if what := firstDifference(pair[0], pair[1]); what != "" {
			return fmt.Errorf("the run cannot be resumed: it began with %s; a resumed run keeps its settings", what)
		}
	}
	if was.Run.Target != b.Run.Target {
		said.warn("the run began with the engine at %s and continues with that at %s", was.Run.Target, b.Run.Target)
	}
	if was.Run.Version != b.Run.Version {
		said.warn("the run began with version %s of the program and continues with %s", was.Run.Version, b.Run.Version)
	}
	return nil
}

// restoreSettings gives the run the command and the settings with which it began, because those given to resume it are incomplete.
func (p *past) restoreSettings(of *plan) {
	if p == nil {
		return
	}
	was := p.journal.Beginning
	of.run.Command, of.run.Labels, of.settings = was.Run.Command, was.Run.Labels, nil
	for _, name := range slices.Sorted(maps.Keys(was.Config)) {
		of.settings = append(of.settings, report.Setting{Name: name, Value: was.Config[name], From: was.Sources[name]})
	}
}

// identity returns what decides which bytes are sent for a row, as far as it is known.
func identity(b report.Beginning) any {
	return struct {
		Endpoint string           `json:"endpoint"`
		Model    string           `json:"model"`
		Words    string           `json:"digest of words"`
		IDs      *report.TokenIDs `json:"token ids"`
		Dataset  string           `json:"digest of the dataset"`
		Block    int              `json:"block size"`
		Sessions string           `json:"session mode"`
		Unit     string           `json:"unit of time"`
	}{b.Run.Endpoint, b.Run.Model, digestOf(b.Run.Words), b.Run.TokenIDs, datasetDigest(b.Run.Dataset), b.Trace.BlockSize, b.Trace.SessionMode, b.Trace.Unit}
}

func digestOf(w *report.Words) string {
	if w == nil {
		return ""
	}
	return w.Digest
}

func datasetDigest(d *report.Dataset) string {
	if d == nil {
		return ""
	}
	return d.Digest
}

// firstDifference describes the first member in which two values differ, in JSON: "speedup 2, not 4".
func firstDifference(was, is any) string {
	before, now := jsonMembers(was), jsonMembers(is)
	names := slices.Sorted(maps.Keys(before))
	for name := range now {
		if _, had := before[name]; !had {
			names = append(names, name)
		}
	}
	said := func(value json.RawMessage) string { return cmp.Or(string(value), "none") }
	for _, name := range names {
		if a, b := said(before[name]), said(now[name]); a != b {
			return fmt.Sprintf("%s %s, not %s", strings.ReplaceAll(name, "_", " "), a, b)
		}
	}
	return ""
}

func jsonMembers(value any) (members map[string]json.RawMessage) {
	text, _ := json.Marshal(value) // it was written as JSON before
	_ = json.Unmarshal(text, &members)
	return members
}

// forward reads the rows of the source that were over, and sets their positions in the schedule. It returns the rest of the source.
func (p *past) forward(ctx context.Context, d *dispatcher, src schedule.Source) (schedule.Source, error) {
	if p == nil {
		return src, nil
	}
	rest := &unsentRows{Source: src}
	cut := p.cut()
	for zero := p.zero(); p.left > 0; {
		it, err := src.Next()
		switch {
		case errors.Is(err, io.EOF):
			return nil, fmt.Errorf("the run cannot be resumed: %d rows that it sent are no longer in the schedule; name the trace and the settings that it began with", p.left)
		case err != nil:
			return nil, err
		case ctx.Err() != nil:
			return nil, errors.New("interrupted before the run continued; it can still be resumed")
		}
		if f, over := p.over.get(it.Index); over {
			p.left--
			d.pass(it, f.end-zero, f.of(d.delta))
		} else if n, is := p.inFlight[it.Index]; is {
			p.left--
			p.broken = append(p.broken, brokenOff{it, n})
			d.pass(it, cut, schedule.Over)
		} else if rest.items = append(rest.items, it); len(rest.items) > maxUnsent {
			return nil, fmt.Errorf("the run cannot be resumed: more than %d of the rows before the last one that it sent were not sent; its folder is damaged", maxUnsent)
		} else {
			d.sched.Defer(it)
		}
	}
	return rest, nil
}

// maxUnsent is the maximum number of rows that are held until the schedule begins. A scheduler holds fewer.
const maxUnsent = 1 << 18

// zero returns the start of the schedule on the clock of the records.
func (p *past) zero() time.Duration {
	if len(p.journal.Parts) == 0 {
		return 0
	}
	return mooncake.Duration(p.journal.Parts[0].Zero)
}

// pass takes an item that was over to its place: in the schedule, in its session and in its graph.
func (d *dispatcher) pass(it *schedule.Item, end time.Duration, fate schedule.Fate) {
	d.sched.Pass(it, end, fate)
	d.replies.Lose(it.Index, it.Row)
	d.engines.release(d.engines.pick(it.Row), nil) // so that later rows are sent to the same engines as without the break
	if !d.delta || it.Session == nil || it.Row.WaitFor != nil || fate != schedule.Over {
		return
	}
	// Later turns contain the earlier ones. The engine's replies are lost, so they contain the same number of invented words.
	c := conversationSoFar(it)
	if c.history == nil {
		c.history = new(prompt.History)
		it.Session.Data = c
	}
	asTurn(it.Row, c.history)
	built, err := d.builder.Build(it.Index, it.Row, c.history)
	if err != nil || built.Skip {
		return // later turns report that themselves
	}
	if text, err := d.builder.Forgotten(it.Index, built.OutputTokens); err == nil {
		c.history.Append(it.Row, built, text, nil)
	}
}

// unsentRows is a source that first yields the rows that have been read and were not over, and then those of another source.
type unsentRows struct {
	items []*schedule.Item
	schedule.Source
}

// Next yields the next row.
func (u *unsentRows) Next() (*schedule.Item, error) {
	if len(u.items) == 0 {
		return u.Source.Next()
	}
	it := u.items[0]
	u.items[0] = nil
	u.items = u.items[1:]
	return it, nil
}

// addTo adds the rows that were over to a live view, which nobody reads yet. They are not part of its first second.
func (p *past) addTo(l *Live) {
	if p == nil {
		return
	}
	was, v := p.view, &l.view
	v.Served, v.Failed, v.Skipped, v.Cancelled, v.Disconnected = was.Served, was.Failed, was.Skipped, was.Cancelled, was.Disconnected
	v.Due = was.done() - was.Skipped
	v.Sent, v.Offset, v.Errors = v.Due, p.cut(), was.Errors
	v.Cached, v.Predicted, v.Prompt = was.Cached, was.Predicted, was.Prompt
	l.pulse.before = *v
}

// submitBroken records the rows that were in flight: they count as cancelled, like those in flight at an interrupt.
func (p *past) submitBroken(d *dispatcher) {
	if p == nil {
		return
	}
	for _, b := range p.broken {
		at := p.parts[b.part].Wall(b.at).Sub(d.clk.Start())
		rec := d.newRecord(b.Item)
		rec.Outcome, rec.Reason, rec.Scheduled = measure.Cancelled, measure.CancelBroken, false
		rec.Message = "it had been sent, or was about to be, when the run was cut short; its outcome is not known"
		rec.Intended, rec.Dispatched, rec.Admitted = at, at, at
		p.lost.add(b.Index)
		d.recorder.in <- recorded{rec, d.tel.StartRequest(conversationSoFar(b.Item).span, b.Row, at), b.at - at}
	}
	p.broken, p.inFlight = nil, nil
}

// begin records that the part begins, and warns about the consequences of the break before it.
func (p *past) begin(clk clock.Clock, j *report.Journal, zero, begin time.Duration, said *notices) error {
	part := report.Part{Start: clk.Wall(begin), From: clock.Millis(begin - zero), Zero: clock.Millis(zero)}
	if p == nil {
		return j.Begin(part, 0)
	}
	if len(p.journal.Parts) > 0 {
		part.Zero, part.NotSent = p.journal.Parts[0].Zero, p.notSent
	}
	p.parts = append(slices.Clone(p.journal.Parts), part)
	if err := j.Begin(part, p.shift(zero)); err != nil {
		return err
	}
	p.warn(said)
	return nil
}

// warn describes the consequences of the break.
func (p *past) warn(said *notices) {
	n := len(p.parts)
	if n < 2 {
		return
	}
	last, now := p.parts[n-2], p.parts[n-1]
	broke := last.Wall(mooncake.Duration(now.Zero + now.From))
	said.warn("the run was cut short at %.3f s of the schedule, at %s, and resumes there %s later: meanwhile the engine's cache may have lost what earlier rows left in it; it then reports fewer cached tokens than predicted",
		now.From/1e3, broke.UTC().Format(time.RFC3339), now.Start.Sub(broke).Round(time.Millisecond))
	if !last.SameBoot() {
		said.warn("the machine has been restarted since the run was cut short, or is another one: requests of the last half minute may be missing on its disk, and are then sent again without notice")
	}
}

// addParts adds the parts to the report.
func (p *past) addParts(rep *report.Report, said *notices) {
	if p == nil || len(p.parts) < 2 {
		return
	}
	r := &report.Resumed{Zero: clock.Millis(p.zero()), InFlight: p.lost.count, InFlightRows: p.lost.first}
	for i, part := range p.parts {
		of := report.RunPart{Start: part.Start, From: part.From}
		if i > 0 {
			before := &r.Parts[i-1]
			before.To = part.From
			before.End = p.parts[i-1].Wall(mooncake.Duration(part.Zero + part.From))
			of.Gap = clock.Millis(part.Start.Sub(before.End))
		}
		r.Parts = append(r.Parts, of)
	}
	end := &r.Parts[len(r.Parts)-1]
	end.End = rep.Run.End
	end.To = max(end.From, end.From+clock.Millis(end.End.Sub(end.Start)))
	rep.Resumed, rep.Run.Start = r, p.parts[0].Start
	if p.lost.count > 0 {
		said.warn("%s were in flight when the run was cut short and were not sent again; their records say cancelled, %s: %s",
			term.Counted(p.lost.count, "rows"), measure.CancelBroken, p.lost)
	}
}

func (l lostRows) String() string {
	names := make([]string, 0, 11)
	for _, row := range l.first[:min(len(l.first), 10)] {
		names = append(names, strconv.FormatInt(row, 10))
	}
	text := "rows " + strings.Join(names, ", ")
	if more := l.count - int64(len(names)); more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// breaks returns how often the run was cut short.
func (p *past) breaks() int {
	if p == nil {
		return 0
	}
	return max(0, len(p.parts)-1)
}

// beginning returns a journal's description of a run.
func beginning(p plan, in *input, checksum string) report.Beginning {
	b := report.Beginning{Run: p.run, Trace: p.trace, Schedule: p.order, Checksum: checksum, Lookahead: fmt.Sprintf("%016x", in.stream.Info().Fingerprint)}
	b.Config, b.Sources = report.SettingsByName(p.settings)
	return b
}

// checksum computes the trace's checksum in the background, if the run can be resumed. The returned function waits for it.
func checksum(ctx context.Context, trace *mooncake.Trace, out string) func() (string, error) {
	if out == "" {
		return func() (string, error) { return "", nil }
	}
	type result struct {
		sum string
		err error
	}
	done := make(chan result, 1)
	go func() {
		sum, err := trace.Checksum(ctx)
		done <- result{sum, err}
	}()
	return func() (string, error) { r := <-done; return r.sum, r.err }
}

// fates record for rows, by index, when and how they ended. A row uses eight bytes; one that is far from all others uses two thousand.
type fates map[int64]*[fatesPage]int64

const (
	fatesPage = 256
	set       = 1 << 62 // set for a row that is known
)

// fate is how a row ended.
type fate struct {
	end time.Duration // on the clock of the records; 0 if nothing was sent
	how manner
}

type manner int64

const (
	served   manner = iota
	harmless        // it blocks only rows that need its reply
	unserved        // rows after it are not sent
	pastEnd         // it was due after the end
)

// of returns the fate for the scheduler.
func (f fate) of(delta bool) schedule.Fate {
	switch {
	case f.how == served, f.how == harmless && !delta:
		return schedule.Over
	case f.how == pastEnd:
		return schedule.PastTheEnd
	}
	return schedule.Unserved
}

// endingOf returns how a row of an earlier part ended.
func endingOf(r *measure.Record) manner {
	switch {
	case r.Outcome == measure.Served, r.Outcome == measure.Cancelled: // requests in flight ended with the part, not by the engine
		return served
	case r.Outcome == measure.Disconnected, r.Outcome == measure.Skipped && r.Reason == measure.SkipTooShort:
		return harmless
	case r.Outcome == measure.Skipped && r.Reason == measure.SkipDuration:
		return pastEnd
	}
	return unserved
}

func (f fates) set(row int64, end time.Duration, how manner) {
	page := f[row/fatesPage]
	if page == nil {
		page = new([fatesPage]int64)
		f[row/fatesPage] = page
	}
	page[row%fatesPage] = set | int64(max(0, min(end, set>>3)))<<2 | int64(how)
}

func (f fates) get(row int64) (fate, bool) {
	page := f[row/fatesPage]
	if page == nil || page[row%fatesPage] == 0 {
		return fate{}, false
	}
	v := page[row%fatesPage] &^ set
	return fate{time.Duration(v >> 2), manner(v & 3)}, true
}
