// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package study

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"slices"
	"sort"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/moonloop/moonloop/mooncake"
	"github.com/moonloop/moonloop/mooncake/transform"
)

// rowsOf is a trace in memory.
type rowsOf struct {
	rows []mooncake.Row
	next int
}

func (r *rowsOf) Read() (*mooncake.Row, error) {
	if r.next == len(r.rows) {
		return nil, io.EOF
	}
	row := r.rows[r.next]
	r.next++
	return &row, nil
}
func (r *rowsOf) Line() int64      { return int64(r.next) }
func (*rowsOf) BlockSize() int     { return mooncake.BlockSize }
func (*rowsOf) FineBlockSize() int { return 0 }

// traffic returns sessions of a few turns in bursts, each with a prefix that all share and one of its own.
func traffic(sessions int) []mooncake.Row {
	r := rand.New(rand.NewPCG(1, 2))
	var rows []mooncake.Row
	id, at := uint64(1), 0.0
	for range sessions {
		if r.IntN(3) > 0 {
			at += r.ExpFloat64() * 900
		}
		ids, when := []uint64{0}, at
		for range 1 + r.IntN(4) {
			for range 1 + r.IntN(6) {
				ids = append(ids, id)
				id++
			}
			rows = append(rows, mooncake.Row{
				Timestamp: mooncake.Some(math.Round(when)), InputLength: mooncake.Some(int64(512 * len(ids))), OutputLength: mooncake.Some(int64(1)),
				HashIDs: slices.Clone(ids),
			})
			when += 2000 + r.ExpFloat64()*4000
		}
	}
	slices.SortStableFunc(rows, func(a, b mooncake.Row) int { return int(a.Timestamp.V - b.Timestamp.V) })
	return rows
}

// model is the simulator's latency model with one prefill at a time and an infinite cache, as a function: what `moonloop simulate
// --prefill-lane serial` does to a trace, without waiting.
func model(t *testing.T, rows []mooncake.Row, density float64, seed uint64) (ttft []float64) {
	t.Helper()
	stream, err := transform.Open(transform.Config{Scale: density, Seed: seed}, transform.Source{Name: "traffic", Open: func() (transform.Rows, error) { return &rowsOf{rows: rows}, nil }})
	if err != nil {
		t.Fatal(err)
	}
	free, cached := 0.0, map[uint64]bool{}
	for {
		row, err := stream.Next()
		if errors.Is(err, io.EOF) {
			return ttft
		}
		if err != nil {
			t.Fatal(err)
		}
		fresh := 0
		for _, id := range row.HashIDs {
			if !cached[id] {
				cached[id] = true
				fresh++
			}
		}
		free = max(free, row.Timestamp.V) + 20 + 0.05*512*float64(fresh)
		ttft = append(ttft, free-row.Timestamp.V)
	}
}

func runOf(ttft []float64) *Run {
	slices.Sort(ttft)
	good := 0
	for _, v := range ttft {
		if v < 2000 {
			good++
		}
	}
	return &Run{
		Verdict: ValidVerdict, units: map[string]string{"time_to_first_token": "ms"},
		figures: map[string]map[string]float64{
			"time_to_first_token": {"p95": ttft[int(math.Ceil(0.95*float64(len(ttft))))-1]},
			"goodput":             {"avg": float64(good)},
		},
	}
}

func objectives(t *testing.T, text string) []Objective {
	t.Helper()
	all, err := ParseObjectives(text)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// TestSearchFindsCapacity: the capacity that a grid of 0.5 % finds is found within 5 % in at least 18 of 20 searches, each in at most 12
// probes. The density is scaled as a search does it, so each probe is a different sample of the trace.
func TestSearchFindsCapacity(t *testing.T) {
	if testing.Short() {
		t.Skip("one goroutine works: the race detector would find nothing")
	}
	rows, objective := traffic(300), objectives(t, "ttft.p95<2s")
	// The truth: the first load of the grid at which less than one half of the samples meet the objective.
	const samples, grid = 61, 1.005
	truth := math.Pow(grid, float64(sort.Search(int(math.Log(4)/math.Log(grid)), func(i int) bool {
		met := 0
		for seed := range uint64(samples) {
			if v, _, _ := runOf(model(t, rows, math.Pow(grid, float64(i)), 1000+seed)).value(objective[0]); v < objective[0].Bound {
				met++
			}
		}
		return 2*met < samples
	})))
	within, covered, most := 0, 0, 0
	for seed := range uint64(20) {
		s := Search{
			Objectives: objective, Start: 1, Min: 0.1, Max: 10, Precision: 0.05, MaxProbes: 12, Seed: 100 * seed,
			Probe: func(_ context.Context, p Planned) (*Run, error) { return runOf(model(t, rows, p.Load, p.Seed)), nil },
		}
		c, err := s.Run(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("seed %d: %s, %.3f (%.3f to %.3f), the truth %.3f, in %d probes", seed, c.Answer, c.Load, c.Low, c.High, truth, len(c.Trials))
		if math.Abs(c.Load/truth-1) <= 0.05 {
			within++
		}
		if c.Low <= truth && truth <= c.High {
			covered++
		}
		most = max(most, len(c.Trials))
	}
	if within < 18 || covered < 18 || most > 12 {
		t.Errorf("%d of 20 within 5 %% of %.3f, the intervals of %d contain it, at most %d probes", within, truth, covered, most)
	}
}

// TestSearchCoverage: the interval contains the capacity in at least nine of ten searches, however much runs differ: by 2 % to 25 % of the
// load at which they fail. Where they differ little, most searches find a capacity; where they differ much, few do, and those that are wrong
// are rare.
func TestSearchCoverage(t *testing.T) {
	if testing.Short() {
		t.Skip("one goroutine works: the race detector would find nothing")
	}
	const searches = 50
	objective := objectives(t, "ttft.p95<2s")
	for _, scatter := range []float64{0.02, 0.08, 0.25} {
		random := rand.New(rand.NewPCG(1, math.Float64bits(scatter)))
		covered, found, wrong := 0, 0, 0
		for range searches {
			truth := math.Exp(random.Float64() - 0.5)
			s := Search{Objectives: objective, Start: 1, Min: 0.25, Max: 4, Precision: 0.05, MaxProbes: 24}
			s.Probe = func(_ context.Context, p Planned) (*Run, error) {
				return runOf([]float64{2000 * p.Load / (truth * math.Exp(scatter*random.NormFloat64()))}), nil
			}
			c, err := s.Run(t.Context(), nil)
			if err != nil {
				t.Fatal(err)
			}
			within := c.Low <= truth && truth <= c.High
			if within {
				covered++
			}
			if c.Answer == CapacityFound {
				found++
				if !within {
					wrong++
				}
			}
		}
		t.Logf("runs differ by %v: of %d searches, %d intervals contain the capacity, %d found it, %d of them wrong", scatter, searches, covered, found, wrong)
		if 10*covered < 9*searches || 10*wrong > searches || scatter < 0.03 && 10*found < 9*searches {
			t.Errorf("runs differ by %v: of %d searches, %d intervals contain the capacity, %d found it, %d of them wrong", scatter, searches, covered, found, wrong)
		}
	}
}

// cliff returns a search on an engine that meets the objective up to a load, with a client that is valid up to another load.
func cliff(t *testing.T, engine, client float64) *Search {
	t.Helper()
	return &Search{
		Objectives: objectives(t, "ttft.p95<2s, goodput>0.5"), MaxFailed: 1, Start: 1, Min: 0.125, Max: 8, Precision: 0.05, MaxProbes: 30,
		Probe: func(_ context.Context, p Planned) (*Run, error) {
			r := runOf([]float64{100 * p.Load / engine})
			if p.Load > engine {
				r = runOf([]float64{3000 * p.Load / engine})
				r.figures["goodput"]["avg"] = 1
			}
			if p.Load > client {
				r.Verdict, r.Reasons = "degraded", []string{"lateness_p99"}
			}
			return r, nil
		},
	}
}

// TestSearchAnswers: a search names the capacity and the objective that was missed first, or says why it found no capacity.
func TestSearchAnswers(t *testing.T) {
	for name, test := range map[string]struct {
		engine, client float64
		whole          bool
		answer         SearchAnswer
		least, most    float64
		first          string
	}{
		"found":                              {engine: 2.7, client: 9, answer: CapacityFound, least: 2.6, most: 2.8, first: "ttft.p95<2000ms"},
		"below the start":                    {engine: 0.3, client: 9, answer: CapacityFound, least: 0.29, most: 0.31, first: "ttft.p95<2000ms"},
		"whole loads":                        {engine: 5.5, client: 9, whole: true, answer: CapacityFound, least: 5, most: 6, first: "ttft.p95<2000ms"},
		"the client fails before the engine": {engine: 6, client: 1.7, answer: ClientLimit, least: 1.5, most: 1.7},
		"the client fails after the engine":  {engine: 3, client: 3.2, answer: CapacityFound, least: 2.9, most: 3.1, first: "ttft.p95<2000ms"},
		"the client fails at every load":     {engine: 3, client: 0.01, answer: ClientLimit},
		"every load is met":                  {engine: 9, client: 9, answer: MoreThanMax, least: 8, most: 8},
		"no load is met":                     {engine: 0.1, client: 9, answer: LessThanMin, least: 0.125, most: 0.125, first: "ttft.p95<2000ms"},
	} {
		s := cliff(t, test.engine, test.client)
		if s.Whole = test.whole; s.Whole {
			s.Min = 1
		}
		c, err := s.Run(t.Context(), nil)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if c.Answer != test.answer || c.Load < test.least || c.Load > test.most || c.First != test.first {
			t.Errorf("%s: %+v", name, c)
		}
		if test.client == 0.01 && c.Headline("") != "cannot tell: the client was the limit at every load, always because of lateness_p99" {
			t.Errorf("%s: %s", name, c.Headline(""))
		}
		if c.Answer == CapacityFound && !(c.Low <= test.engine && test.engine <= c.High) {
			t.Errorf("%s: the interval is %v to %v", name, c.Low, c.High)
		}
		for _, trial := range c.Trials {
			if s.Whole && trial.Load != math.Trunc(trial.Load) {
				t.Errorf("%s: a load of %v", name, trial.Load)
			}
		}
	}
}

// TestSearchResumes: a search that was ended at any probe continues to the same result, with other seeds for new probes.
func TestSearchResumes(t *testing.T) {
	whole, err := cliff(t, 2.7, 9).Run(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	for n := range whole.Trials {
		first := cliff(t, 2.7, 9)
		first.MaxProbes = max(1, n)
		c, err := first.Run(t.Context(), nil)
		if err != nil || len(c.Trials) != first.MaxProbes || n > 0 && c.Answer != NotYet {
			t.Fatalf("%+v, %v", c, err)
		}
		c, err = cliff(t, 2.7, 9).Run(t.Context(), c.Trials)
		if err != nil {
			t.Fatal(err)
		}
		for i := range c.Trials {
			c.Trials[i].Took = whole.Trials[i].Took
		}
		if diff := cmp.Diff(whole, c); diff != "" {
			t.Errorf("after %d probes (-whole +resumed):\n%s", n, diff)
		}
	}
	seeds := map[uint64]bool{}
	for _, trial := range whole.Trials {
		seeds[trial.Seed] = true
	}
	if len(seeds) != len(whole.Trials) {
		t.Errorf("%d seeds in %d probes: a probe finds the cache of another", len(seeds), len(whole.Trials))
	}
}

// TestSearchEvidence: an engine that fails is evidence, whatever the verdict, and a probe that was not valid is repeated.
func TestSearchEvidence(t *testing.T) {
	s := cliff(t, 2, 9)
	probe, disturbed := s.Probe, 0
	s.Probe = func(ctx context.Context, p Planned) (*Run, error) {
		r, err := probe(ctx, p)
		switch {
		case p.Number == 2:
			disturbed++
			r.Verdict, r.Reasons = "invalid", []string{"hiccup_share"}
		case p.Load > 2:
			r = &Run{Verdict: "degraded", Reasons: []string{"failed_share"}, figures: map[string]map[string]float64{"request_error_rate": {"avg": 100}}}
		}
		return r, err
	}
	c, err := s.Run(t.Context(), nil)
	if err != nil || c.Answer != CapacityFound || c.First != failing || disturbed != 1 {
		t.Fatalf("%+v, %v", c, err)
	}
	if again := c.Trials[2]; c.Trials[1].Evidence || again.Load != c.Trials[1].Load || again.Seed == c.Trials[1].Seed {
		t.Errorf("after the disturbed probe: %+v", again)
	}
}

// TestSearchCutOff: a probe whose slowest requests the end of the run cut off does not meet the objectives, whatever its figures say.
func TestSearchCutOff(t *testing.T) {
	s := cliff(t, 2, 9)
	probe := s.Probe
	s.Probe = func(ctx context.Context, p Planned) (*Run, error) {
		r, err := probe(ctx, Planned{Number: p.Number, Load: min(p.Load, 1), Seed: p.Seed})
		if p.Load > 2 {
			r.Verdict, r.Reasons = "degraded", []string{"cut_off_share"}
		}
		return r, err
	}
	c, err := s.Run(t.Context(), nil)
	if err != nil || c.Answer != CapacityFound || c.First != cutOff {
		t.Errorf("%+v, %v", c, err)
	}
}

// TestSearchDisturbed: a load at which no probe counts is not the client's limit if probes at higher loads count, and is left out.
func TestSearchDisturbed(t *testing.T) {
	s := cliff(t, 2.7, 9)
	probe, disturbed := s.Probe, 0.
	s.Probe = func(ctx context.Context, p Planned) (*Run, error) {
		r, err := probe(ctx, p)
		if p.Number == 5 {
			disturbed = p.Load
		}
		if p.Load == disturbed {
			r.Verdict, r.Reasons = "degraded", []string{"hiccup_share"}
		}
		return r, err
	}
	c, err := s.Run(t.Context(), nil)
	if err != nil || c.Answer != CapacityFound || !(c.Low <= 2.7 && 2.7 <= c.High) {
		t.Fatalf("%+v, %v", c, err)
	}
	n := 0
	for _, trial := range c.Trials {
		if !trial.Evidence {
			n++
		}
	}
	if n != tries || disturbed > 4 {
		t.Errorf("%d probes of load %v", n, disturbed)
	}
}

// TestSearchTooShort: a probe with too few requests for a verdict ends the search, since a lower load has even fewer.
func TestSearchTooShort(t *testing.T) {
	s := cliff(t, 0.7, 9)
	probe := s.Probe
	s.Probe = func(ctx context.Context, p Planned) (*Run, error) {
		r, err := probe(ctx, p)
		if p.Load < 1 {
			r.Verdict, r.Reasons = undecided, []string{"records"}
		}
		return r, err
	}
	if c, err := s.Run(t.Context(), nil); err != nil || c.Answer != TooShort || c.Load != 0.5 || len(c.Trials) != 2 {
		t.Errorf("%+v, %v", c, err)
	}
}

// TestSearchRefuses: objectives that cannot be read are refused before a probe, and so are figures, statistics and units that do not exist.
func TestSearchRefuses(t *testing.T) {
	for text, want := range map[string]string{
		"":               "has no < or >",
		"ttft.p99":       "has no < or >",
		"<2s":            "is not a metric",
		"ttft.p99<fast":  "neither a duration nor a number",
		"ttft.p99<-1s":   "not above 0",
		"ttft.p99<NaN":   "not above 0",
		"ttft.p99<2s,":   "has no < or >",
		"ttft.<2s":       "is not a metric",
		"throughput>0":   "not above 0",
		"ttft.p99<1e999": "neither a duration nor a number",
		"colour.p95<2":   `objective "colour.p95<2": there is no figure colour: want e2e, itl, latency, throughput, tpot, ttft, or the whole name of another figure of summary.json, such as request_throughput; `,
		"ttft.p51<2s":    "has no statistic p51: want avg, min, max, p1, ",
		"goodput.p50>2":  "goodput has no statistic p50: want avg",
		"goodput>2s":     "the figure is in requests/sec: give its bound without a unit",
		"ttft.p95<2%":    "the figure is in ms",
	} {
		if o, err := ParseObjectives(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, %v; want %q", text, o, err, want)
		}
	}
	s := cliff(t, 2, 9)
	s.Objectives = []Objective{{Metric: Metric{"colour", "p95"}, Bound: 2}}
	s.Probe = func(context.Context, Planned) (*Run, error) { return nil, errors.New("a probe began") }
	if c, err := s.Run(t.Context(), nil); err == nil || !strings.Contains(err.Error(), "there is no figure colour") {
		t.Errorf("%+v, %v", c, err)
	}
	s = cliff(t, 2, 9)
	s.Objectives = objectives(t, "itl.p95<2s") // a trace of single tokens has none
	if c, err := s.Run(t.Context(), nil); err == nil || !strings.Contains(err.Error(), "the probe has no figure inter_token_latency") {
		t.Errorf("%+v, %v", c, err)
	}
	if got := fmt.Sprint(objectives(t, "ttft.p99 <= 1.5s, throughput>100, request_error_rate<1%,latency.p50<20")); got != "[ttft.p99<1500ms throughput>100 request_error_rate<1% latency.p50<20]" {
		t.Error(got)
	}
	for text, want := range map[string]string{
		"ttft.p99<1.5s,throughput>100,itl.p95<50ms": "ttft=1.5s,itl=50ms",
		"latency.p90<500ms,latency.p50<205ms":       "e2e=205ms", // all bounds hold, in any order
		"latency.p50<205ms,latency.p90<500ms":       "e2e=205ms",
	} {
		if slo := ServiceLevel(objectives(t, text)); slo.String() != want {
			t.Errorf("%s: %v, want %s", text, slo, want)
		}
	}
}
