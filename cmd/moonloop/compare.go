// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/moonloop/moonloop/internal/atomicfile"
	"github.com/moonloop/moonloop/internal/term"
	"github.com/moonloop/moonloop/study"
)

// newCompareCommand returns the command that tells whether one engine is slower than another.
func newCompareCommand() *cobra.Command {
	var metric, again, junit string
	var minimum float64
	var form answerFlags
	var rounds roundFlags
	cmd := &cobra.Command{
		Use:   "compare {A B | --run CMD_A --run CMD_B}",
		Short: "Tell whether replays B of a trace are slower than replays A",
		Args: func(cmd *cobra.Command, args []string) error {
			if rounds.given() {
				return rounds.check(args, again)
			}
			return twoFolders(cmd, args)
		},
		RunE: func(cmd *cobra.Command, dirs []string) error {
			if err := form.check(); err != nil {
				return err
			}
			primary, err := study.ParseMetric(metric) // its rule has parsed it
			if err != nil {
				return err
			}
			if rounds.given() {
				if dirs, again, err = rounds.run(cmd, primary); err != nil {
					return err
				}
			}
			if again != "" {
				dirs = append(dirs, again)
			}
			var sides [3][]*study.Run
			for i, dir := range dirs {
				if sides[i], err = study.ReadRuns(dir); err != nil {
					return err
				}
			}
			c, err := study.Compare(sides[0], sides[1], sides[2], primary, minimum)
			if err != nil {
				return err
			}
			if junit != "" {
				if err := writeWhole(junit, atomicfile.Anything, comparisonJUnit(c)); err != nil {
					return fmt.Errorf("the JUnit file %w", err)
				}
			}
			text := func(markdown bool) string { return comparisonText(c, markdown) }
			err = form.write(cmd.OutOrStdout(), "moonloop compare", dirs[0]+" and "+dirs[1], comparisonJSON(c), text, comparisonAnswer(c).page)
			if err != nil {
				return err
			}
			return exitWith(map[study.Answer]int{study.CannotTell: exitInvalid, study.Slower: exitGoals}[c.Primary.Answer])
		},
	}
	f := cmd.Flags()
	rounds.register(f)
	add(f, &metric, "metric", "ttft.p50", explains("a figure and its statistic, such as ttft.p50", study.ParseMetric))
	add(f, &minimum, "minimum-effect", 0.02, number(0.0001, 0.9))
	add(f, &again, "again", "", anyText("the name of a folder"))
	form.register(f)
	add(f, &junit, "junit", "", aFile)
	return cmd
}

func twoFolders(cmd *cobra.Command, args []string) error {
	if len(args) == 2 {
		return nil
	}
	given := "none was given"
	switch {
	case len(args) == 1:
		given = "one was given"
	case len(args) > 1:
		given = fmt.Sprintf("%d were given", len(args))
	}
	return hintError{fmt.Errorf("%s takes two folders, but %s", cmd.Name(), given), "name the folder of the runs A and the folder of the runs B, or give two commands with --run"}
}

// comparisonText returns the answer in a line, followed by the table and the runs that do not count.
func comparisonText(c *study.Comparison, markdown bool) string {
	var b strings.Builder
	p := c.Primary
	fmt.Fprintf(&b, "%s: %s\n\n", p.Metric, answerText(p))
	b.WriteString(comparisonGrid(c).render(markdown))
	fmt.Fprintf(&b, "\n\n%s; minimum effect %.3g %%; A and B are medians of runs\n", term.Counted(int64(p.Pairs), "pairs"), 100*c.Minimum)
	if c.FailedA > 0 || c.FailedB > 0 {
		fmt.Fprintf(&b, "failed requests: %.3g %% of A, %.3g %% of B; failed requests have no latency\n", c.FailedA, c.FailedB)
	}
	if a := c.Again; a != nil && (a.Answer == study.Slower || a.Answer == study.Faster) {
		fmt.Fprintf(&b, "warning: A differs from A run again, by %.2g %%: something else changes between the runs of a round\n", 100*math.Abs(a.Ratio-1))
	}
	for _, w := range c.Within {
		fmt.Fprintf(&b, "within one pair of runs, which is not evidence: %s and %s: B / A %.4f (%.4f to %.4f), from a bootstrap of %d rows in blocks of %d rows\n",
			term.Plain(w.A), term.Plain(w.B), w.Ratio, w.Low, w.High, w.Rows, w.Block)
	}
	if len(c.Moved) > 0 {
		b.WriteString("\n" + movedGrid(c).render(markdown) + "\n\n")
	}
	for _, l := range c.LeftOut {
		fmt.Fprintf(&b, "left out: %s: %s\n", term.Plain(l.Dir), term.Plain(l.Reason))
	}
	return b.String()
}

// comparisonGrid returns a table with a row for each metric, the primary one first.
func comparisonGrid(c *study.Comparison) grid {
	g := grid{Header: []string{"metric", "A", "B", "B / A", "95 % interval", "noise floor", "P", "answer"}, Numbers: 6}
	for i, r := range slices.Concat([]study.Result{c.Primary}, c.Exploratory) {
		answer := string(r.Answer)
		if i > 0 {
			answer += " (exploratory)"
		}
		row := []string{r.Metric.String(), "", "", "", "", "", "", answer}
		if r.Pairs > 0 {
			row[1], row[2], row[3] = fmt.Sprintf("%.4g %s", r.A, r.Unit), fmt.Sprintf("%.4g %s", r.B, r.Unit), fmt.Sprintf("%.4f", r.Ratio)
		}
		if r.Pairs > 1 {
			row[4], row[6] = intervalText(r.Decision), fmt.Sprintf("%.3f", r.P)
		}
		if !math.IsNaN(r.Floor) {
			row[5] = fmt.Sprintf("± %.2g %%", 100*r.Floor)
		}
		g.Rows = append(g.Rows, row)
	}
	return g
}

// movedGrid returns a table with a line for each class of the trace's rows.
func movedGrid(c *study.Comparison) grid {
	g := grid{Header: []string{"which rows moved", "", "rows", "B / A", "95 % interval", "P"}}
	before := ""
	for _, m := range c.Moved {
		row := []string{m.By, m.Class, strconv.Itoa(m.Rows), fmt.Sprintf("%.4f", m.Ratio), "", ""}
		if m.By == before {
			row[0] = ""
		}
		before = m.By
		if m.Pairs > 1 {
			row[4], row[5] = intervalText(m.Decision), fmt.Sprintf("%.3f", m.P)
		}
		g.Rows = append(g.Rows, row)
	}
	return g
}

func intervalText(d study.Decision) string { return fmt.Sprintf("%.4f to %.4f", d.Low, d.High) }

// answerText returns the answer with its figures, as the beginning of a sentence.
func answerText(r study.Result) string {
	switch {
	case r.Answer == study.CannotTell && r.Pairs < study.MinPairs:
		return fmt.Sprintf("cannot tell: %s of valid runs, and at least %d are needed", term.Counted(int64(r.Pairs), "pairs"), study.MinPairs)
	case r.Answer == study.CannotTell && r.More >= study.MaxMore:
		return "cannot tell: the runs scatter too much"
	case r.Answer == study.CannotTell:
		return "cannot tell: needs about " + term.Counted(int64(r.More), "more rounds")
	case r.Answer == study.NoDifference:
		return "no difference found"
	}
	return fmt.Sprintf("B is %s by %.2g %% (%.2g to %.2g)", r.Answer, 100*math.Abs(r.Ratio-1),
		100*min(math.Abs(r.Low-1), math.Abs(r.High-1)), 100*max(math.Abs(r.Low-1), math.Abs(r.High-1)))
}

// jsonResult is a result in the form of --json. Unknown values are null.
type jsonResult struct {
	Metric      string   `json:"metric"`
	Answer      string   `json:"answer"`
	Exploratory bool     `json:"exploratory"`
	Unit        string   `json:"unit,omitempty"`
	Pairs       int      `json:"pairs"`
	A           *float64 `json:"a"`
	B           *float64 `json:"b"`
	Ratio       *float64 `json:"ratio"`
	Low         *float64 `json:"ratio_low"`
	High        *float64 `json:"ratio_high"`
	Low90       *float64 `json:"ratio_low_90"`
	High90      *float64 `json:"ratio_high_90"`
	P           *float64 `json:"p"`
	Floor       *float64 `json:"noise_floor"`
	More        int      `json:"more_rounds,omitempty"`
}

// jsonMoved is the change of a class of the trace's rows, in the form of --json.
type jsonMoved struct {
	By     string   `json:"by"`
	Class  string   `json:"class"`
	Rows   int      `json:"rows"`
	Pairs  int      `json:"pairs"`
	Answer string   `json:"answer"`
	Ratio  float64  `json:"ratio"`
	Low    *float64 `json:"ratio_low"`
	High   *float64 `json:"ratio_high"`
	P      *float64 `json:"p"`
}

func comparisonJSON(c *study.Comparison) any {
	all := struct {
		Answer  string          `json:"answer"`
		Minimum float64         `json:"minimum_effect"`
		FailedA float64         `json:"failed_percent_a"`
		FailedB float64         `json:"failed_percent_b"`
		Metrics []jsonResult    `json:"metrics"`
		Again   string          `json:"a_against_a,omitempty"`
		Moved   []jsonMoved     `json:"moved,omitempty"`
		Within  []study.Within  `json:"within_one_pair,omitempty"`
		LeftOut []study.LeftOut `json:"left_out,omitempty"`
	}{string(c.Primary.Answer), c.Minimum, c.FailedA, c.FailedB, nil, "", nil, c.Within, c.LeftOut}
	if c.Again != nil {
		all.Again = string(c.Again.Answer)
	}
	for _, m := range c.Moved {
		one := jsonMoved{By: m.By, Class: m.Class, Rows: m.Rows, Pairs: m.Pairs, Answer: string(m.Answer), Ratio: m.Ratio}
		if m.Pairs > 1 {
			one.Low, one.High, one.P = &m.Low, &m.High, &m.P
		}
		all.Moved = append(all.Moved, one)
	}
	for i, r := range slices.Concat([]study.Result{c.Primary}, c.Exploratory) {
		known := func(v float64, least int) *float64 {
			if r.Pairs < least {
				return nil
			}
			return &v
		}
		all.Metrics = append(all.Metrics, jsonResult{
			Metric: r.Metric.String(), Answer: string(r.Answer), Exploratory: i > 0, Unit: r.Unit, Pairs: r.Pairs,
			A: known(r.A, 1), B: known(r.B, 1), Ratio: known(r.Ratio, 1), Low: known(r.Low, 2), High: known(r.High, 2), Low90: known(r.Low90, 2), High90: known(r.High90, 2),
			P: known(r.P, 2),
		})
		if r.More < study.MaxMore { // else nobody knows how many
			all.Metrics[i].More = r.More
		}
		if !math.IsNaN(r.Floor) {
			all.Metrics[i].Floor = &r.Floor
		}
	}
	return all
}
