// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/moonloop/moonloop/mooncake"
	"github.com/moonloop/moonloop/mooncake/stats"
)

// comparison is the result of comparing a trace with the first one: by their digests if these are defined, else row by row, for which both
// traces are read again.
type comparison struct {
	Trace   string `json:"trace"`
	Against string `json:"against"`
	// Same is absent if it cannot be told whether the traces are the same workload.
	Same *bool `json:"same,omitempty"`
	// Rows is present when rows were compared.
	Rows *stats.Comparison `json:"by_rows,omitempty"`

	text string // for people
}

// compareTraces compares each further trace with the first.
func compareTraces(ctx context.Context, names []string, traces []inspected, opt inspectOptions) (all []comparison, err error) {
	for i := 1; i < len(traces); i++ {
		c := comparison{Trace: traces[i].Trace, Against: traces[0].Trace}
		a, b := traces[0].Digests, traces[i].Digests
		switch same := a.Same(b); {
		case a.Defined() && b.Defined():
			c.Same, c.text = &same, digestText(a, b)
		case slices.Contains([]string{names[0], names[i]}, "-"):
			c.text = "cannot be told: a digest is undefined, and standard input cannot be read twice to compare rows"
		default:
			if c.Rows, err = compareRows(ctx, names[0], names[i], opt); err != nil {
				return nil, err
			}
			same = c.Rows.Same()
			c.Same, c.text = &same, c.Rows.String()
		}
		all = append(all, c)
	}
	return all, nil
}

// sameWorkload reports whether all traces are the same workload; nil if that is unknown.
func sameWorkload(all []comparison) *bool {
	same, unknown := true, false
	for _, c := range all {
		unknown = unknown || c.Same == nil
		same = same && (c.Same == nil || *c.Same)
	}
	if same && unknown {
		return nil
	}
	return &same
}

// digestText describes the comparison of digests in a sentence. All of them must be defined.
func digestText(a, b mooncake.Digests) string {
	var differ []string
	for _, d := range []struct{ name, a, b string }{
		{"sequence", a.Seq, b.Seq}, {"tree", a.Tree, b.Tree}, {"arrival", a.Arrival, b.Arrival}, {"range", a.Ranges, b.Ranges},
	} {
		if d.a != d.b {
			differ = append(differ, d.name+" differs")
		}
	}
	if len(differ) == 0 {
		return "the same workload: all digests agree"
	}
	return "not the same workload: " + strings.Join(differ, ", ")
}

// compareRows reads two traces again, side by side.
func compareRows(ctx context.Context, first, other string, opt inspectOptions) (_ *stats.Comparison, err error) {
	var readers [2]*mooncake.Reader
	var compare stats.CompareOptions
	compare.MaxIDs = opt.maxIDs
	for i, name := range []string{first, other} {
		read := mooncake.OpenOptions{BlockSize: opt.blockSize, FineBlockSize: opt.fine, MaxLine: opt.maxLine, Unit: opt.unit, Map: opt.mapping}
		if opt.lenient {
			read.Reject = func(mooncake.Rejected) error { return nil } // counted when the trace was read first
		}
		trace, err := mooncake.Open(ctx, name, read)
		if err != nil {
			return nil, err
		}
		defer func() { _ = trace.Close() }()
		readers[i] = trace.Reader
	}
	c, err := stats.Compare(ctx, readers[0], readers[1], compare)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("%s against %s: %w", displayName(other), displayName(first), err)
	}
	return c, nil
}
