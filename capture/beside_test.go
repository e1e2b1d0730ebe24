// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/moonloop/moonloop/capture/journal"
)

// beside returns the options for one journal among those that were written before and after it.
func beside(o Options, before, after []byte) Options {
	o.Before, o.After = []Source{buffer("before", before)}, []Source{buffer("after", after)}
	return o
}

// TestBesideCompletes: records of a journal next to the compiled one complete its requests, and never become rows.
func TestBesideCompletes(t *testing.T) {
	client := call(1, 1, 0, 0, noTokens, inSession(5))
	gateway := call(2, 2, 1, 0)
	gateway.Joined = ref(1, 1)
	for _, c := range []struct {
		why           string
		before, after []journal.Record
		want          []string
	}{
		{"the client's span, before", []journal.Record{client}, nil, []string{"1/2 0 1000 10 [0 1] 0000000000000005"}},
		{"the client's span, after", nil, []journal.Record{client}, []string{"1/2 0 1000 10 [0 1] 0000000000000005"}},
		{"the client's span, before, and a link that is not above it, after", []journal.Record{client}, []journal.Record{&journal.Link{Span: ref(1, 7), Session: 6}}, []string{"1/2 0 1000 10 [0 1] 0000000000000005"}},
		{"requests of other traces", []journal.Record{call(3, 1, 0, 0)}, []journal.Record{call(4, 1, 0, 0, failed)}, []string{"1/2 0 1000 10 [0 1]"}},
		{"the engine's span, below the request", nil, []journal.Record{call(1, 3, 2, 0)}, nil},
		{"a span that a link joins to the request", nil, []journal.Record{gateway}, []string{"1/2 0 1000 10 [0 1]"}},
		{"the record itself, before", []journal.Record{call(1, 2, 1, 0, engine(9, 8))}, nil, nil},
		{"the record itself, after", nil, []journal.Record{call(1, 2, 1, 0, engine(9, 8))}, []string{"1/2 0 1000 10 [0 1]"}},
		{"content of no request", []journal.Record{&journal.Content{Span: ref(1, 8), Parent: sid(9)}}, nil, []string{"1/2 0 1000 10 [0 1]"}},
		{"the client's span, before, and damage after", []journal.Record{client}, nil, []string{"1/2 0 1000 10 [0 1] 0000000000000005"}},
	} {
		for _, spans := range []int{0, 1} { // a trace of any size, and one that is too large
			o := beside(Options{MaxTraceSpans: spans}, journalOf(c.before...), append(journalOf(c.after...), "damage"...))
			m, res := compileBytes(t, o, journalOf(call(1, 2, 1, 0, engine(9, 8))))
			var got []string
			if m[production] != nil {
				for _, row := range m.rows(t, production) {
					text := line(row)
					if row.SessionID != "" {
						text += " " + row.SessionID
					}
					got = append(got, text)
				}
			}
			if spans == 0 {
				equal(t, c.why, c.want, got)
			}
			if n := res.Inferences + res.Contents + res.Links + res.Journals; n != 2 || res.DamageCount+res.Torn.Records > 0 {
				t.Errorf("%s: %+v counts what is outside the journal", c.why, res)
			}
			for _, trace := range res.Traces {
				if len(trace.Meta.Dropped) > 0 && spans == 0 || trace.Spans > 1 {
					t.Errorf("%s: %d spans, dropped %v", c.why, trace.Spans, trace.Meta.Dropped)
				}
			}
		}
	}
}

// TestBesideIsExact deals requests of two spans, and some records twice, to three journals. Each request is a row of exactly one journal,
// with the facts from the spans above it, and together the rows are those of the three journals compiled together.
func TestBesideIsExact(t *testing.T) {
	otherInput(t)
	for seed := range uint64(20) {
		rng := rand.New(rand.NewPCG(seed, 1))
		var dealt [3][]journal.Record
		for trace := range uint64(200) {
			n := 1 + rng.IntN(3) // its records go to journal n-1 or to the one before it
			for _, r := range []journal.Record{call(trace+1, 1, 0, int64(trace), noTokens, inSession(journal.Session(trace+1))), call(trace+1, 2, 1, int64(trace))} {
				for range 1 + rng.IntN(5)/4 {
					at := max(0, n-1-rng.IntN(2))
					dealt[at] = append(dealt[at], r)
				}
			}
		}
		var journals [3][]byte
		for i := range journals {
			journals[i] = journalOf(dealt[i]...)
		}
		rowsOf := func(m memory) (rows []string) {
			if m[production] == nil {
				return nil
			}
			for _, row := range m.rows(t, production) {
				rows = append(rows, fmt.Sprintf("%x %s", row.OTel.TraceID, row.SessionID))
			}
			return rows
		}
		all, _ := compileBytes(t, Options{}, journals[:]...)
		want, got := rowsOf(all), []string(nil)
		for i, j := range journals {
			o := Options{Memory: 1 << uint(10+rng.IntN(15))}
			for k, other := range journals {
				switch {
				case k < i:
					o.Before = append(o.Before, buffer("before", other))
				case k > i:
					o.After = append(o.After, buffer("after", other))
				}
			}
			one, _ := compileBytes(t, o, j)
			got = append(got, rowsOf(one)...)
		}
		slices.Sort(want)
		slices.Sort(got)
		equal(t, fmt.Sprintf("seed %d", seed), want, got)
		equal(t, "rows", 200, len(want))
	}
}
