// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/moonloop/moonloop/agent/measure"
)

// This file writes the table in the format of UCM's TraceReplay, for people and programs that compare its results.

// Layout is the layout of the table of figures.
type Layout string

// The layouts.
const (
	LayoutMoonloop    Layout = "moonloop"    // a line for each figure, with AIPerf's columns
	LayoutTraceReplay Layout = "tracereplay" // a line for each number, with the names of TraceReplay and vLLM's bench
)

// The widths, in columns, of the table's rules and of its column of names.
const (
	servingWidth = 50
	servingName  = 40
)

// servingPercentiles are the default percentiles of the table. The median has its own line.
var servingPercentiles = Percentiles{"25", "75", "90", "99"}

// servingLatencies are the table's blocks, one for each latency. As in TraceReplay and vLLM's bench, time to first token ends with the
// first chunk that has a choice, and inter-token latency is the time between two chunks.
var servingLatencies = []struct {
	name, title string
	id          measure.ID
}{
	{"TTFT", "Time to First Token", measure.TTFE},
	{"TPOT", "Time per Output Token (excl. 1st token)", measure.TPOT},
	{"ITL", "Inter-token Latency", measure.InterChunk},
	{"E2EL", "End-to-end Latency", measure.Latency},
}

// serving renders the table. A figure that was not measured has no line.
func (r *Report) serving() string {
	var b strings.Builder
	rule := func(text string, with byte) {
		left := (servingWidth - len(text)) / 2
		b.WriteString(strings.Repeat(string(with), left) + text + strings.Repeat(string(with), servingWidth-len(text)-left) + "\n")
	}
	line := func(name, value string) { fmt.Fprintf(&b, "%-*s %s\n", servingName, name+":", value) }
	single := func(name string, id measure.ID) {
		if s, ok := r.Shown().Stat(id); ok {
			line(name, decimal(s.Avg))
		}
	}
	rule(" Serving Benchmark Result ", '=')
	line("Successful requests", strconv.FormatInt(r.Shown().Rows.Served, 10))
	single("Benchmark duration (s)", measure.Duration)
	line("Total input tokens", strconv.FormatInt(wholeNumber(r.Shown(), measure.TotalInput), 10))
	if _, ok := r.Shown().Stat(measure.TotalOutput); ok {
		line("Total generated tokens", strconv.FormatInt(wholeNumber(r.Shown(), measure.TotalOutput), 10))
	}
	single("Request throughput (req/s)", measure.RequestThroughput)
	if r.Shown().SLO.Any() {
		single("Request goodput (req/s)", measure.Goodput)
	}
	single("Output token throughput (tok/s)", measure.TokenThroughput)
	single("Total Token throughput (tok/s)", measure.TotalThroughput)
	percentiles := r.Percentiles
	if len(percentiles) == 0 {
		percentiles = servingPercentiles
	}
	for _, l := range servingLatencies {
		s, ok := r.Shown().Stat(l.id)
		if !ok {
			continue
		}
		rule(l.title, '-')
		of := func(what string, v float64) { line(what+" "+l.name+" (ms)", decimal(v)) }
		of("Mean", s.Avg)
		of("Median", s.P50)
		of("Std", s.Std)
		for _, p := range percentiles {
			of("P"+p, percentileColumns[p](&s))
		}
	}
	b.WriteString(strings.Repeat("=", servingWidth) + "\n")
	return b.String()
}
