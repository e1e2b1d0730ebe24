// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/moonloop/moonloop/capture"
	"github.com/moonloop/moonloop/collect"
	"github.com/moonloop/moonloop/internal/atomicfile"
	"github.com/moonloop/moonloop/internal/term"
	"github.com/moonloop/moonloop/mooncake"
)

// traces are the traces that a call writes, and the facts that it reports about them.
type traces struct {
	*traceFlags
	outputs
	collect.Traces
	format string // of the inputs, for a command that reads several formats
	public bool   // the format is not telemetry
}

// write makes the traces and reports them.
func (s *traces) write(ctx context.Context, stdout io.Writer, compile func(capture.Sink) (capture.Result, error)) (capture.Result, error) {
	result, err := compile(s.Sink(s.create, s.file))
	if err != nil {
		return result, s.failed(ctx, err)
	}
	return result, s.report(stdout, result)
}

// report writes a block for each compiled trace, then what belongs to none. Every command that makes traces ends with it.
func (s *traces) report(w io.Writer, result capture.Result) error {
	if s.json {
		return s.encode(w, result)
	}
	var b strings.Builder
	general := slices.Concat(s.Lost, result.Dropped)
	for _, t := range result.Traces {
		s.trace(&b, t, general)
	}
	if result.Journals > 0 {
		text := fmt.Sprintf("%s of requests, %s", term.Counted(result.Inferences, "spans"), term.Counted(result.Links, "other spans"))
		if result.Contents > 0 {
			text += ", " + term.Counted(result.Contents, "contents")
		}
		if result.Copies > 0 {
			text += fmt.Sprintf("; %s of these delivered more than once", term.Comma(result.Copies))
		}
		fmt.Fprintf(&b, "%s: %s\n", term.Counted(result.Journals, "journals"), text)
	}
	if result.Torn.Records > 0 {
		it := "they were"
		if result.Torn.Records == 1 {
			it = "it was"
		}
		line(&b, "torn", fmt.Sprintf("%s, %s, in %s: cut off before %s acknowledged, by a crash or a full disk, or damaged afterwards, for example by a",
			term.Counted(result.Torn.Records, "writes"), term.Size(result.Torn.Bytes), few(result.TornIn), it))
		line(&b, "", "copy that is not complete; the journal does not show which")
	}
	for _, d := range result.Damage {
		line(&b, "damaged", d.Error())
	}
	if more := result.DamageCount - int64(len(result.Damage)); more > 0 {
		line(&b, "damaged", fmt.Sprintf("%s more, %s in all", term.Counted(more, "places"), term.Size(result.DamageBytes)))
	}
	for _, d := range general {
		if d.What == "records" || strings.HasPrefix(d.What, "stretches") {
			continue // reported above
		}
		line(&b, "lost", s.text(d))
	}
	return output(w, b.String())
}

// byResponse says how many of a trace's merged spans were found by their response id.
func byResponse(t capture.TraceResult) string {
	if t.MergedByResponse == 0 {
		return ""
	}
	return fmt.Sprintf(" (%s by response id)", term.Comma(t.MergedByResponse))
}

// trace writes the block of one trace.
func (s *traces) trace(b *strings.Builder, t capture.TraceResult, general []mooncake.Dropped) {
	m := t.Meta
	name := partitionName(t.Partition)
	if s.public {
		name = s.format
	}
	sum := s.Of(t.Partition)
	if sum == nil {
		fmt.Fprintf(b, "no rows of %s\n", name)
	} else {
		fmt.Fprintf(b, "%s: %s of %s\n", sum.File, term.Counted(m.Rows, "rows"), name)
		spread := term.Milliseconds(sum.Last)
		if n := sum.Sessions; n > 0 {
			spread += ", " + term.Counted(int64(n), "sessions")
		}
		line(b, "span", spread)
		line(b, "prompts", prompts(sum, m))
		line(b, "identity", term.Numbers(m.Identity))
		if o := m.ObservedCache; o != nil {
			line(b, "cache", o.String())
			if warning := o.Warning(m.BlockSize); warning != "" {
				line(b, "", "warning: "+warning)
			}
		}
		if len(m.Sampling) == 1 {
			line(b, "sample", fmt.Sprintf("%.4g %% of the requests", 100*m.Sampling[0].Rate))
		}
		if mixed := m.MixedSampling(); mixed != "" {
			line(b, "sample", "warning: "+mixed)
		}
		if i := slices.IndexFunc(m.Transformations, func(t mooncake.Transformation) bool { return t.Parameters["prompt_order"] != nil }); i >= 0 {
			line(b, "order", m.Transformations[i].Effect)
		}
	}
	out, notes := ledger(without(m.Dropped, general))
	var dropped int64
	for _, d := range out {
		dropped += d.Count
	}
	if t.Spans > 0 {
		line(b, "came in", fmt.Sprintf("%s = %s + %s merged%s + %s dropped", term.Counted(t.Spans, "spans"), term.Counted(m.Rows, "rows"), term.Comma(t.Merged), byResponse(t), term.Comma(dropped)))
	}
	for _, d := range out {
		line(b, "dropped", s.text(d))
	}
	for _, d := range notes {
		line(b, "note", s.text(d))
	}
	if sum == nil {
		return
	}
	line(b, "keys", strings.Join(m.HashKeys, ", "))
	line(b, "digests", fmt.Sprintf("seq %s  tree %s  arrival %s", term.Digest(m.Digests.Seq), term.Digest(m.Digests.Tree), term.Digest(m.Digests.Arrival)))
	for reason := range strings.SplitSeq(m.Digests.Reason, "; ") {
		line(b, "", reason)
	}
	if len(m.HashKeys) > 1 {
		fmt.Fprintf(b, "  warning: %d keys: the same prompt under two of them is two prompts, so the trace shares\n"+
			"           less than the traffic did; give all collectors one key: $%s\n", len(m.HashKeys), hashKeyEnv)
	}
}

// prompts describes how much of the prompts earlier prompts also had.
func prompts(sum *collect.Trace, m mooncake.Meta) string {
	text := term.Counted(sum.InputTokens, "tokens")
	unknown, seen := m.Identity["lengths"], 100*float64(sum.HitBlocks)/float64(max(sum.Blocks, 1))
	switch {
	case sum.Blocks == 0 || unknown >= m.Rows:
		return text + "; what they share is unknown"
	case unknown > 0:
		return fmt.Sprintf("%s; %.1f %% of their blocks had been seen before, those of %s unknown", text, seen, term.Counted(unknown, "rows"))
	}
	return fmt.Sprintf("%s; %.1f %% of their blocks had been seen before", text, seen)
}

// without removes what belongs to no trace from a sidecar's counts.
func without(list, general []mooncake.Dropped) []mooncake.Dropped {
	list = slices.Clone(list)
	for _, g := range general {
		if i := slices.IndexFunc(list, func(d mooncake.Dropped) bool {
			return d.What == g.What && d.Reason == g.Reason && d.Count >= g.Count
		}); i >= 0 {
			list[i].Count -= g.Count
		}
	}
	return slices.DeleteFunc(list, func(d mooncake.Dropped) bool { return d.Count == 0 })
}

// ledger separates the requests that are not in a trace from remarks about those that are.
func ledger(list []mooncake.Dropped) (out, notes []mooncake.Dropped) {
	for _, d := range list {
		switch {
		case d.What != "rows" && d.What != "requests" && d.What != "spans", d.Reason == "duplicate":
			notes = append(notes, d)
		default:
			out = append(out, d)
		}
	}
	return out, notes
}

// text describes what was dropped and why, with advice.
func (s *traces) text(d mooncake.Dropped) string {
	text := term.Counted(d.Count, d.What) + ": " + d.Reason
	if d.What == "rows" && d.Reason == "no token counts" && s.MissingTokens == capture.MissingDrop {
		text += " (--missing-tokens estimate keeps them)"
	}
	return text
}

// few returns the list of names as text, of many names only the first ones.
func few(names []string) string {
	const some = 3
	if more := len(names) - some; more > 0 {
		return strings.Join(names[:some], ", ") + fmt.Sprintf(" and %d more", more)
	}
	return strings.Join(names, ", ")
}

// line writes a labelled line, unless it is empty.
func line(w io.Writer, label, text string) {
	if text != "" {
		fmt.Fprintf(w, "  %-10s%s\n", label, text)
	}
}

func partitionName(p capture.Partition) string {
	switch {
	case !p.Replay:
		return "production"
	case p.Run.IsZero():
		return "a replay without a name"
	}
	return "replay " + p.Run.String()
}

// failed completes the error of a call: what exists nevertheless, and whether a signal was the cause.
func (s *traces) failed(ctx context.Context, err error) error {
	names := strings.Join(s.Written(), ", ")
	switch {
	case ctx.Err() != nil && names == "":
		return errors.New("interrupted; nothing was written")
	case ctx.Err() != nil:
		return fmt.Errorf("interrupted; of the traces only %s was written", names)
	case names != "":
		return fmt.Errorf("%w (%s was written before)", err, names)
	}
	return err
}

// made is the output of --json, the same for every command.
type made struct {
	From   string      `json:"from,omitempty"` // format of the inputs, for a command that reads several formats
	Traces []madeTrace `json:"traces"`         // hides those of Result
	capture.Result
}

type madeTrace struct {
	File string `json:"file,omitempty"` // absent: without rows nothing is written
	capture.TraceResult
	Span        float64 `json:"span_ms"`
	Sessions    int     `json:"sessions"` // counted up to a million
	InputTokens int64   `json:"input_tokens"`
	Blocks      int64   `json:"blocks"`
	HitBlocks   int64   `json:"blocks_seen_before"`
}

// encode writes what was made as JSON.
func (s *traces) encode(w io.Writer, result capture.Result) error {
	out := made{From: s.format, Traces: []madeTrace{}, Result: result}
	out.Result.Dropped = slices.Concat(s.Lost, result.Dropped)
	for _, t := range result.Traces {
		m := madeTrace{TraceResult: t}
		if sum := s.Of(t.Partition); sum != nil {
			m.File, m.Span, m.Sessions = sum.File, sum.Last, sum.Sessions
			m.InputTokens, m.Blocks, m.HitBlocks = sum.InputTokens, sum.Blocks, sum.HitBlocks
		}
		out.Traces = append(out.Traces, m)
	}
	return output(w, out)
}

// output writes the result of a command: a text unchanged, anything else as JSON.
func output(w io.Writer, result any) error {
	var err error
	if text, isText := result.(string); isText {
		_, err = io.WriteString(w, text)
	} else {
		err = encode(w, result)
	}
	if err != nil {
		return fmt.Errorf("output: %w", err)
	}
	return nil
}

// encode writes a value as JSON for people and programs.
func encode(w io.Writer, value any) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	return e.Encode(value)
}

// writeWhole writes a file completely, or leaves the old one.
func writeWhole(name string, over atomicfile.Over, write func(io.Writer) error) error {
	if err := atomicfile.Write(name, over, write); err != nil {
		return fmt.Errorf("%s cannot be written: %w", name, err)
	}
	return nil
}
