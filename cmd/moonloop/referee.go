// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/moonloop/moonloop/internal/term"
	"github.com/moonloop/moonloop/mooncake"
	"github.com/moonloop/moonloop/study/referee"
)

// judgeFlags describe a load generator's task, and its own file of results.
type judgeFlags struct {
	judge   referee.Asked
	speedup float64
	skip    int
	export  string
	form    answerFlags // without Markdown
}

func (f *judgeFlags) register(fs *pflag.FlagSet) {
	textVar(fs, &f.judge, "judge", "", "rate=R with a number of requests per second, or the name of a trace", referee.ParseAsked)
	add(fs, &f.speedup, "speedup", 1, number(1e-6, 1e6))
	add(fs, &f.skip, "skip", 0, whole(0, referee.MaxRequests))
	add(fs, &f.export, "export", "", aFile)
	add(fs, &f.form.html, "html", "", aFile)
	add(fs, &f.form.json, "json", false)
}

func (f *judgeFlags) given() bool { return f.judge.Rate != nil || f.judge.Trace != "" }

// needless returns a flag that was given but has no effect without a judgement.
func (f *judgeFlags) needless(fs *pflag.FlagSet) (name string) {
	for _, n := range []string{"speedup", "skip", "export", "html", "json"} {
		if fs.Changed(n) {
			name = n
		}
	}
	return name
}

// newRefereeCommand returns the command that judges a load generator by the record of the engine that it sent its requests to.
func newRefereeCommand() *cobra.Command {
	var f judgeFlags
	cmd := &cobra.Command{
		Use:   "referee RECORD --judge SCHEDULE",
		Short: "Measure how late a load generator was, and how wrong its figures are",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 {
				return nil
			}
			return hintError{fmt.Errorf("%s takes one file, but %d were given", cmd.Name(), len(args)), "name the file that `moonloop simulate --record` wrote"}
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx := cmd.Context()
			schedule, err := f.schedule(ctx, standardInput(ctx, cmd.InOrStdin()))
			if err != nil {
				return err
			}
			return f.decide(ctx, schedule, args[0], cmd.OutOrStdout())
		},
	}
	fs := cmd.Flags()
	f.register(fs)
	return cmd
}

// schedule returns the schedule that the load generator was given.
func (f *judgeFlags) schedule(ctx context.Context, stdin io.Reader) (*referee.Schedule, error) {
	switch {
	case f.judge.Rate != nil && f.speedup != 1:
		return nil, errors.New("--speedup divides the times of a trace: with rate=R, give the rate that was asked for")
	case f.judge.Rate != nil:
		return f.judge.Rate, nil
	case f.judge.Trace == "":
		return nil, hintError{errors.New("nothing says what the load generator was asked for"), "give --judge rate=R or --judge TRACE"}
	}
	trace, err := mooncake.Open(ctx, f.judge.Trace, mooncake.OpenOptions{Stdin: stdin})
	if err != nil {
		return nil, err
	}
	defer trace.Close() //nolint:errcheck // it was only read
	return referee.ReadSchedule(mooncake.PublicName(f.judge.Trace), f.speedup, trace.Read)
}

// readWhole reads a foreign file with a decoder.
func readWhole[T any](ctx context.Context, name string, decode func(io.Reader) (T, error)) (v T, err error) {
	in, err := openInput(ctx, name)
	if err != nil {
		return v, err
	}
	defer in.Close() //nolint:errcheck // it was only read
	if v, err = decode(in); err != nil {
		err = fmt.Errorf("%s: %w", name, err)
	}
	return v, err
}

// decide judges by the record in a file, and writes the result.
func (f *judgeFlags) decide(ctx context.Context, schedule *referee.Schedule, record string, out io.Writer) error {
	all, err := readWhole(ctx, record, referee.ReadRecord)
	if err != nil {
		return err
	}
	j, err := referee.Judge(schedule, all, f.skip)
	if err != nil {
		return err
	}
	if f.export != "" {
		export, err := readWhole(ctx, f.export, referee.ReadExport)
		if err != nil {
			return err
		}
		j.Against(export, all, f.skip)
	}
	a := refereeAnswer(j)
	return f.form.write(out, "moonloop referee", j.Schedule, j, a.text, a.page)
}

// asRate writes a rate.
func asRate(v float64) string { return strconv.FormatFloat(v, 'g', 6, 64) + "/s" }

// ms writes milliseconds with a precision of 1 µs.
func ms(v float64) string { return strconv.FormatFloat(v, 'f', 3, 64) }

// refereeSentence returns the judgement in a sentence.
func refereeSentence(j *referee.Judgement) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s arrived", term.Counted(int64(j.Requests), "requests"))
	if j.Asked > 0 {
		fmt.Fprintf(&b, " of %s", term.Comma(int64(j.Asked)))
	}
	if j.Rate != nil {
		fmt.Fprintf(&b, ", at %s", asRate(*j.Rate))
		if j.RateAsked != nil {
			fmt.Fprintf(&b, " for %s (%+.3g %%)", asRate(*j.RateAsked), 100*(*j.Rate / *j.RateAsked - 1))
		}
	}
	if l := j.Lateness; l != nil {
		fmt.Fprintf(&b, "; %s ms late at p50, %s at p99", ms(l.P50), ms(l.P99))
	}
	if c := j.Client; c != nil {
		for _, e := range c.Errors {
			if e.Name == "ttft" {
				fmt.Fprintf(&b, "; %s's TTFT is %+.3f ms off at p50", c.Tool, e.P50)
			}
		}
	}
	return b.String()
}

// refereeFacts returns facts about the judgement, each as a name and a value.
func refereeFacts(j *referee.Judgement) [][]string {
	facts := [][]string{{"asked for", j.Schedule}}
	add := func(name, format string, args ...any) {
		facts = append(facts, []string{name, fmt.Sprintf(format, args...)})
	}
	add("zero of the schedule", "%s, chosen so that the request with the smallest delay is not late", j.Zero.UTC().Format(time.RFC3339Nano))
	by := j.PairedBy
	switch by {
	case "order":
		by = "their order"
	case "length":
		by = "the length of the output, and their order"
	default:
		by = "the number in " + by
	}
	add("requests are identified by", "%s", by)
	if j.Turns != nil {
		add("requests were due", "%s", j.Turns)
	}
	add("missing, extra", "%d, %d", j.Missing, j.Extra)
	if j.Reordered != nil {
		add("out of order", "%d", *j.Reordered)
	}
	if j.Skipped > 0 {
		add("skipped", "the first %d", j.Skipped)
	}
	if g := j.Gaps; g != nil {
		add("gaps", "coefficient of variation %.3f (a Poisson process has 1); largest distance from the exponential distribution %.1f %% (of 19 in 20 Poisson processes, at most %.1f %%)", g.Variation, 100*g.KS, 100*g.Limit)
	}
	if c := j.Client; c != nil {
		by := "the number in " + c.PairedBy
		switch c.PairedBy {
		case "X-Request-Id":
			by = c.PairedBy
		case "start":
			by = "the times at which it says that it sent them"
		case "order":
			by = "their order"
		}
		add(c.Tool+" reports", "%d requests, %d failed; identified by %s; %d of them never reached the engine; %d others did, and are not reported", c.Claims, c.Failed, by, c.Unknown, c.Untold)
		if c.OtherGaps > 0 {
			add("gaps not compared", "%d requests have a different number of gaps than the engine wrote", c.OtherGaps)
		}
	}
	return facts
}

var latenessHeader = []string{"ms", "p50", "p90", "p99", "p99.9", "max"}

func latenessCells(name string, p *referee.Percentiles) []string {
	return []string{name, ms(p.P50), ms(p.P90), ms(p.P99), ms(p.P999), ms(p.Max)}
}

// latenessRows returns the rows of the table of lateness.
func latenessRows(j *referee.Judgement) (rows [][]string) {
	if j.Lateness != nil {
		rows = append(rows, latenessCells("lateness at the engine", j.Lateness))
	}
	if c := j.Client; c != nil {
		if c.Lateness != nil {
			rows = append(rows, latenessCells("lateness by its own account", c.Lateness))
		}
		if c.Before != nil {
			rows = append(rows, latenessCells("from its start to the engine", c.Before))
		}
	}
	if j.FromSchedule != nil {
		rows = append(rows, latenessCells("from when it was due to the last token", j.FromSchedule))
	}
	return rows
}

var errorHeader = []string{"what it says − the truth, ms", "n", "p1", "p50", "p99", "worst", "p50 said", "p50 true", "p99 said", "p99 true"}

func errorRows(j *referee.Judgement) (rows [][]string) {
	if j.Client == nil {
		return nil
	}
	signed := func(v float64) string { return fmt.Sprintf("%+.3f", v) }
	for _, e := range j.Client.Errors {
		rows = append(rows, []string{
			e.Name, strconv.Itoa(e.N), signed(e.P1), signed(e.P50), signed(e.P99), signed(e.Max),
			ms(e.Claimed.P50), ms(e.True.P50), ms(e.Claimed.P99), ms(e.True.P99),
		})
	}
	return rows
}

// finite reports whether a number can be drawn.
func finite(v float64) bool { return !math.IsNaN(v) && !math.IsInf(v, 0) }
