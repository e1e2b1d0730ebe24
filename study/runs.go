// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package study

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/moonloop/moonloop/agent/report"
	"github.com/moonloop/moonloop/agent/report/lines"
	"github.com/moonloop/moonloop/agent/report/page"
	"github.com/moonloop/moonloop/internal/atomicfile"
	"github.com/moonloop/moonloop/internal/jsonrows"
)

const (
	summaryFile = report.SummaryJSON
	partialFile = report.PartialFile // of a run that is in progress, or was killed
)

// noSummary is used as the verdict of a run that did not end.
const noSummary = "no summary"

// ValidVerdict is the verdict of a run that counts as evidence.
const ValidVerdict = "valid"

// Run has the parts of a replay that a comparison needs: its figures, its verdict, and the trace that it replayed.
type Run struct {
	Dir     string
	Start   time.Time
	Verdict string // class of the verdict; "no summary" for a run that did not end
	// Reasons are the metrics that made the verdict worse than valid.
	Reasons []string

	// warm is the share of the prompt tokens that the engine had cached although no earlier request of the run contained them.
	warm float64

	figures  map[string]map[string]float64 // by tag and statistic
	units    map[string]string             // by tag
	trace    traceIdentity
	steps    []string       // names of the transformations of the trace
	schedule map[string]any // how the trace was sent; the seed only if it determines times, not only words
	// cut says that the run ended early and does not count as evidence, so that it may have fewer rows than the others.
	cut  bool
	rows *string // its rowsDigest; nil until it is needed
}

// traceIdentity identifies the workload of a run. Equal identities mean the same requests.
type traceIdentity struct {
	Rows    int64  `json:"rows"`
	Seq     string `json:"seq_digest"`
	Tree    string `json:"tree_digest"`
	Arrival string `json:"arrival_digest"`
}

// ReadRuns reads the replay whose results are in dir, or else each replay in a folder directly below dir, by start time.
//
// An error names the file, the problem and what to do. A run without a summary is not an error: its verdict says so.
func ReadRuns(dir string) ([]*Run, error) {
	if run, err := readRun(dir); run != nil || err != nil {
		return []*Run{run}, err
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("the folder of a run cannot be read: %w; name a folder given to `moonloop replay --out`, or one that has several of them", err)
	}
	var runs []*Run
	for _, e := range entries {
		below := filepath.Join(dir, e.Name())
		if info, err := os.Stat(below); err != nil || !info.IsDir() {
			continue
		}
		run, err := readRun(below)
		if err != nil {
			return nil, err
		}
		if run != nil {
			runs = append(runs, run)
		}
	}
	if len(runs) == 0 {
		return nil, fmt.Errorf("%s has no %s, and no folder in it has one: no replay wrote its results there; name a folder given to `moonloop replay --out`, or one that has several of them", dir, summaryFile)
	}
	slices.SortStableFunc(runs, func(a, b *Run) int { return a.Start.Compare(b.Start) })
	return runs, nil
}

// readRun returns nil without an error if dir has no results of a run.
func readRun(dir string) (*Run, error) {
	name := filepath.Join(dir, summaryFile)
	b, err := atomicfile.ReadFile(name, page.MaxSummary)
	if errors.Is(err, fs.ErrNotExist) {
		if info, err := os.Stat(filepath.Join(dir, partialFile)); err == nil {
			return &Run{Dir: dir, Start: info.ModTime(), Verdict: noSummary}, nil
		}
		return nil, nil //nolint:nilnil // documented: no results
	}
	if errors.Is(err, fs.ErrInvalid) || isNoFolder(dir) {
		return nil, fmt.Errorf("%s is a file: name the folder given to `moonloop replay --out`", dir)
	}
	if err != nil {
		return nil, fmt.Errorf("the summary of a run cannot be read: %w", err)
	}
	run, err := parseSummary(b)
	if err != nil {
		return nil, fmt.Errorf("%s is not the summary of a replay: %w; name the folder given to `moonloop replay --out`", name, jsonrows.Explain(err))
	}
	run.Dir = dir
	return run, nil
}

func isNoFolder(name string) bool {
	info, err := os.Stat(name)
	return err == nil && !info.IsDir()
}

func parseSummary(b []byte) (*Run, error) {
	var s struct {
		Version string    `json:"schema_version"`
		Start   time.Time `json:"start_time"`
		Verdict struct {
			Class   string `json:"class"`
			Reasons []struct {
				Metric string `json:"metric"`
				Class  string `json:"class"`
			} `json:"reasons"`
		} `json:"verdict"`
		Cancelled bool `json:"was_cancelled"`
		Trace     struct {
			traceIdentity
			NotReached      int64    `json:"rows_not_reached"`
			AtLeast         bool     `json:"rows_not_reached_at_least"`
			Transformations []string `json:"transformations"`
		} `json:"trace"`
		Schedule map[string]any `json:"schedule"`
		Fidelity struct {
			Cache struct {
				Beyond float64 `json:"beyond_tokens"`
			} `json:"cache"`
		} `json:"fidelity"`
	}
	if err := json.Unmarshal(b, &s); err != nil {
		return nil, err
	}
	if s.Version == "" || s.Verdict.Class == "" {
		return nil, errors.New("it has no schema_version or verdict")
	}
	var members map[string]json.RawMessage
	if err := json.Unmarshal(b, &members); err != nil {
		return nil, err
	}
	run := &Run{Start: s.Start, Verdict: s.Verdict.Class, trace: s.Trace.traceIdentity, steps: s.Trace.Transformations, schedule: s.Schedule, figures: map[string]map[string]float64{}, units: map[string]string{}}
	run.cut = run.Verdict != ValidVerdict && (s.Cancelled || s.Trace.NotReached > 0 || s.Trace.AtLeast)
	for _, r := range s.Verdict.Reasons {
		if r.Class != ValidVerdict {
			run.Reasons = append(run.Reasons, r.Metric)
		}
	}
	if run.schedule["arrival"] == nil && run.schedule["disconnect_share"] == nil && run.schedule["spread"] == nil {
		delete(run.schedule, "seed")
	}
	for tag, raw := range members {
		var figure map[string]any
		if json.Unmarshal(raw, &figure) != nil {
			continue // not an object
		}
		unit, ok := figure["unit"].(string)
		if !ok {
			continue // a section, not a figure
		}
		run.units[tag], run.figures[tag] = unit, map[string]float64{}
		for name, v := range figure {
			if v, ok := v.(float64); ok {
				run.figures[tag][name] = v
			}
		}
	}
	if prompt := run.figures["total_isl"]["avg"]; prompt > 0 {
		run.warm = s.Fidelity.Cache.Beyond / prompt
	}
	return run, nil
}

// Value returns a metric of the run and its unit; false if the run does not have it.
func (r *Run) Value(m Metric) (value float64, unit string, ok bool) {
	value, ok = r.figures[m.Figure][m.Statistic]
	return value, r.units[m.Figure], ok
}

// sameWorkload returns an error with the first difference if runs did not send the same requests in the same way. Those that do not count
// as evidence are checked, too: if a verdict hid the difference, further rounds would be made in vain. Of a run that ended early, only its
// schedule and the digests of its trace are compared.
func sameWorkload(runs []*Run) error {
	runs = slices.DeleteFunc(slices.Clone(runs), func(r *Run) bool { return r.Verdict == noSummary })
	if len(runs) == 0 {
		return nil
	}
	// One that can be compared with all others.
	first := runs[max(0, slices.IndexFunc(runs, func(r *Run) bool { return !r.cut }))]
	for _, run := range runs {
		if err := first.comparable(run); err != nil {
			return err
		}
	}
	return nil
}

// comparable returns an error with the first difference if the two runs did not send the same requests in the same way.
func (r *Run) comparable(other *Run) error {
	differs := func(what string, a, b any) error {
		return fmt.Errorf("%s and %s cannot be compared: %s (%v and %v); replay one trace with the same options", r.Dir, other.Dir, what, a, b)
	}
	a, b, cut := r.trace, other.trace, r.cut || other.cut
	if !cut && a.Rows != b.Rows {
		return differs("their traces have different numbers of rows", a.Rows, b.Rows)
	}
	switch {
	case a.Seq != "" && b.Seq != "":
		switch {
		case a.Seq != b.Seq || a.Tree != b.Tree:
			return differs("they replayed different traces", "digest "+short(a.Seq)+"/"+short(a.Tree), short(b.Seq)+"/"+short(b.Tree))
		case a.Arrival != b.Arrival:
			return differs("the rows arrive at different times", "arrival digest "+short(a.Arrival), short(b.Arrival))
		}
	case !cut: // a trace without a sidecar
		of, with := r.rowsDigest(), other.rowsDigest()
		for _, side := range []struct{ dir, digest string }{{r.Dir, of}, {other.Dir, with}} {
			if side.digest == "" {
				return fmt.Errorf("%s and %s cannot be compared: not both summaries have a digest of the trace, and %s has no readable %s, so it is unknown whether both replayed the same trace; replay the trace with its .meta.json, or keep %[4]s",
					r.Dir, other.Dir, side.dir, lines.File)
			}
		}
		if of != with {
			return differs("the rows of their traces, or the times of these, differ", "digest "+of, with)
		}
	}
	keys := slices.Sorted(maps.Keys(r.schedule))
	for key := range other.schedule {
		if _, ok := r.schedule[key]; !ok {
			keys = append(keys, key)
		}
	}
	for _, key := range keys {
		if a, b := r.schedule[key], other.schedule[key]; !reflect.DeepEqual(a, b) {
			return differs("the schedule's "+strings.ReplaceAll(key, "_", " ")+" differs", a, b)
		}
	}
	return nil
}

// rowsDigest returns the digest of the run's rows. It reads them once.
func (r *Run) rowsDigest() string {
	if r.rows == nil {
		r.rows = new(rowsDigest(r.Dir))
	}
	return *r.rows
}

func short(digest string) string { return digest[:min(12, len(digest))] }
