// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package page

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"time"

	"github.com/dustin/go-humanize"

	"github.com/moonloop/moonloop/agent/judge"
	"github.com/moonloop/moonloop/agent/measure"
	"github.com/moonloop/moonloop/agent/report/lines"
	"github.com/moonloop/moonloop/internal/atomicfile"
	"github.com/moonloop/moonloop/internal/jsonrows"
)

const summaryFile = "summary.json"

// MaxSummary is the maximum size of a run's summary, in bytes. With many classes and servers, it has a few hundred thousand.
const MaxSummary = 64 << 20

// maxPoints is the maximum number of points of a scatter plot.
const maxPoints = 15_000

// Run has what a page shows of one replay.
type Run struct {
	// TraceURL is the address of a trace in a tracing system, with {trace_id} in it, or empty. The tables of slow requests link
	// to it.
	TraceURL string

	dir     string
	killed  bool // no summary: the run did not end
	summary summary
	figures map[measure.ID]figure // those of the final table, or, of a killed run, those of its records

	requests, served int64
	outcomes         map[string]int64 // by outcome and reason
	line, slices     timeline         // for the charts, and for series.csv
	sessions         sessions
	uncached, reply  histogram
	ttft, ttftWire   histogram
	ttftIntended     histogram
	latency          histogram
	latencyIntended  histogram
	itl, gaps, late  histogram
	points           sample
	byTTFT, byTotal  slowest
}

// Load reads the folder of a run. A killed run has no summary.json; the page says so, and shows its records.
//
// An error names the file, the problem, and advice.
//
// slice is the length of a line of [SeriesFile], at least a millisecond; 0 = [DefaultSlice].
func Load(dir string, slice time.Duration) (*Run, error) {
	slice = cmp.Or(slice, DefaultSlice)
	r := &Run{
		dir: dir, outcomes: map[string]int64{},
		line:    timeline{width: firstWidth, most: maxBins, digits: 2},
		slices:  timeline{width: max(float64(slice)/float64(time.Millisecond), 1), most: maxSlices, digits: exact},
		byTTFT:  slowest{by: func(s slow) float64 { return s.TTFT }},
		byTotal: slowest{by: func(s slow) float64 { return s.Total }},
	}
	if err := r.loadSummary(); err != nil {
		return nil, err
	}
	if err := r.loadRecords(); err != nil {
		return nil, err
	}
	if r.killed {
		r.figures = r.recorded()
	}
	return r, nil
}

func (r *Run) loadSummary() error {
	name := filepath.Join(r.dir, summaryFile)
	b, err := atomicfile.ReadFile(name, MaxSummary)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		r.killed = true
		return nil
	case err != nil:
		return fmt.Errorf("the summary of the run cannot be read: %w; name the folder given to `moonloop replay --out`", err)
	}
	if err := json.Unmarshal(b, &r.summary); err != nil {
		return fmt.Errorf("%s is not the summary of a replay: %w; render the page from the folder that `moonloop replay --out` wrote", name, jsonrows.Explain(err))
	}
	if r.summary.Version == "" || r.summary.Run.ID == "" {
		return fmt.Errorf("%s is not the summary of a replay: it has no schema_version or run id; "+
			"render the page from the folder that `moonloop replay --out` wrote", name)
	}
	if r.figures, err = summaryFigures(b); err != nil {
		return fmt.Errorf("%s: %w; render the page from the folder that `moonloop replay --out` wrote", name, err)
	}
	return nil
}

func (r *Run) loadRecords() error {
	err := lines.Read(r.dir, new(plain).parse, func(rec *record) error { r.add(rec); return nil })
	if err == nil && r.requests == 0 {
		err = fmt.Errorf("%s %w", r.dir, errNoRecords)
	}
	return err
}

// add counts one record.
func (r *Run) add(rec *record) {
	x := &rec.Result
	r.requests++
	why := x.Outcome
	if x.Reason != "" {
		why += "\x00" + x.Reason
	}
	if len(r.outcomes) >= maxReasons && r.outcomes[why] == 0 {
		why = x.Outcome + "\x00other"
	}
	r.outcomes[why]++
	r.line.add(rec)
	r.slices.add(rec)
	r.sessions.add(rec)
	if x.Lateness != nil {
		r.late.add(*x.Lateness*perMilli, 3)
	}
	if !rec.served() {
		return
	}
	r.served++
	r.addCached(rec)
	if rec.once() {
		r.addTimes(rec)
	}
}

// addCached counts the cached tokens of a request that was served.
func (r *Run) addCached(rec *record) {
	cached, known := rec.cached()
	if !known {
		return
	}
	p := point{Row: rec.Result.Row, TTFT: -1, Uncached: max(rec.prompt()-cached, 0), Predicted: -1, Cached: cached}
	r.uncached.add(float64(p.Uncached), 3)
	if predicted := rec.Result.Predicted; predicted != nil {
		p.Predicted = *predicted
	}
	if ttft, known := rec.ttft(); known {
		p.TTFT = ttft
	}
	r.points.add(p)
}

// addTimes counts the durations of a request that was served at the first attempt.
func (r *Run) addTimes(rec *record) {
	x := &rec.Result
	durations := []struct {
		h        *histogram
		from, to *float64
	}{
		{&r.ttft, x.Start, x.First},
		{&r.ttftWire, x.Wire, x.First},
		{&r.ttftIntended, x.Intended, x.First},
		{&r.latency, x.Start, x.lastToken()},
		{&r.latencyIntended, x.Intended, x.lastToken()},
	}
	for _, d := range durations {
		if ms, known := between(d.from, d.to); known {
			d.h.add(ms*perMilli, 3)
		}
	}
	if x.First != nil { // the chunks of a reply that was not a stream came together
		for _, gap := range x.Gaps {
			r.gaps.add(gap*perMilli, 3)
		}
	}
	if itl, known := rec.itl(); known {
		r.itl.add(itl*perMilli, 3)
	}
	if n, known := rec.reply(); known {
		r.reply.add(float64(n), 3)
	}
	s, timed := newSlow(rec)
	if !timed {
		return
	}
	r.byTotal.add(s)
	if s.streamed() {
		r.byTTFT.add(s)
	}
}

// maxReasons is the maximum number of classes of errors that are counted separately.
const maxReasons = 100

// point is a request in the scatter plots. A value is -1 if it is not known.
type point struct {
	Row                         int64
	TTFT                        float64 // ms, from the start of a request that was served at the first attempt
	Uncached, Predicted, Cached int64
}

// sample is a uniform sample of at most maxPoints points, the same for the same records (reservoir sampling, Vitter's
// algorithm R).
type sample struct {
	seen   int64
	points []point
	random *rand.Rand
}

func (s *sample) add(p point) {
	s.seen++
	if len(s.points) < maxPoints {
		s.points = append(s.points, p)
		return
	}
	if s.random == nil {
		s.random = rand.New(rand.NewPCG(1, 2)) //nolint:gosec // a sample for a picture
	}
	if i := s.random.Int64N(s.seen); i < maxPoints {
		s.points[i] = p
	}
}

// explain determines why the slowest requests were slow, when all records are known.
func (r *Run) explain() {
	u := usual{uncached: r.uncached.quantile(0.9), reply: r.reply.quantile(0.9), gap: r.gaps.millis(0.5), backlog: r.line.backlog()}
	for _, list := range []*slowest{&r.byTTFT, &r.byTotal} {
		whole := 0.0 // the longest
		for i := range list.rows {
			whole = max(whole, list.rows[i].Total)
		}
		for i := range list.rows {
			s := &list.rows[i]
			s.Why = u.explain(s, list == &r.byTotal)
			s.Phases = s.phases(whole)
			if r.TraceURL != "" && s.TraceID != "" {
				s.Elsewhere = strings.ReplaceAll(r.TraceURL, "{trace_id}", s.TraceID)
			}
		}
	}
}

// summary is the part of summary.json that a page needs.
type summary struct {
	Version string `json:"schema_version"`
	Run     struct {
		ID        string            `json:"id"`
		Labels    map[string]string `json:"labels"`
		Version   string            `json:"version"`
		Command   string            `json:"command"`
		Target    string            `json:"target"`
		Endpoint  string            `json:"endpoint"`
		Model     string            `json:"model"`
		Models    map[string]int64  `json:"models"`
		Platform  string            `json:"platform"`
		CPUs      int               `json:"cpus"`
		Streaming bool              `json:"streaming"`
	} `json:"run"`
	Start     time.Time `json:"start_time"`
	End       time.Time `json:"end_time"`
	Cancelled bool      `json:"was_cancelled"`
	Verdict   struct {
		Class   string   `json:"class"`
		Reasons []reason `json:"reasons"`

		TooFew  []judge.Lack `json:"too_few"`
		Unknown []string     `json:"unknown"`
	} `json:"verdict"`

	Steady *steady `json:"steady_state"`

	Resumed struct {
		Parts []struct {
			From float64 `json:"from_ms"`
			Gap  float64 `json:"gap_ms"`
		} `json:"parts"`
		Zero     *float64 `json:"zero_ms"` // on the run's clock; earlier versions did not write it
		InFlight int64    `json:"rows_in_flight"`
	} `json:"resumed"`

	SLO   string `json:"slo"`
	Trace struct {
		Name          string `json:"name"`
		BlockSize     int    `json:"block_size"`
		SeqDigest     string `json:"seq_digest"`
		TreeDigest    string `json:"tree_digest"`
		ArrivalDigest string `json:"arrival_digest"`
		NotReached    int64  `json:"rows_not_reached"`
	} `json:"trace"`
	Schedule struct {
		Mode              string  `json:"mode"`
		Speedup           float64 `json:"speedup"`
		RequestRate       float64 `json:"request_rate"`
		Arrival           string  `json:"arrival"`
		Users             int     `json:"users"`
		Burstiness        float64 `json:"burstiness"`
		RampUp            float64 `json:"ramp_up_ms"`
		RampFrom          float64 `json:"ramp_up_from"`
		Spread            string  `json:"spread"`
		Concurrency       int     `json:"concurrency"`
		ConcurrencyRampUp float64 `json:"concurrency_ramp_up_ms"`
		Shard             string  `json:"shard"`
		Seed              uint64  `json:"seed"`
	} `json:"schedule"`
	Fidelity struct {
		Tokens struct {
			Prompt agreement `json:"prompt"`
			Output agreement `json:"output"`
		} `json:"tokens"`
		Cache struct {
			Realisation *float64 `json:"realisation"`
		} `json:"cache"`
		Machine struct {
			Hiccups    int64    `json:"hiccups"`
			HiccupTime float64  `json:"hiccup_time_ms"`
			HiccupMax  float64  `json:"hiccup_max_ms"`
			Elapsed    float64  `json:"elapsed_ms"`
			CPUShare   *float64 `json:"cpu_share"`
		} `json:"machine"`
	} `json:"fidelity"`
	Telemetry struct {
		Enabled       bool  `json:"enabled"`
		SpansEnded    int64 `json:"spans_ended"`
		SpansAccepted int64 `json:"spans_accepted"`
	} `json:"telemetry"`
	Errors []struct {
		Details struct {
			Type    string `json:"type"`
			Message string `json:"message"`
		} `json:"error_details"`
		Count int64 `json:"count"`
	} `json:"error_summary"`
	Servers []struct {
		Server string `json:"server"`
		partFigures
	} `json:"servers"`
	Classes []struct {
		Class    string `json:"class"`
		Priority *int64 `json:"priority"`
		partFigures
	} `json:"classes"`
	Warnings []string `json:"warnings"`
	Missed   []string `json:"goals_missed"`
}

// breaks says when the run was cut short, and when it was resumed; empty if it was not.
func (s *summary) breaks() string {
	var at []string
	for i, part := range s.Resumed.Parts {
		if i > 0 {
			gap := split(part.Gap)
			at = append(at, fmt.Sprintf("at %s s of the schedule (resumed after %s %s)", number(part.From/1000), gap[0], gap[1]))
		}
	}
	if at == nil {
		return ""
	}
	marked := ""
	if s.marks() != nil {
		marked = ", and mark with a dashed line where it was cut short"
	}
	return fmt.Sprintf("The run was cut short %s. The times and the charts on this page leave out the time until it was resumed%s; "+
		"%s rows that were in flight then count as cancelled.", strings.Join(at, ", "), marked, humanize.Comma(s.Resumed.InFlight))
}

// marks returns where the run was cut short in the charts, in s; nil if it was not, or if these places are not known.
func (s *summary) marks() (at []float64) {
	for i, part := range s.Resumed.Parts {
		if i > 0 && s.Resumed.Zero != nil {
			at = append(at, (*s.Resumed.Zero+part.From)/1000)
		}
	}
	return at
}

// steady is the part of the run that the final table covers, if a part was requested. Its times are ms of the schedule.
type steady struct {
	Window struct {
		From float64  `json:"from_ms"`
		To   float64  `json:"to_ms"`
		Zero *float64 `json:"zero_ms"` // on the run's clock; earlier versions did not write it
	} `json:"window"`
	Rows measure.Rows `json:"rows"`
}

// describe says what covers the part, and what the whole run.
func (s *steady) describe(slo string) string {
	seconds := func(zero float64) string {
		return number((zero+s.Window.From)/1000) + " to " + number((zero+s.Window.To)/1000) + " s"
	}
	what := "the figures below and the table Figures"
	if slo != "" {
		what = "the figures below, the table Figures and a goal for goodput"
	}
	text := "Steady state: " + what + " cover " + seconds(0) + " of the schedule"
	if s.Window.Zero != nil {
		text += ", shaded in the charts (" + seconds(*s.Window.Zero) + ")"
	}
	return fmt.Sprintf("%s: %s requests that were sent then, %s served, %s failed. "+
		"All else on this page covers the whole run, ramp-up and drain included.", text, humanize.Comma(s.Rows.Total), humanize.Comma(s.Rows.Served), humanize.Comma(s.Rows.Failed))
}

// shaded returns the part's beginning and end in the charts, in s; nil if its place there is not known.
func (s *steady) shaded() []float64 {
	if s == nil || s.Window.Zero == nil {
		return nil
	}
	return []float64{(*s.Window.Zero + s.Window.From) / 1000, (*s.Window.Zero + s.Window.To) / 1000}
}

type reason struct {
	Metric string  `json:"metric"`
	Value  float64 `json:"value"`
	Bound  float64 `json:"bound"`
	Unit   string  `json:"unit"`
	Class  string  `json:"class"`
	Text   string  `json:"text"`
	Shard  string  `json:"shard"`
}

type agreement struct {
	Equal     int64 `json:"equal"`
	Different int64 `json:"different"`
	Unknown   int64 `json:"unknown"`
}
