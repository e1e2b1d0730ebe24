// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package main

// This file has the verb that finds the highest load that an engine can handle: it replays a trace at the loads that package study chooses.

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/moonloop/moonloop/agent"
	"github.com/moonloop/moonloop/agent/judge"
	"github.com/moonloop/moonloop/agent/telemetry"
	"github.com/moonloop/moonloop/internal/atomicfile"
	"github.com/moonloop/moonloop/internal/jsonrows"
	"github.com/moonloop/moonloop/internal/term"
	"github.com/moonloop/moonloop/mooncake"
	"github.com/moonloop/moonloop/mooncake/transform"
	"github.com/moonloop/moonloop/study"
)

// The ways to vary the load, and the states of the engine's cache before a probe.
const (
	byDensity = "density"
	bySpeed   = "speed"
	byCopies  = "copies"

	coldCache = "cold"
	warmCache = "warm"
)

// loadNames describe what a load is a multiple of.
var loadNames = map[string]string{
	byDensity: "× the density of the trace", bySpeed: "× the speed of the trace", byCopies: "copies of the trace",
}

const (
	searchFile  = "search.json"
	maxSearch   = 64 << 20 // bytes of searchFile at most
	curveFile   = "curve.svg"
	scaledTrace = "trace.jsonl" // of the current probe
)

// searchFlags are the flags of search.
type searchFlags struct {
	study.Search
	objectives  []study.Objective
	vary, cache string
	out         string
	progress    string
	json        bool
}

func newSearchCommand() *cobra.Command {
	var f searchFlags
	cmd := &cobra.Command{
		Use:   "search TRACE --objective LIST [flags] -- --url URL [replay flags]",
		Short: "Find the highest load at which an engine meets your objectives",
		Args: func(cmd *cobra.Command, args []string) error {
			own := len(args)
			if at := cmd.ArgsLenAtDash(); at >= 0 {
				own = at
			}
			if own != 1 {
				return hintError{fmt.Errorf("search takes one trace, but %d were given", own), "flags of moonloop replay go after --: moonloop search trace.jsonl --objective 'ttft.p99<2s' -- --url http://engine:8000"}
			}
			if len(f.objectives) == 0 {
				return hintError{errors.New("no objective is given"), "give some, such as --objective 'ttft.p99<2s,itl.p95<50ms'"}
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error { return f.search(cmd, args[0], args[1:]) },
	}
	fs := cmd.Flags()
	textVar(fs, &f.objectives, "objective", "", "", study.ParseObjectives).rule = explains("figures and their bounds, such as ttft.p99<2s,itl.p95<50ms", study.ParseObjectives)
	wordVar(fs, &f.vary, "vary", byDensity, byDensity, bySpeed, byCopies)
	load := number(transform.MinScale, transform.MaxScale)
	add(fs, &f.Start, "start-at-load", 1, load)
	add(fs, &f.Min, "min-load", 0.05, load)
	add(fs, &f.Max, "max-load", 50, load)
	add(fs, &f.Precision, "precision", 0.05, number(0.005, 0.5))
	add(fs, &f.MaxProbes, "max-probes", 24, whole(1, 1000))
	add(fs, &f.Budget, "budget", 0, lasting(0, century, "0 or more"))
	wordVar(fs, &f.cache, "cache", coldCache, coldCache, warmCache)
	add(fs, &f.Seed, "seed", 0)
	add(fs, &f.out, "out", "", anyText("a folder"))
	add(fs, &f.json, "json", false)
	wordVar(fs, &f.progress, "progress", "auto", "auto", "bar", "lines", "none")
	return cmd
}

// searchState is what a search stores in its folder: the question, and the results so far.
type searchState struct {
	Schema   int            `json:"schema"`
	Question searchQuestion `json:"question"`
	searchResult
}

// searchQuestion is the question of a search. Only a search with an equal question continues from its probes.
type searchQuestion struct {
	Trace      string         `json:"trace"`
	Objectives []string       `json:"objectives"`
	Vary       string         `json:"vary"`
	Cache      string         `json:"cache"`
	Seed       uint64         `json:"seed"`
	Replay     map[string]any `json:"replay"` // the flags of each replay; "…" stands for a secret value
}

// searchResult is the answer in the form of --json. Unknown values are null.
type searchResult struct {
	Answer study.SearchAnswer `json:"answer"`
	Load   *float64           `json:"capacity"`
	Low    *float64           `json:"capacity_low"`
	High   *float64           `json:"capacity_high"`
	First  string             `json:"gave_way_first,omitempty"`
	Knee   *float64           `json:"load_of_greatest_goodput"`
	Probes []study.Trial      `json:"probes"`
}

func resultOf(c *study.Capacity) searchResult {
	known := func(v float64) *float64 {
		if v == 0 {
			return nil
		}
		return &v
	}
	r := searchResult{Answer: c.Answer, Load: known(c.Load), Low: known(c.Low), High: known(c.High), First: c.First, Knee: known(c.Knee), Probes: c.Trials}
	if len(c.Curve()) == 0 {
		r.Load, r.Low, r.High = nil, nil, nil // no probe counts, so these are limits, not results
	}
	return r
}

// prober makes the probes of a search.
type prober struct {
	*searchFlags
	cmd   *cobra.Command
	trace string
	cfg   agent.Config // of each replay, except for the load
	dir   string
	warn  func(string)
	begun func() // called once, when the first probe has begun
}

// search runs the verb.
func (f *searchFlags) search(cmd *cobra.Command, trace string, args []string) (err error) {
	ctx, stdout, stderr := cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr()
	f.Objectives = f.objectives
	if f.vary == byCopies {
		f.Whole, f.Min, f.Start = true, max(1, f.Min), max(1, f.Start)
	}
	replay, err := replayOf(cmd, trace, args, "the probes of a search, each of which has a folder of its own", probesOwn...)
	if err != nil {
		return fmt.Errorf("flags of replay, after --: %w", err)
	}
	p := &prober{searchFlags: f, cmd: cmd, trace: trace, cfg: replay.cfg, dir: f.out}
	if err := p.check(); err != nil {
		return err
	}
	if f.out == "" {
		if p.dir, err = os.MkdirTemp("", "moonloop-search-*"); err != nil {
			return fmt.Errorf("a temporary folder for the probes cannot be created: %w; name a folder with --out", err)
		}
		defer func() { err = errors.Join(err, os.RemoveAll(p.dir)) }()
	} else if err := os.MkdirAll(f.out, 0o750); err != nil {
		return fmt.Errorf("--out: %w", err)
	}
	unlock, err := atomicfile.Hold(filepath.Join(p.dir, searchFile+".lock"))
	if err != nil {
		return fmt.Errorf("another search is using %s: %w", p.dir, err)
	}
	defer unlock()
	state := searchState{Schema: 1, Question: p.question(replay)}
	if err := state.resume(filepath.Join(p.dir, searchFile)); err != nil {
		return err
	}
	f.Seed = state.Question.Seed
	if n := len(state.Probes); n > 0 {
		fmt.Fprintf(stderr, "moonloop: continuing after %s in %s\n", term.Counted(int64(n), "probes"), term.Plain(p.dir))
	}
	p.warn = warner(stderr, century)
	defer telemetry.CatchSDK(p.warn)()
	defer startPace().Stop()
	f.Probe = p.probe
	f.Begin = func(next study.Planned, c *study.Capacity) {
		p.begun = sync.OnceFunc(func() {
			if f.progress != "none" {
				fmt.Fprintf(stderr, "probe %d of at most %d: %.4g %s%s\n", next.Number, f.MaxProbes, next.Load, loadNames[f.vary], soFar(c))
			}
		})
	}
	f.Tried = func(t study.Trial) error {
		if f.progress != "none" {
			fmt.Fprintf(stderr, "  %s\n", trialText(t))
		}
		state.Probes = append(state.Probes, t)
		return state.save(p.dir)
	}
	c, err := f.Run(ctx, state.Probes)
	interrupted := err != nil && errors.Is(err, context.Cause(ctx))
	if interrupted {
		err = nil // what is known is printed, as at any other end
	}
	if c != nil && len(c.Trials) > 0 {
		state.searchResult = resultOf(c)
		err = errors.Join(err, p.saveAnswer(state, c))
	}
	if err != nil {
		return err
	}
	if interrupted && len(c.Trials) == 0 {
		return errors.New("interrupted before the end of the first probe: nothing is known of the capacity")
	}
	var result any = state
	if !f.json {
		result = f.text(c)
	}
	if err := output(stdout, result); err != nil {
		return err
	}
	if !f.json && f.out != "" {
		sayWhere(cmd, f.out, fmt.Sprintf("\nprobes and %s in %s\n", curveFile, term.Plain(f.out)))
	}
	if interrupted {
		next := "run the same command again to continue"
		if f.out == "" {
			next = "the probes are lost, because no --out was given"
		}
		fmt.Fprintf(stderr, "moonloop: interrupted after %s: %s\n", term.Counted(int64(len(c.Trials)), "probes"), next)
		return exitWith(exitInterrupted)
	}
	return exitWith(map[study.SearchAnswer]int{study.ClientLimit: exitInvalid, study.NotYet: exitInvalid, study.TooShort: exitInvalid, study.LessThanMin: exitGoals}[c.Answer])
}

// probesOwn are the flags of replay that a search sets itself, and those that make another trace or several runs, which only replay does.
var probesOwn = []string{
	"from", "transform", "runs", "runs-fresh", "runs-pause", "runs-warmup", "out", "force", "dry-run", "print-config", "run-id", "save-prompts", "xlsx", "parquet",
	"quarantine", "start-at", "shard",
}

// printing are the flags about what replay prints and how it exits. Other verbs refuse them on the command line, but not in a file of settings or
// in the environment, which all verbs may share.
var printing = []string{"table", "percentiles", "progress", "strict-verdict"}

// replayOf reads the flags of replays that another verb makes. It refuses flags that are not allowed there.
func replayOf(cmd *cobra.Command, trace string, args []string, whose string, refused ...string) (*replayFlags, error) {
	verb, f := newReplay()
	fs := verb.Flags()
	args, _, err := translate(fs, args)
	if err != nil {
		return nil, err
	}
	if err := verb.ParseFlags(args); err != nil {
		return nil, flagError(verb, typedFlags(fs, args), err)
	}
	if err := checkFlags(verb, typedFlags(fs, args)); err != nil {
		return nil, err
	}
	if fs.NArg() > 0 {
		return nil, fmt.Errorf("%q is not a flag", fs.Arg(0))
	}
	if err := refuseFlags(fs, whose, printing); err != nil {
		return nil, err
	}
	_ = f.args.Set("trace", trace)
	if err := f.apply(verb); err != nil {
		return nil, err
	}
	if err := refuseFlags(fs, whose, append(refused, "resume")); err != nil {
		return nil, err
	}
	f.cfg.Settings = f.effective(verb)
	if err := f.resolve(cmd.Context(), fs); err != nil {
		return nil, err
	}
	for _, text := range f.warnings {
		fmt.Fprint(cmd.ErrOrStderr(), term.Note(cmd.ErrOrStderr(), "warning: "+text))
	}
	return f, nil
}

// refuseFlags returns an error if one of these flags has been set.
func refuseFlags(fs *pflag.FlagSet, whose string, names []string) error {
	for _, name := range names {
		if fs.Changed(name) {
			return fmt.Errorf("--%s cannot be given for %s: leave it out", name, whose)
		}
	}
	return nil
}

// check finds errors before anything is written or sent.
func (p *prober) check() error {
	info, err := os.Stat(p.trace) // a URL cannot be checked in advance
	switch s := p.cfg.Schedule; {
	case p.trace == "-":
		return errors.New("standard input can be read only once, and each probe reads the trace: name a file")
	case err == nil && !info.Mode().IsRegular() && !info.IsDir():
		return fmt.Errorf("%s is a pipe or a device, which can be read only once, and each probe reads the trace: name a file", term.Plain(p.trace))
	case s.FileOrder || s.Arrivals.Any():
		return errors.New("--no-fixed-schedule and --request-rate replace the arrival times that a search makes denser: leave them out")
	}
	return p.Validate()
}

func (p *prober) question(replay *replayFlags) searchQuestion {
	q := searchQuestion{Trace: publicValue(p.trace), Vary: p.vary, Cache: p.cache, Seed: p.Seed, Replay: map[string]any{}}
	for _, o := range p.Objectives {
		q.Objectives = append(q.Objectives, o.String())
	}
	for _, s := range replay.cfg.Settings {
		if !slices.Contains([]string{"trace", "seed", "progress", "table", "percentiles"}, s.Name) {
			q.Replay[s.Name] = s.Value
		}
	}
	return q
}

// resume reads the probes of an equal search, and its seed if none is given; if there is no search, it chooses a seed.
func (s *searchState) resume(name string) error {
	text, err := atomicfile.ReadFile(name, maxSearch)
	if errors.Is(err, fs.ErrNotExist) {
		if s.Question.Seed == 0 {
			s.Question.Seed = drawnSeed()
		}
		return nil
	}
	if err != nil {
		return fmt.Errorf("the search cannot continue: %w", err)
	}
	var before searchState
	if err = json.Unmarshal(text, &before); err == nil && before.Schema != s.Schema {
		err = fmt.Errorf("its schema is %d, not %d", before.Schema, s.Schema)
	}
	if err != nil {
		return hintError{fmt.Errorf("the search cannot continue: %s is not the file of a search: %w", name, jsonrows.Explain(err)), "name another folder with --out"}
	}
	if s.Question.Seed == 0 {
		s.Question.Seed = before.Question.Seed
	}
	ours, errA := json.Marshal(s.Question)
	theirs, errB := json.Marshal(before.Question)
	if errA != nil || errB != nil || !bytes.Equal(ours, theirs) {
		return hintError{fmt.Errorf("%s has another search, of %s for %s: the probes of that search cannot be used for this one", name, term.Plain(before.Question.Trace), term.Plain(strings.Join(before.Question.Objectives, ","))), "name another folder with --out, or give the flags of that search"}
	}
	s.Probes = before.Probes
	return nil
}

// drawnSeed returns a random seed for a study: never 0, and most likely different from that of an earlier study, whose words an engine may
// have in its cache. It is short enough to be typed again.
func drawnSeed() uint64 { return 1 + uint64(rand.Uint32()) } //nolint:gosec // no secret

// save writes the file of a search.
func (s *searchState) save(dir string) error {
	return writeWhole(filepath.Join(dir, searchFile), atomicfile.Regular, func(w io.Writer) error { return encode(w, s) })
}

// saveAnswer writes the answer and its picture, and removes the last scaled trace.
func (p *prober) saveAnswer(state searchState, c *study.Capacity) error {
	_ = os.Remove(filepath.Join(p.dir, scaledTrace))
	_ = os.Remove(mooncake.MetaName(filepath.Join(p.dir, scaledTrace)))
	return errors.Join(state.save(p.dir), writeWhole(filepath.Join(p.dir, curveFile), atomicfile.Regular, func(w io.Writer) error {
		return c.WriteSVG(w, loadNames[p.vary], p.Objectives)
	}))
}

// probe replays the trace at a load.
func (p *prober) probe(ctx context.Context, next study.Planned) (*study.Run, error) {
	cfg := p.cfg
	cfg.Out, cfg.Force = filepath.Join(p.dir, fmt.Sprintf("probe-%02d", next.Number)), true
	cfg.Prompt.Seed = next.Seed
	cfg.Tool, cfg.Command = version(), publicCommand(p.cmd, []string{p.trace})
	if !cfg.SLO.Any() {
		cfg.SLO = study.ServiceLevel(p.Objectives)
	}
	if p.vary == bySpeed {
		cfg.Schedule.Speedup *= next.Load
	} else if err := p.scale(ctx, &cfg, next); err != nil {
		return nil, err
	}
	cfg.Warn = p.warn
	if p.cache == warmCache {
		first := cfg
		first.Out, first.Progress = "", func(*agent.Live) { p.begun() }
		if _, err := agent.Run(ctx, first); err != nil {
			return nil, err
		}
	}
	view := term.NewProgress(p.cmd.ErrOrStderr(), p.progress)
	cfg.Progress = func(run *agent.Live) {
		p.begun()
		view.Show(run.Line)
	}
	_, err := agent.Run(ctx, cfg)
	view.Stop(false)
	if err != nil {
		return nil, err
	}
	runs, err := study.ReadRuns(cfg.Out)
	if err != nil {
		return nil, err
	}
	return runs[0], nil
}

// scale writes the trace at a density; the result becomes the trace that is replayed.
func (p *prober) scale(ctx context.Context, cfg *agent.Config, next study.Planned) (err error) {
	t := &cfg.Trace
	in := tracesRead{ctx: ctx, flags: &transformFlags{unit: t.Unit, mapping: t.Map, block: t.BlockSize, fine: t.FineBlockSize}}
	defer func() { err = errors.Join(err, in.close()) }()
	source, err := in.source(t.Name)
	if err != nil {
		return err
	}
	stream, err := transform.Open(transform.Config{Scale: next.Load, Seed: next.Seed, Start: t.Start, End: t.End, First: t.MaxRows}, source)
	if err != nil {
		return err
	}
	defer stream.Close() // before the trace is closed
	name := filepath.Join(p.dir, scaledTrace)
	file, err := mooncake.Create(name)
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }() // no effect after Commit
	digester := mooncake.NewDigester(mooncake.CheckOptions{BlockSize: stream.BlockSize(), FineBlockSize: stream.FineBlockSize()})
	if err := copyRows(ctx, stream, file.Write, digester); err != nil {
		return err
	}
	if err := file.Commit(in.meta(stream, stream.Report(), digester)); err != nil {
		return err
	}
	t.Name, t.Unit, t.Map, t.BlockSize, t.FineBlockSize, t.Start, t.End, t.MaxRows = name, 0, nil, 0, 0, 0, 0, 0
	return nil
}

// soFar describes what is known of the capacity.
func soFar(c *study.Capacity) string {
	if len(c.Curve()) == 0 {
		return ""
	}
	return fmt.Sprintf("; so far %.3g to %.3g", c.Low, c.High)
}

// trialText returns a description of a probe in one line.
func trialText(t study.Trial) string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(t.Values)) {
		parts = append(parts, fmt.Sprintf("%s: %.4g", name, t.Values[name]))
	}
	switch {
	case !t.Evidence:
		why := judge.Text(t.Verdict)
		if len(t.Reasons) > 0 {
			why += " (" + strings.Join(t.Reasons, ", ") + ")"
		}
		parts = append(parts, "not counted, because its verdict is "+why)
	case t.Met:
		parts = append(parts, "met")
	default:
		parts = append(parts, "missed "+t.Missed)
	}
	return strings.Join(parts, "; ") + fmt.Sprintf(" (%s)", time.Duration(t.Took*float64(time.Second)).Round(time.Second))
}

// text returns the answer, followed by the probes in order of their load.
func (f *searchFlags) text(c *study.Capacity) string {
	var b strings.Builder
	fmt.Fprintf(&b, "capacity: %s\n", c.Headline(loadNames[f.vary]))
	if c.First != "" {
		fmt.Fprintf(&b, "first objective missed: %s\n", c.First)
	}
	if c.Knee > 0 {
		fmt.Fprintf(&b, "greatest goodput: at %.3g\n", c.Knee)
	}
	t := term.NewTable()
	header := table.Row{"load", "requests/s", "goodput/s", "good"}
	for _, o := range f.Objectives {
		header = append(header, o.String())
	}
	t.AppendHeader(append(header, "failed", "probe", "answer"))
	for _, trial := range slices.SortedStableFunc(slices.Values(c.Trials), func(a, b study.Trial) int { return cmp.Compare(a.Load, b.Load) }) {
		row := table.Row{fmt.Sprintf("%.4g", trial.Load), fmt.Sprintf("%.3g", trial.Rate), fmt.Sprintf("%.3g", trial.Good), term.Share(trial.GoodShare)}
		for _, o := range f.Objectives {
			text := ""
			if v, ok := trial.Values[o.String()]; ok {
				text = fmt.Sprintf("%.4g", v)
			}
			row = append(row, text)
		}
		answer := "missed"
		if trial.Met {
			answer = "met"
		}
		if !trial.Evidence {
			answer = "not counted: " + judge.Text(trial.Verdict)
		}
		t.AppendRow(append(row, fmt.Sprintf("%.3g %%", trial.Failed), trial.Number, answer))
	}
	fmt.Fprintf(&b, "\n%s\n", t.Render())
	return b.String()
}
