// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"

	"github.com/moonloop/moonloop/capture"
	"github.com/moonloop/moonloop/capture/journal"
	"github.com/moonloop/moonloop/internal/term"
)

// maxListed is the maximum number of workloads in a list of journals, and of keys in a workload.
const maxListed = 1 << 12

// journalList describes the contents of journals.
type journalList struct {
	Journals  int           `json:"journals"`
	Workloads []*listedWork `json:"workloads"`
	// Others counts the spans of further workloads.
	Others int64 `json:"others,omitempty"`
	Damage int64 `json:"damaged,omitempty"` // places
	Torn   int64 `json:"torn,omitempty"`    // incomplete writes
	// LeftOut are files that are named like journals, and were not read.
	LeftOut []capture.LeftOut `json:"left_out,omitempty"`

	logged map[journal.Domain]int64 // prompts of log records, by key
}

// listedWork is production, or a replay.
type listedWork struct {
	capture.Partition
	// Spans counts spans of requests, including repetitions: only compiling shows which are the same.
	Spans int64     `json:"spans"`
	First time.Time `json:"first"` // start
	Last  time.Time `json:"last"`
	// Keys are the fingerprints of the keys of their prompts, with the number of spans and, for production, of prompts from log records: a
	// replay writes none.
	Keys map[string]int64 `json:"keys"`
}

// count counts a prompt's key.
func (w *listedWork) count(key journal.Domain, n int64) {
	if text := key.String(); key != 0 && (len(w.Keys) < maxListed || w.Keys[text] > 0) {
		w.Keys[text] += n
	}
}

// listJournals writes a list of the contents of journals.
func listJournals(ctx context.Context, w, stderr io.Writer, journals []capture.Source, asJSON bool) error {
	list := journalList{Workloads: []*listedWork{}, logged: map[journal.Domain]int64{}}
	for i := range journals {
		if err := list.add(ctx, &journals[i]); err != nil {
			if ctx.Err() != nil {
				return errInterrupted
			}
			return journalHint(err)
		}
	}
	if err := warnLeftOut(stderr, int64(list.Journals), list.LeftOut); err != nil {
		return err
	}
	if i := slices.IndexFunc(list.Workloads, func(w *listedWork) bool { return !w.Replay }); i >= 0 {
		for key, n := range list.logged {
			list.Workloads[i].count(key, n)
		}
	}
	slices.SortStableFunc(list.Workloads, func(a, b *listedWork) int { // production before replays, and these by name
		return strings.Compare(fmt.Sprint(a.Replay, a.Run), fmt.Sprint(b.Replay, b.Run))
	})
	if asJSON {
		return output(w, list)
	}
	return output(w, list.String())
}

// add reads a journal.
func (l *journalList) add(ctx context.Context, source *capture.Source) error {
	found, err := source.Read(ctx, nil, func(_ []byte, d *journal.Decoder) error {
		switch d.Kind {
		case journal.KindInference:
			l.count(&d.Inference)
		case journal.KindContent:
			if l.logged[d.Key] > 0 || len(l.logged) < maxListed {
				l.logged[d.Key]++
			}
		case journal.KindLink:
		}
		return nil
	})
	switch {
	case err != nil:
		return err
	case found.LeftOut != nil:
		l.LeftOut = append(l.LeftOut, *found.LeftOut)
		return nil
	}
	l.Damage += found.DamageCount
	l.Torn += found.Torn.Records
	l.Journals++
	return nil
}

func (l *journalList) count(r *journal.Inference) {
	p := capture.Partition{Replay: r.Row.Set || !r.Run.IsZero(), Run: r.Run}
	i := slices.IndexFunc(l.Workloads, func(w *listedWork) bool { return w.Partition == p })
	start := time.Unix(0, r.Start).UTC()
	if i < 0 {
		if len(l.Workloads) == maxListed {
			l.Others++
			return
		}
		i = len(l.Workloads)
		l.Workloads = append(l.Workloads, &listedWork{Partition: p, First: start, Last: start, Keys: map[string]int64{}})
	}
	w := l.Workloads[i]
	w.Spans++
	if start.Before(w.First) {
		w.First = start
	}
	if start.After(w.Last) {
		w.Last = start
	}
	w.count(r.Key, 1)
}

// String returns the list as a table.
func (l *journalList) String() string {
	var b strings.Builder
	if len(l.Workloads) > 0 {
		t := term.NewTable()
		t.AppendHeader(table.Row{"", "spans", "from (UTC)", "to", "keys"})
		for _, w := range l.Workloads {
			var keys []string
			for key, n := range w.Keys {
				keys = append(keys, key+" "+term.Comma(n))
			}
			slices.Sort(keys)
			t.AppendRow(table.Row{
				partitionName(w.Partition), term.Comma(w.Spans), w.First.Format(time.DateTime), w.Last.Format(time.DateTime),
				strings.Join(keys, ", "),
			})
		}
		b.WriteString(t.Render() + "\n")
	}
	parts := []string{term.Counted(int64(l.Journals), "journals")}
	if len(l.Workloads) == 0 {
		parts = append(parts, "no request in them")
	}
	for _, p := range []struct {
		n          int64
		what, rest string
	}{{l.Others, "spans", " of further replays"}, {l.Torn, "torn writes", ""}, {l.Damage, "damaged places", ""}, {int64(len(l.LeftOut)), "files", " left out"}} {
		if p.n > 0 {
			parts = append(parts, term.Counted(p.n, p.what)+p.rest)
		}
	}
	b.WriteString(strings.Join(parts, "; ") + "\n")
	return b.String()
}
