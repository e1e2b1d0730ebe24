// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"strconv"
	"time"

	"github.com/moonloop/moonloop/agent/clock"
	"github.com/moonloop/moonloop/agent/measure"
)

// members are keys of an object with their values, in order.
type members []member

type member struct {
	key   string
	value any
}

// MarshalJSON writes the object.
func (all members) MarshalJSON() ([]byte, error) {
	joined := []byte("{")
	for _, m := range all {
		value, err := json.Marshal(m.value)
		if err != nil {
			return nil, fmt.Errorf("%s: its %s cannot be written: %w", SummaryJSON, m.key, err)
		}
		joined = append(fmt.Appendf(joined, "%q:", m.key), append(value, ',')...)
	}
	joined[len(joined)-1] = '}'
	return joined, nil
}

// errorEntry has the form of AIPerf's error_summary.
type errorEntry struct {
	Details struct {
		Type    string `json:"type"`
		Message string `json:"message,omitempty"`
	} `json:"error_details"`
	Count int64 `json:"count"`
}

// fidelity describes how exactly the replay did what the trace required.
type fidelity struct {
	Schedule struct {
		measure.Schedule
		WindowWidth     float64 `json:"window_ms"`
		PeakWidth       float64 `json:"peak_concurrency_resolution_ms"`
		PeakTokensWidth float64 `json:"peak_output_token_throughput_window_ms"`
	} `json:"schedule"`
	Tokens      measure.Tokens      `json:"tokens"`
	Cache       cache               `json:"cache"`
	Replies     *measure.Replies    `json:"replies,omitempty"` // of rows that have replies
	Chunks      measure.Chunks      `json:"chunks"`
	Connections measure.Connections `json:"connections"`
	Machine     Machine             `json:"machine"`
}

type cache struct {
	measure.Cache
	Realisation *float64 `json:"realisation"` // null when unknown
}

// single is a figure that is one number, in AIPerf's format.
type single struct {
	Unit string  `json:"unit"`
	Avg  float64 `json:"avg"`
}

// JSON returns the content of summary.json, indented: the sections of the run, then each figure under its tag, then the details of the
// figures. As in AIPerf's file, the figures are next to the sections, in a stable order.
func (r *Report) JSON() ([]byte, error) {
	joined, err := r.members().MarshalJSON()
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	if err := json.Indent(&out, append(joined, '\n'), "", "  "); err != nil {
		return nil, fmt.Errorf("%s cannot be written: %w", SummaryJSON, err)
	}
	return out.Bytes(), nil
}

// members returns the members of summary.json. Its schema is generated from their types.
func (r *Report) members() members {
	f := r.figures
	all := members{
		{"schema_version", SchemaVersion},
		{"run", r.Run},
		{"start_time", stamp(r.Run.Start)},
		{"end_time", stamp(r.Run.End)},
		{"was_cancelled", r.Run.Interrupted},
		{"verdict", r.Verdict},
	}
	all = append(all, figureMembers(f)...)
	if s := r.Steady; s != nil {
		steady := members{{"window", s.Window}, {"rows", s.figures.Rows}, {"error_summary", entries(s.figures.Errors)}}
		all = append(all, member{"steady_state", append(steady, figureMembers(s.figures)...)})
	}
	if config, sources := SettingsByName(r.Settings); config != nil {
		all = append(all, member{"config", config}, member{"config_sources", sources})
	}
	if f.SLO.Any() {
		all = append(all, member{"slo", f.SLO.String()})
	}
	if r.Warmup != nil {
		all = append(all, member{"warmup", r.Warmup})
	}
	if r.Saved != nil {
		all = append(all, member{"saved_prompts", r.Saved})
	}
	all = append(all, members{
		{"rows", f.Rows},
		{"error_summary", entries(f.Errors)},
		{"skip_summary", entries(f.Skips)},
	}...)
	if len(f.Servers) > 0 {
		all = append(all, member{"servers", f.Servers})
	}
	if len(f.Classes) > 0 {
		all = append(all, member{"classes", f.Classes})
	}
	all = append(all, members{{"trace", r.Trace}, {"schedule", r.Schedule}}...)
	if r.Shard != nil {
		all = append(all, member{"shard", r.Shard})
	}
	if r.Merged != nil {
		all = append(all, member{"shards", r.Merged})
	}
	if r.Resumed != nil {
		all = append(all, member{"resumed", r.Resumed})
	}
	return append(all, members{
		{"fidelity", r.fidelity()},
		{"telemetry", r.Telemetry},
		{"warnings", append([]string{}, r.Warnings...)}, // null would not be a list
		{"goals_missed", append([]string{}, r.Missed...)},
	}...)
}

// figureMembers returns the figures by their tags.
func figureMembers(f *measure.Figures) (all members) {
	for id, s := range f.All {
		all = append(all, figureMember(id, s))
	}
	return all
}

func figureMember(id measure.ID, s measure.Stat) member {
	if id.Single() {
		return member{id.String(), single{s.Unit, s.Avg}}
	}
	return member{id.String(), s}
}

func (r *Report) fidelity() (d fidelity) {
	f := r.figures
	d.Tokens, d.Cache.Cache, d.Chunks, d.Connections, d.Machine = f.Tokens, f.Cache, f.Chunks, f.Connections, r.Machine
	d.Replies = known(f.Replies, f.Replies.Needed > 0)
	d.Cache.Realisation = known(f.Cache.Realisation, f.Cache.Realisation >= 0)
	s := &d.Schedule
	s.Schedule = f.Schedule
	s.WindowWidth, s.PeakWidth, s.PeakTokensWidth = clock.Millis(s.Schedule.WindowWidth), clock.Millis(s.Schedule.PeakWidth), clock.Millis(s.Schedule.PeakTokensWidth)
	return d
}

func entries(reasons []measure.Reason) []errorEntry {
	list := make([]errorEntry, len(reasons))
	for i, r := range reasons {
		list[i].Details.Type, list[i].Details.Message, list[i].Count = r.Reason, r.Example, r.Count
	}
	return list
}

func stamp(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339Nano)
}

// CSV writes summary.csv: a line for each figure, with a column for each statistic. The columns have AIPerf's names and order, followed by
// our additional ones (p999, count, sum). The lines of each class and those of the steady state, if there are any, come last. A
// single number is in column avg, as in summary.json. So the file is one table, unlike AIPerf's export, which has two with an empty line
// between them.
func (r *Report) CSV(w io.Writer) error {
	lines := [][]string{{"Metric", "avg", "min", "max", "p1", "p5", "p10", "p25", "p50", "p75", "p90", "p95", "p99", "std", "p999", "count", "sum"}}
	add := func(prefix string, all iter.Seq2[measure.ID, measure.Stat]) {
		for id, s := range all {
			line := make([]string, len(lines[0]))
			line[0], line[1] = prefix+id.Define().Title+" ("+s.Unit+")", decimal(s.Avg)
			if !id.Single() {
				for i, v := range statistics(s) {
					line[1+i] = decimal(v)
				}
				line[len(line)-2], line[len(line)-1] = strconv.FormatInt(s.Count, 10), decimal(s.Sum)
			}
			lines = append(lines, line)
		}
	}
	add("", r.figures.All)
	for _, c := range r.figures.Classes {
		add("Class "+className(c.Class)+": ", c.All)
	}
	if r.Steady != nil {
		add("Steady State ", r.Steady.figures.All)
	}
	if err := csv.NewWriter(w).WriteAll(lines); err != nil {
		return fmt.Errorf("summary.csv cannot be written: %w", err)
	}
	return nil
}

func statistics(s measure.Stat) []float64 {
	return []float64{s.Avg, s.Min, s.Max, s.P1, s.P5, s.P10, s.P25, s.P50, s.P75, s.P90, s.P95, s.P99, s.Std, s.P999}
}

func decimal(v float64) string { return strconv.FormatFloat(v, 'f', 2, 64) }

// known returns a value that JSON omits if it is unknown.
func known[T any](v T, ok bool) *T {
	if !ok {
		return nil
	}
	return &v
}
