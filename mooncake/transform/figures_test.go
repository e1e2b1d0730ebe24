// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package transform

import (
	"bytes"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/moonloop/moonloop/mooncake"
	"github.com/moonloop/moonloop/mooncake/generate"
)

// talks returns a trace with conversations under one system prompt, without what a transformation leaves out at its end: replies, and
// delays after a missing row.
func talks(t *testing.T, seed uint64, rows int64) []byte {
	t.Helper()
	c := generate.Default()
	c.Seed, c.Rows, c.Rate, c.Turns, c.SessionIDs = seed, rows, 10, 4, true
	var file bytes.Buffer
	if err := generate.Generate(c, mooncake.NewWriter(&file).Write); err != nil {
		t.Fatal(err)
	}
	return file.Bytes()
}

// TestFiguresOfSteps: the sidecar's figures for each of several steps are those of the same steps done separately, one after the other.
func TestFiguresOfSteps(t *testing.T) {
	data := talks(t, 7, 600)
	for name, steps := range map[string][]Config{
		"filters": {{End: 40 * time.Second}, {MaxInput: 9000}, {MinOutput: 100}, {MaxContext: 8000}, {Conversations: 60}},
		"load":    {{Start: 5 * time.Second}, {Scale: 0.5}, {OutputScale: 2}, {TimeScale: 0.5}},
		"copies":  {{Scale: 2.5}, {InputScale: 0.7}, {MaxGap: 20 * time.Millisecond}, {ToModels: []string{"a"}}, {TimeScale: 3}},
		"blocks":  {{MinInput: 2000}, {Roots: 3}, {BlockSize: 1024}, {TimeScale: 3}},
		"turns":   {{MaxInput: 9000}, {PrefixScale: 0.5}, {Turns: TurnsFromStart, MaxDelay: time.Second}, {ToModels: []string{"a", "b"}}},
	} {
		t.Run(name, func(t *testing.T) {
			var all Config
			for _, c := range steps {
				all = both(all, c)
			}
			_, _, together := transformed(t, all, source(data, 0))
			if len(together.Steps) != len(steps) {
				t.Fatalf("%d steps are described, want %d: %+v", len(together.Steps), len(steps), together.Steps)
			}
			before := together.Before
			rows := data
			for i, c := range steps {
				got := together.Steps[i]
				if d := cmp.Diff(before, *got.Before); d != "" {
					t.Errorf("%s: Before differs from After of the previous step (-after +before):\n%s", got.Name, d)
				}
				out, _, alone := transformed(t, c, source(rows, 0))
				// Times are rounded to the nanosecond between two calls.
				if d := cmp.Diff(alone.Steps[0], got, cmpopts.EquateApprox(1e-9, 1e-9), cmpopts.IgnoreFields(mooncake.Transformation{}, "Parameters")); d != "" {
					t.Errorf("%s (-alone +together):\n%s", got.Name, d)
				}
				if *got.Before == *got.After && c.ToModels == nil {
					t.Errorf("%s changes nothing: the test shows little", got.Name)
				}
				before = *got.After
				var next bytes.Buffer
				w := mooncake.NewWriter(&next)
				for _, row := range out {
					if err := w.Write(row); err != nil {
						t.Fatal(err)
					}
				}
				rows = next.Bytes()
				if c.BlockSize > 0 { // a trace with other blocks needs a sidecar that says so, which this test does not write
					break
				}
			}
		})
	}
}

// both returns a configuration that does what two configurations without a common step do.
func both(a, b Config) Config {
	a.Start, a.End, a.MinInput, a.MaxInput, a.MinOutput, a.MaxContext = a.Start+b.Start, a.End+b.End, a.MinInput+b.MinInput, a.MaxInput+b.MaxInput, a.MinOutput+b.MinOutput, a.MaxContext+b.MaxContext
	a.Conversations, a.First, a.Scale, a.Roots = a.Conversations+b.Conversations, a.First+b.First, a.Scale+b.Scale, a.Roots+b.Roots
	a.InputScale, a.PrefixScale, a.OutputScale, a.TimeScale = a.InputScale+b.InputScale, a.PrefixScale+b.PrefixScale, a.OutputScale+b.OutputScale, a.TimeScale+b.TimeScale
	a.BlockSize, a.MaxGap, a.MaxDelay, a.Turns, a.ToModels = a.BlockSize+b.BlockSize, a.MaxGap+b.MaxGap, a.MaxDelay+b.MaxDelay, a.Turns+b.Turns, append(a.ToModels, b.ToModels...)
	return a
}

// TestFiguresOfSources: a step that joins has the figures of each trace.
func TestFiguresOfSources(t *testing.T) {
	a, b := talks(t, 1, 300), talks(t, 2, 200)
	for _, join := range []Join{JoinAppend, JoinMerge} {
		_, _, r := transformed(t, Config{Join: join, MaxInput: 9000}, source(a, 0), source(b, 0))
		step := r.Steps[0]
		if step.Name != string(join) || step.Before != nil || len(step.Sources) != 2 || len(r.Steps) != 2 {
			t.Fatalf("%+v", r.Steps)
		}
		for i, data := range [][]byte{a, b} {
			_, _, alone := transformed(t, Config{TimeScale: 2}, source(data, 0))
			if d := cmp.Diff(alone.Before, step.Sources[i], cmpopts.EquateApprox(1e-9, 1e-9)); d != "" {
				t.Errorf("%s, source %d (-alone +joined):\n%s", join, i, d)
			}
		}
		if step.After.Rows != step.Sources[0].Rows+step.Sources[1].Rows || *step.After != r.Before || *step.After != *r.Steps[1].Before {
			t.Errorf("%s: %+v", join, r)
		}
	}
}
