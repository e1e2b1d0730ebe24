// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"slices"
	"strings"
	"testing"

	"github.com/moonloop/moonloop/agent/judge"
	"github.com/moonloop/moonloop/agent/measure"
)

// The table has the labels of the run, in the order of their names.
func TestLabels(t *testing.T) {
	r := sample(t)
	r.Run.Labels = map[string]string{"team": "search", "commit": "abc"}
	var b strings.Builder
	if err := r.Table(&b, Width, false); err != nil {
		t.Fatal(err)
	}
	if want := "\nLabels      commit=abc\n            team=search\n"; !strings.Contains(b.String(), want) {
		t.Errorf("%s\ndoes not have %q", b.String(), want)
	}
}

// TestHostileNames: names from a trace or an engine never reach a terminal as commands.
func TestHostileNames(t *testing.T) {
	const hostile = "\x1b[31mred"
	r := Report{figures: &measure.Figures{
		Classes: []measure.ClassFigures{{Class: hostile}, {}},
		Servers: []measure.ServerFigures{{Server: hostile}},
	}}
	r.Run.Labels = map[string]string{"commit": hostile}
	text := strings.Join(slices.Concat(r.classLines(), r.engineLines(), r.labelLines()), "\n")
	if strings.Contains(text, "\x1b") || strings.Count(text, `\x1b[31mred: `) != 2 || !strings.Contains(text, "(none): ") || !strings.Contains(text, `commit=\x1b[31mred`) {
		t.Errorf("%q", text)
	}
}

// What others said, in warnings, in errors and in the verdicts of shards, does not reach a terminal as commands either.
func TestHostileAnswers(t *testing.T) {
	const hostile = "\x1b[31mred"
	r := Report{
		Warnings: []string{hostile}, Missed: []string{hostile},
		Verdict: judge.Verdict{Reasons: []judge.Reason{{Text: hostile}}, Unknown: []string{hostile}},
		figures: &measure.Figures{Errors: []measure.Reason{{Reason: hostile, Example: hostile}}},
	}
	var b strings.Builder
	if err := r.Table(&b, Width, false); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(b.String(), "\x1b") || strings.Count(b.String(), `\x1b[31mred`) != 6 {
		t.Errorf("%q", b.String())
	}
}
