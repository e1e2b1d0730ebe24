// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/dustin/go-humanize"
	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"

	"github.com/moonloop/moonloop/capture"
	"github.com/moonloop/moonloop/mooncake"
)

// compiled is what came of journals.
type compiled struct {
	capture.Result
	// Files are the traces that were written, by what they are of.
	Files map[string]string `json:"files"`
}

// print writes a table for each trace, then what belongs to none.
func (c compiled) print(w io.Writer) error {
	var b strings.Builder
	for _, t := range c.Traces {
		c.trace(&b, t)
	}
	fmt.Fprintf(&b, "%s journals: %s inference spans, %s contents, %s other spans", comma(c.Journals), comma(c.Inferences), comma(c.Contents), comma(c.Links))
	if c.Copies > 0 {
		fmt.Fprintf(&b, ", %s of these delivered more than once", comma(c.Copies))
	}
	b.WriteString("\n")
	if c.Torn.Records > 0 {
		fmt.Fprintf(&b, "torn: %s writes that a crash cut off, %s; none of them had been acknowledged\n", comma(c.Torn.Records), size(c.Torn.Bytes))
	}
	for _, d := range c.Damage {
		fmt.Fprintf(&b, "damaged: %s\n", d.Error())
	}
	if more := c.DamageCount - int64(len(c.Damage)); more > 0 {
		fmt.Fprintf(&b, "damaged: %s more places, %s in all\n", comma(more), size(c.DamageBytes))
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// trace writes the table of one trace.
func (c compiled) trace(b *strings.Builder, t capture.TraceResult) {
	m := &t.Meta
	w := newTable()
	w.SetColumnConfigs([]table.ColumnConfig{{Number: 1, Align: text.AlignLeft}, {Number: 2, Align: text.AlignLeft}})
	file := c.Files[partitionName(t.Partition)]
	if file == "" {
		file = "not written: no rows"
	}
	w.AppendHeader(table.Row{partitionName(t.Partition), file})
	add := func(name, value string) {
		if value != "" {
			w.AppendRow(table.Row{name, value})
		}
	}
	add("rows", comma(m.Rows))
	add("ids made of", identities(*m))
	if m.Rows > 0 {
		add("block size", comma(int64(m.BlockSize))+" tokens")
		add("seq_digest", m.Digests.Seq)
		add("tree_digest", m.Digests.Tree)
		add("arrival_digest", m.Digests.Arrival)
		add("", unless(m.Digests.Reason == "", "undefined because "+m.Digests.Reason))
	}
	add("keys", strings.Join(m.HashKeys, ", "))
	add("merged", unless(t.Merged == 0, comma(t.Merged)+" spans of requests that other spans stand for"))
	for i, d := range m.Dropped {
		add([]string{"left out", ""}[min(i, 1)], fmt.Sprintf("%s %s: %s", comma(d.Count), d.What, d.Reason))
	}
	b.WriteString(w.Render() + "\n")
	if len(m.HashKeys) > 1 {
		fmt.Fprintf(b, "warning: %d keys: prompts hashed under two of them never match, so that the trace shares less than the traffic did;\n"+
			"         give all collectors one key, which also outlives a restart: MOONLOOP_HASH_KEY\n", len(m.HashKeys))
	}
	b.WriteString("\n")
}

// noRows says why there is nothing to write, as far as the counts do.
func (c compiled) noRows(opt compileOptions) error {
	if opt.run != "" {
		return hintError{fmt.Errorf("run %q has no rows in these journals", opt.run), "without --run, compile writes every run and names it"}
	}
	err := fmt.Errorf("no trace was written: the journals hold %s inference spans and no row", comma(c.Inferences))
	for _, t := range c.Traces {
		for _, d := range t.Meta.Dropped {
			if d == (mooncake.Dropped{What: "rows", Reason: "no token counts", Count: d.Count}) {
				return hintError{err, "--missing-tokens estimate keeps requests whose tokens nobody counted"}
			}
		}
	}
	if c.Inferences == 0 {
		return errors.Join(err, errors.New("spans of GenAI requests did not reach the exporter"))
	}
	return err
}

func size(n int64) string { return humanize.IBytes(uint64(max(n, 0))) }
