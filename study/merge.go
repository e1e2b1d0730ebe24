// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package study

// This file combines the shards of a replay into one run. It uses their records, so that every figure equals that of one process with all
// records.

import (
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"maps"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/moonloop/moonloop/agent"
	"github.com/moonloop/moonloop/agent/clock"
	"github.com/moonloop/moonloop/agent/judge"
	"github.com/moonloop/moonloop/agent/measure"
	"github.com/moonloop/moonloop/agent/report"
	"github.com/moonloop/moonloop/agent/report/page"
	"github.com/moonloop/moonloop/internal/atomicfile"
	"github.com/moonloop/moonloop/internal/heap"
	"github.com/moonloop/moonloop/internal/jsonrows"
	"github.com/moonloop/moonloop/mooncake"
)

// MergeOptions configures [Merge].
type MergeOptions struct {
	Out     string // folder of the merged run
	Force   bool   // replace the results that are there
	NoPage  bool   // draw no page
	Slice   time.Duration
	Tool    string // version of the program
	Command string // command line, without secrets
	Strict  bool   // a degraded or undecided run counts as invalid
	// Name is what the folder of a shard is called in the results. If it is nil, each folder keeps its own name.
	Name func(folder string) string
}

// shard is the content of a shard's folder, without its records.
type shard struct {
	dir string

	Version   string            `json:"schema_version"`
	Run       report.Run        `json:"run"`
	Start     time.Time         `json:"start_time"`
	End       time.Time         `json:"end_time"`
	Cancelled bool              `json:"was_cancelled"`
	Verdict   judge.Verdict     `json:"verdict"`
	SLO       string            `json:"slo"`
	Config    map[string]any    `json:"config"`
	Sources   map[string]string `json:"config_sources"`
	Trace     report.Trace      `json:"trace"`
	Schedule  report.Schedule   `json:"schedule"`
	Shard     *report.Shard     `json:"shard"`
	Telemetry report.Telemetry  `json:"telemetry"`
	Warnings  []string          `json:"warnings"`
	Fidelity  struct {
		Machine report.Machine `json:"machine"`
	} `json:"fidelity"`
	meta *mooncake.Meta // of its records
}

// Merge combines all shards of a replay into one run, and writes it to a folder like that of a run of one process. dirs are the shards'
// folders, or folders that contain them. The run's figures are those of all records together, including each bucket of each histogram. Its
// verdict is the worst of those of the shards and of the whole run. The maximum difference of the shards' clocks is added to the lateness
// of the whole run.
//
// An error names what is missing, duplicate, unfinished, or of another run.
func Merge(dirs []string, opt MergeOptions) (rep *report.Report, err error) {
	if len(dirs) == 0 {
		return nil, errors.New("no folder of a shard is given: name the folders of all shards, or a folder that contains them")
	}
	shards, err := readShards(dirs)
	if err != nil {
		return nil, err
	}
	if err := checkShards(shards); err != nil {
		return nil, err
	}
	folder, err := report.OpenFolder(opt.Out, opt.Force)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, folder.Close()) }()
	for _, s := range shards {
		if same(s.dir, opt.Out) {
			return nil, fmt.Errorf("output directory %s is the folder of shard %s, which would be replaced; choose another one with --out", opt.Out, s.name())
		}
	}
	slo, err := measure.ParseSLO(shards[0].SLO)
	if err != nil {
		return nil, fmt.Errorf("%s: slo: %w", filepath.Join(shards[0].dir, summaryFile), err)
	}
	all := measure.NewAggregate(measure.Options{SLO: slo})
	models, err := mergeRecords(shards, opt.Out, all)
	if err != nil {
		return nil, err
	}
	rep = mergeReports(shards, all.Figures(), models, opt)
	meta := *shards[0].meta
	meta.Rows = rep.Figures().Rows.Total
	err = errors.Join(rep.WriteFiles(opt.Out), meta.Save(filepath.Join(opt.Out, report.RequestsFile)))
	if err == nil && meta.Rows > 0 {
		err = drawMerged(opt)
	}
	return rep, err
}

func drawMerged(opt MergeOptions) error {
	run, err := page.Load(opt.Out, opt.Slice)
	if err != nil {
		return err
	}
	err = run.SaveSheets()
	if !opt.NoPage {
		err = errors.Join(err, run.Save(filepath.Join(opt.Out, page.File)))
	}
	return err
}

func same(a, b string) bool {
	one, errA := os.Stat(a)
	other, errB := os.Stat(b)
	return errA == nil && errB == nil && os.SameFile(one, other)
}

func (s *shard) name() string { return fmt.Sprintf("%d/%d", s.Shard.Index, s.Shard.Of) }

// readShards reads the shards in folders and the folders directly below them, by their index.
func readShards(dirs []string) (shards []*shard, err error) {
	for _, dir := range dirs {
		s, err := readShard(dir)
		if err != nil {
			return nil, err
		}
		if s != nil {
			shards = append(shards, s)
			continue
		}
		entries, err := os.ReadDir(dir)
		if err != nil {
			return nil, fmt.Errorf("the folder of a shard cannot be read: %w; name folders given to `moonloop replay --out`, or a folder that contains them", err)
		}
		found := false
		for _, e := range entries {
			below := filepath.Join(dir, e.Name())
			if info, err := os.Stat(below); err != nil || !info.IsDir() {
				continue
			}
			s, err := readShard(below)
			if err != nil {
				return nil, err
			}
			if s != nil {
				shards, found = append(shards, s), true
			}
		}
		if !found {
			return nil, fmt.Errorf("%s has no %s, and no folder in it has one: no shard wrote its results there; name folders given to `moonloop replay --out`, or a folder that contains them", dir, summaryFile)
		}
	}
	slices.SortStableFunc(shards, func(a, b *shard) int { return a.Shard.Index - b.Shard.Index })
	return shards, nil
}

// readShard returns nil without an error if dir has no results of a run.
func readShard(dir string) (*shard, error) {
	run, err := readRun(dir) // its errors describe problems of a summary
	if run == nil || err != nil {
		return nil, err
	}
	if run.Verdict == noSummary {
		return nil, fmt.Errorf("%s: this shard did not end: it has %s and no %s, so it was killed, or is still running; without it, rows of the trace are missing: resume it with moonloop replay --resume, or replay all shards again", dir, partialFile, summaryFile)
	}
	s := &shard{dir: dir}
	b, err := atomicfile.ReadFile(filepath.Join(dir, summaryFile), page.MaxSummary)
	if err == nil {
		err = json.Unmarshal(b, s)
	}
	if err != nil {
		return nil, fmt.Errorf("%s is not the summary of a shard: %w; name the folder given to `moonloop replay --out`", filepath.Join(dir, summaryFile), jsonrows.Explain(err))
	}
	switch {
	case s.Shard == nil:
		return nil, fmt.Errorf("%s: this run is not a shard: it was made without --shard; leave it out", dir)
	case s.Shard.Of < 1 || s.Shard.Index < 0 || s.Shard.Index >= s.Shard.Of || math.Abs(s.Shard.Zero) > maxInstant:
		return nil, fmt.Errorf("%s: its shard %d/%d with zero_ms %v was not written by a replay; replay it again", filepath.Join(dir, summaryFile), s.Shard.Index, s.Shard.Of, s.Shard.Zero)
	case s.Cancelled:
		return nil, fmt.Errorf("%s: shard %s was interrupted, so requests are missing; replay all shards again", dir, s.name())
	}
	if _, err := os.Stat(filepath.Join(dir, report.RequestsFile)); err != nil {
		return nil, fmt.Errorf("the records of shard %s are not whole: %w; copy the whole folder of the shard", s.name(), err)
	}
	if s.meta, err = mooncake.LoadMeta(filepath.Join(dir, report.RequestsFile)); err == nil && s.meta == nil {
		err = fmt.Errorf("%s is not there; copy the whole folder of the shard", mooncake.MetaName(filepath.Join(dir, report.RequestsFile)))
	}
	return s, err
}

// maxInstant bounds an instant of a run, in ms: 100 years.
const maxInstant = 100 * 365 * 24 * 3600e3

// checkShards returns an error unless the shards are the complete set of shards of one run.
func checkShards(shards []*shard) error {
	first := shards[0]
	for i, s := range shards[1:] {
		if what, a, b := first.differs(s); what != "" {
			return fmt.Errorf("%s and %s are not shards of one run: %s (%v and %v); merge the shards of one run, which differ in --shard alone", first.dir, s.dir, what, a, b)
		}
		if before := shards[i]; before.Shard.Index == s.Shard.Index {
			return fmt.Errorf("%s and %s are both shard %s: a shard counts once; leave one of them out", before.dir, s.dir, s.name())
		}
	}
	if len(shards) < first.Shard.Of {
		const most = 10
		var missing []string
		left := first.Shard.Of - len(shards)
		for i, at := 0, 0; len(missing) < min(most, left); i++ {
			if at < len(shards) && shards[at].Shard.Index == i {
				at++
				continue
			}
			missing = append(missing, fmt.Sprintf("%d/%d", i, first.Shard.Of))
		}
		more := ""
		if left > most {
			more = fmt.Sprintf(" and %d more", left-most)
		}
		return fmt.Errorf("missing: shard %s%s; name the folders of all shards, or replay all shards again", strings.Join(missing, ", "), more)
	}
	return nil
}

// ownSettings are the settings that may differ between the shards of a run: where each runs, what it writes to, and what it queries.
var ownSettings = []string{
	"shard", "trace", "url", "out", "force", "label", "config", "progress", "quarantine", "save-prompts", "xlsx", "parquet", "trace-url", "otlp-endpoint",
	"otlp-protocol", "api-key-file", "api-key-env", "header", "header-env", "ca-file", "cert-file", "key-file", "clock-reference", "wait-ready",
	"no-report-page", "slice", "percentiles", "table", "dataset", "tokenizer",
}

// differs describes in what two shards of different runs differ.
func (s *shard) differs(o *shard) (what string, a, b any) {
	for _, c := range []struct {
		what string
		a, b any
	}{
		{"the number of shards", s.Shard.Of, o.Shard.Of},
		{"the run's id (--run-id, or --start-at for all shards alike)", s.Run.ID, o.Run.ID},
		{"the rows of the trace", digestOf(s.Trace), digestOf(o.Trace)},
		{"the first rows of the trace", s.Shard.Lookahead, o.Shard.Lookahead},
		{"the seed", s.Schedule.Seed, o.Schedule.Seed},
		{"the program's version", s.Run.Version, o.Run.Version},
		{"the endpoint", s.Run.Endpoint, o.Run.Endpoint},
		{"the model", s.Run.Model, o.Run.Model},
		{"the service levels", s.SLO, o.SLO},
	} {
		if c.a != c.b {
			return c.what, c.a, c.b
		}
	}
	one, other := s.Schedule, o.Schedule
	if one.Shard, other.Shard = "", ""; !reflect.DeepEqual(one, other) {
		return "the schedule", fmt.Sprintf("%+v", one), fmt.Sprintf("%+v", other)
	}
	for _, key := range slices.Sorted(maps.Keys(s.Config)) {
		if a, b := s.Config[key], o.Config[key]; !slices.Contains(ownSettings, key) && !reflect.DeepEqual(a, b) {
			return "--" + key, a, b
		}
	}
	if a, b := s.Run.Words, o.Run.Words; (a == nil) != (b == nil) || a != nil && a.Digest != b.Digest {
		return "the words of the prompts", a, b
	}
	if a, b := s.Run.TokenIDs, o.Run.TokenIDs; !reflect.DeepEqual(a, b) {
		return "the token ids of the prompts", a, b
	}
	if a, b := s.Shard.Plan, o.Shard.Plan; a != b {
		return "the schedule that they divided", a, b
	}
	if apart := s.Start.Sub(o.Start).Abs(); apart > time.Millisecond {
		return "the time at which they began; give all of them the same --start-at", s.Start.Format(time.RFC3339Nano), o.Start.Format(time.RFC3339Nano)
	}
	return "", nil, nil
}

func digestOf(t report.Trace) string { return short(t.SeqDigest) + "/" + short(t.ArrivalDigest) }

// source has the remaining records of a shard.
type source struct {
	*shard
	next  *measure.Record
	shift time.Duration // to the clock of the merged records
	pull  func() (*measure.Record, error, bool)
}

var errStopped = errors.New("stopped")

// records returns the records of a folder, and the error that ends them.
func records(dir string) iter.Seq2[*measure.Record, error] {
	return func(yield func(*measure.Record, error) bool) {
		err := report.Records(dir, func(r *measure.Record) error {
			if !yield(r, nil) {
				return errStopped
			}
			return nil
		})
		if err != nil && !errors.Is(err, errStopped) {
			yield(nil, err)
		}
	}
}

// mergeRecords writes the records of all shards in the order of their rows, on one clock, and aggregates them. It counts the rows by model.
func mergeRecords(shards []*shard, out string, all *measure.Aggregate) (models map[string]int64, err error) {
	zero := 0. // the latest one, so that no time becomes negative
	for _, s := range shards {
		zero = max(zero, s.Shard.Zero)
	}
	file, err := report.CreateRequests(out, shards[0].meta)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Abandon() }() // after its Close without effect
	h := heap.New(func(a, b *source) bool { return a.next.Index < b.next.Index })
	for _, s := range shards {
		pull, stop := iter.Pull2(records(s.dir))
		defer stop()
		// Whole microseconds, which the records have, so that no difference of two times changes.
		in := &source{shard: s, shift: time.Duration(math.Round((zero-s.Shard.Zero)*1e3)) * time.Microsecond, pull: pull}
		if more, err := in.advance(); err != nil {
			return nil, err
		} else if more {
			h.Push(in)
		}
	}
	models = make(map[string]int64)
	last, from := int64(-1), ""
	for h.Len() > 0 {
		in := *h.First()
		r := in.next
		if r.Index == last {
			return nil, fmt.Errorf("%s and %s both have row %d: they are not shards of one run; replay all shards again", from, in.dir, r.Index)
		}
		last, from = max(last, r.Index), in.dir
		in.move(r)
		all.Add(r)
		models[r.Model]++
		file.Write(r)
		if more, err := in.advance(); err != nil {
			return nil, err
		} else if more {
			h.FixFirst()
		} else {
			h.Pop()
		}
	}
	return models, file.Close()
}

// advance takes the next record; false at the end.
func (in *source) advance() (bool, error) {
	r, err, more := in.pull()
	in.next = r
	return more, err
}

// move converts the times of a record to the clock of the merged run.
func (in *source) move(r *measure.Record) {
	x := &r.Exchange
	for _, at := range []*time.Duration{&r.Intended, &r.Dispatched, &r.Admitted, &x.Start, &x.Wire, &x.End, &x.FirstEvent, &x.FirstAnswer} {
		if *at > clock.Never {
			*at += in.shift
		}
	}
	for i := range x.At {
		x.At[i] += int64(in.shift)
	}
}

// mergeReports combines the shards' reports into that of one run.
func mergeReports(shards []*shard, f *measure.Figures, models map[string]int64, opt MergeOptions) *report.Report {
	first := shards[0]
	rep := report.New(f)
	rep.Run, rep.Trace, rep.Schedule = first.Run, first.Trace, first.Schedule
	rep.Run.Version, rep.Run.Command, rep.Run.Start, rep.Run.End = opt.Tool, opt.Command, first.Start, first.End
	if rep.Run.Models = nil; len(models) > 1 {
		rep.Run.Models = models
	}
	rep.Run.CPUs, rep.Trace.Rows, rep.Schedule.Shard = 0, 0, ""
	rep.Trace.Filtered = maps.Clone(first.Trace.Filtered)
	delete(rep.Trace.Filtered, "shard")
	n := len(shards)
	rep.Schedule.Concurrency *= n // each has such a maximum
	rep.Schedule.PrefillConcurrency *= n
	rep.Schedule.Warmup *= n
	rep.Merged = &report.Merged{}
	var verdicts []judge.Shard
	var targets []string
	said := make(map[string][]string)
	var texts []string
	for _, s := range shards {
		folder := s.dir
		if opt.Name != nil {
			folder = opt.Name(folder)
		}
		rep.Run.CPUs += s.Run.CPUs
		if !slices.Contains(targets, s.Run.Target) {
			targets = append(targets, s.Run.Target)
		}
		if s.End.After(rep.Run.End) {
			rep.Run.End = s.End
		}
		rep.Trace.Rows += s.Trace.Rows
		rep.Trace.NotReached = max(rep.Trace.NotReached, s.Trace.NotReached)
		rep.Trace.AtLeast = rep.Trace.AtLeast || s.Trace.AtLeast
		mergeMachine(&rep.Machine, s.Fidelity.Machine)
		mergeTelemetry(&rep.Telemetry, s.Telemetry)
		verdicts = append(verdicts, judge.Shard{Name: s.name(), Verdict: s.Verdict})
		rep.Merged.Shards = append(rep.Merged.Shards, report.MergedShard{
			Index: s.Shard.Index, Folder: folder, Rows: s.Trace.Rows, Tokens: s.Shard.Tokens, Verdict: s.Verdict.Class, Clock: s.Shard.Clock,
		})
		for _, text := range s.Warnings {
			if said[text] == nil {
				texts = append(texts, text)
			}
			said[text] = append(said[text], s.name())
		}
	}
	rep.Run.Target = strings.Join(targets, ", ")
	for _, text := range texts {
		if by := said[text]; len(by) == n {
			rep.Warnings = append(rep.Warnings, text)
		} else {
			rep.Warnings = append(rep.Warnings, fmt.Sprintf("%s: %s", few("shard ", by), text))
		}
	}
	asked := func(key string) bool { v := first.Config[key]; return v != nil && v != false && v != "" }
	if rep.NoSteady = asked("steady-state") || asked("steady-from") || asked("steady-to"); rep.NoSteady {
		rep.Warnings = append(rep.Warnings, "the figures are those of the whole run: each shard's summary has the steady state of its own requests")
	}
	for _, key := range slices.Sorted(maps.Keys(first.Config)) {
		if key != "shard" {
			rep.Settings = append(rep.Settings, report.Setting{Name: key, Value: first.Config[key], From: first.Sources[key]})
		}
	}
	rep.Merged.ClocksApart = clocksApart(shards)
	rep.Verdict = judge.Merge(judge.Judge(mergedFacts(rep)), verdicts)
	rep.Missed = agent.Missed(f, goal(first.Config["max-error-rate"], agent.DefaultMaxErrorRate), goal(first.Config["goodput-goal"], 0), f.SLO)
	rep.ExitStatus = judge.ExitCode(rep.Verdict.Class, judge.Ending{GoalsMissed: len(rep.Missed) > 0, Strict: opt.Strict})
	return rep
}

// few lists the first names, and says how many more there are.
func few(what string, names []string) string {
	const most = 3
	if len(names) > most {
		return fmt.Sprintf("%s%s and %d more", what, strings.Join(names[:most], ", "), len(names)-most)
	}
	return what + strings.Join(names, ", ")
}

// goal returns a setting as a number, or fallback if it is not a number.
func goal(setting any, fallback float64) float64 {
	if v, err := strconv.ParseFloat(fmt.Sprint(setting), 64); err == nil {
		return v
	}
	return fallback
}

// mergedFacts are the facts for the verdict on the whole run. Facts about single processes are in the verdicts of the shards.
func mergedFacts(rep *report.Report) judge.Facts {
	facts := judge.FromFigures(rep.Figures())
	facts.Rows, facts.Elapsed, facts.Shards = rep.Trace.Rows, rep.Machine.Elapsed/1e3, len(rep.Merged.Shards) > 1
	if apart := rep.Merged.ClocksApart; apart != nil {
		facts.ClocksApart = judge.Know(*apart)
		facts.LatenessP99.V += *apart
		facts.LatenessMax.V += *apart
	}
	return facts
}

// clocksApart returns the maximum difference between two clocks, in ms; nil if not all were compared with the same reference.
func clocksApart(shards []*shard) *float64 {
	if len(shards) == 1 {
		return new(float64)
	}
	low, high := math.Inf(1), math.Inf(-1)
	for _, s := range shards {
		c := s.Shard.Clock
		if with := shards[0].Shard.Clock; c == nil || with == nil || c.Reference != with.Reference {
			return nil
		}
		low, high = min(low, c.Start-c.Uncertain, c.End-c.Uncertain), max(high, c.Start+c.Uncertain, c.End+c.Uncertain)
	}
	apart := high - low
	return &apart
}

// mergeMachine adds a shard's machine: counts are added, other values are the worst.
func mergeMachine(m *report.Machine, o report.Machine) {
	worst := func(a, b *float64) *float64 {
		if a == nil || b != nil && math.Abs(*b) > math.Abs(*a) {
			return b
		}
		return a
	}
	m.Elapsed = max(m.Elapsed, o.Elapsed)
	m.Hiccups += o.Hiccups
	m.HiccupTime, m.HiccupMax = max(m.HiccupTime, o.HiccupTime), max(m.HiccupMax, o.HiccupMax)
	m.GCPauses += o.GCPauses
	m.GCPauseTime, m.GCPauseMax = max(m.GCPauseTime, o.GCPauseTime), max(m.GCPauseMax, o.GCPauseMax)
	m.CPUShare, m.Throttled, m.ClockStep = worst(m.CPUShare, o.CPUShare), worst(m.Throttled, o.Throttled), worst(m.ClockStep, o.ClockStep)
	m.MaxRSS = max(m.MaxRSS, o.MaxRSS)
	m.ReaderStalls += o.ReaderStalls
}

func mergeTelemetry(t *report.Telemetry, o report.Telemetry) {
	t.Enabled = t.Enabled || o.Enabled
	t.SpansEnded += o.SpansEnded
	t.SpansAccepted += o.SpansAccepted
	for why, n := range o.SpansLost {
		if t.SpansLost == nil {
			t.SpansLost = make(map[string]int64)
		}
		t.SpansLost[why] += n
	}
	t.SpansSampled += o.SpansSampled
	t.EventsDropped += o.EventsDropped
	t.MetricExports += o.MetricExports
	t.MetricExportsFailed += o.MetricExportsFailed
}
