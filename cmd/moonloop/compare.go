// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"github.com/moonloop/moonloop/internal/term"
	"github.com/moonloop/moonloop/study"
)

// newCompareCommand returns the command that tells whether one engine is slower than another.
func newCompareCommand() *cobra.Command {
	var metric string
	var minimum float64
	var asJSON, asMarkdown bool
	cmd := &cobra.Command{
		Use:   "compare A B",
		Short: "Tell whether the replays B are slower than the replays A",
		Args:  twoFolders,
		RunE: func(cmd *cobra.Command, dirs []string) error {
			if asJSON && asMarkdown {
				return errors.New("--json and --markdown are two forms of one output: leave one of them out")
			}
			primary, err := study.ParseMetric(metric)
			if err != nil {
				return fmt.Errorf("--metric: %w", err)
			}
			var sides [2][]*study.Run
			for i, dir := range dirs {
				if sides[i], err = study.ReadRuns(dir); err != nil {
					return err
				}
			}
			c, err := study.Compare(sides[0], sides[1], nil, primary, minimum)
			if err != nil {
				return err
			}
			if asJSON {
				err = encodeComparison(cmd.OutOrStdout(), c)
			} else {
				err = output(cmd.OutOrStdout(), comparisonText(c, asMarkdown))
			}
			if err != nil {
				return err
			}
			if c.Primary.Answer == study.CannotTell {
				return exitWith(exitInvalid)
			}
			if c.Primary.Answer == study.Slower {
				return exitWith(exitGoals)
			}
			return nil
		},
	}
	f := cmd.Flags()
	add(f, &metric, "metric", "ttft.p50")
	add(f, &minimum, "minimum-effect", 0.02, number(0.0001, 0.9))
	add(f, &asJSON, "json", false)
	add(f, &asMarkdown, "markdown", false)
	return cmd
}

func twoFolders(cmd *cobra.Command, args []string) error {
	if len(args) == 2 {
		return nil
	}
	given := "none was given"
	if len(args) > 0 {
		given = fmt.Sprintf("%d given", len(args))
	}
	return hintError{fmt.Errorf("%s takes two folders, and %s", cmd.Name(), given), "name the folder of the runs A, and that of the runs B"}
}

// comparisonText is the answer in a line, the table behind it, and what is no evidence.
func comparisonText(c *study.Comparison, markdown bool) string {
	var b strings.Builder
	p := c.Primary
	fmt.Fprintf(&b, "%s: %s\n\n", p.Metric, answerText(p))
	t := term.NewTable()
	t.AppendHeader(table.Row{"metric", "A", "B", "B / A", "95 % interval", "P", "answer"})
	for i, r := range slices.Concat([]study.Result{p}, c.Exploratory) {
		answer := string(r.Answer)
		if i > 0 {
			answer += " (exploratory)"
		}
		row := table.Row{r.Metric.String(), "", "", "", "", "", answer}
		if r.Pairs > 0 {
			row[1], row[2] = fmt.Sprintf("%.4g %s", r.A, r.Unit), fmt.Sprintf("%.4g %s", r.B, r.Unit)
			row[3] = fmt.Sprintf("%.4f", r.Ratio)
		}
		if r.Pairs > 1 {
			row[4], row[5] = fmt.Sprintf("%.4f to %.4f", r.Low, r.High), fmt.Sprintf("%.3f", r.P)
		}
		t.AppendRow(row)
	}
	if markdown {
		b.WriteString(t.RenderMarkdown())
	} else {
		b.WriteString(t.Render())
	}
	fmt.Fprintf(&b, "\n\n%s; minimum effect %.3g %%; A and B are medians of runs\n", term.Counted(int64(p.Pairs), "pairs"), 100*c.Minimum)
	if c.FailedA > 0 || c.FailedB > 0 {
		fmt.Fprintf(&b, "failed requests: %.3g %% of A, %.3g %% of B; what fails has no latency\n", c.FailedA, c.FailedB)
	}
	for _, l := range c.LeftOut {
		fmt.Fprintf(&b, "left out: %s: %s\n", onOneTerminal(l.Dir), onOneTerminal(l.Reason))
	}
	return b.String()
}

// answerText is the answer with its figures, as a sentence is begun.
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

// jsonResult is a result as --json writes it. What is not known is null.
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
	P           *float64 `json:"p"`
	More        int      `json:"more_rounds,omitempty"`
}

func encodeComparison(w io.Writer, c *study.Comparison) error {
	all := struct {
		Answer  string          `json:"answer"`
		Minimum float64         `json:"minimum_effect"`
		FailedA float64         `json:"failed_percent_a"`
		FailedB float64         `json:"failed_percent_b"`
		Metrics []jsonResult    `json:"metrics"`
		LeftOut []study.LeftOut `json:"left_out,omitempty"`
	}{string(c.Primary.Answer), c.Minimum, c.FailedA, c.FailedB, nil, c.LeftOut}
	for i, r := range slices.Concat([]study.Result{c.Primary}, c.Exploratory) {
		known := func(v float64, least int) *float64 {
			if r.Pairs < least {
				return nil
			}
			return &v
		}
		all.Metrics = append(all.Metrics, jsonResult{
			Metric: r.Metric.String(), Answer: string(r.Answer), Exploratory: i > 0, Unit: r.Unit, Pairs: r.Pairs,
			A: known(r.A, 1), B: known(r.B, 1), Ratio: known(r.Ratio, 1), Low: known(r.Low, 2), High: known(r.High, 2), P: known(r.P, 2), More: r.More,
		})
	}
	text, err := json.MarshalIndent(all, "", "  ")
	if err != nil {
		return fmt.Errorf("the answers cannot be written as JSON: %w", err)
	}
	return output(w, string(text)+"\n")
}
