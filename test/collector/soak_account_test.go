// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package collector

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/moonloop/moonloop/capture"
)

// summary is the part of the agent's summary.json that is compared with other sources.
type summary struct {
	Verdict struct {
		Class   string `json:"class"`
		Reasons []struct {
			Metric string `json:"metric"`
		} `json:"reasons"`
	} `json:"verdict"`
	Rows      struct{ Total, Served, Failed, Cancelled, Skipped int64 } `json:"rows"`
	Telemetry struct {
		Ended    int64            `json:"spans_ended"`
		Accepted int64            `json:"spans_accepted"`
		Lost     map[string]int64 `json:"spans_lost"`
		Events   int64            `json:"span_events_dropped"`
	} `json:"telemetry"`
}

// accounted counts what became of everything that was sent.
type accounted struct {
	replay             summary
	records            int64 // lines of requests.jsonl
	production, run    capture.TraceResult
	compiled, segments int // journals, and those that were compiled while traffic came
	twice, missing     int64
	forwarded, unsent  int64 // spans at the backend, and lost ones
}

// account follows every row and every request of production to the compiled trace.
func (r *soaked) account(t *testing.T) accounted {
	t.Helper()
	var a accounted
	content, err := os.ReadFile(filepath.Join(r.dir, "replay", "summary.json"))
	if err != nil {
		t.Fatalf("the replay ended with status %d: %v", r.exit, err)
	}
	if err := json.Unmarshal(content, &a.replay); err != nil {
		t.Fatal(err)
	}
	a.records = lines(t, filepath.Join(r.dir, "replay", "requests.jsonl"))
	s := a.replay
	if r.lasts >= soakJudged && (r.exit != 0 || s.Verdict.Class != "valid" && s.Verdict.Class != "degraded") {
		t.Errorf("the replay's verdict is %s %v, exit status %d: the rate is more than this machine sustains", s.Verdict.Class, s.Verdict.Reasons, r.exit)
	}
	if a.records != r.rows || s.Rows.Total != r.rows || s.Rows.Served+s.Rows.Failed+s.Rows.Cancelled+s.Rows.Skipped != r.rows {
		t.Errorf("%d rows in the trace, %d records, and in the summary %+v", r.rows, a.records, s.Rows)
	}
	if s.Telemetry.Ended != s.Telemetry.Accepted || s.Telemetry.Events != 0 || s.Telemetry.Ended < r.rows {
		t.Errorf("the agent lost telemetry: %+v", s.Telemetry)
	}

	c := compile(t, r.dir)
	a.compiled = c.files
	for _, trace := range c.result.Traces {
		if trace.Replay {
			a.run = trace
		} else {
			a.production = trace
		}
	}
	sent := r.shop.sent.Load()
	for n := range uint64(sent) {
		switch c.rows[spanOf(n+1)] {
		case 1:
		case 0:
			a.missing++
		default:
			a.twice++
		}
	}
	if a.missing+a.twice > 0 || int64(len(c.rows)) != sent || a.production.Meta.Identity["text"] != sent {
		t.Errorf("of %d requests of production %d are missing and %d twice; %d rows, of which %d have blocks of their text",
			sent, a.missing, a.twice, len(c.rows), a.production.Meta.Identity["text"])
	}
	var apart int64 // requests of calibration
	for _, d := range a.run.Meta.Dropped {
		if d.What == "spans" && d.Reason == "of a replay without a row" {
			apart = d.Count
		}
	}
	if a.run.Spans != r.rows+apart || apart > 3 || a.run.Meta.Rows != s.Rows.Served {
		t.Errorf("of %d rows, %d served, the journals have %d spans, which make %d rows; dropped %v",
			r.rows, s.Rows.Served, a.run.Spans, a.run.Meta.Rows, a.run.Meta.Dropped)
	}
	if c.result.DamageCount+c.result.Torn.Records > 0 {
		t.Errorf("%d places of the journals are damaged, %d records torn", c.result.DamageCount, c.result.Torn.Records)
	}
	traces, err := filepath.Glob(filepath.Join(r.dir, "traces", "*Z-??????.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	if a.segments = len(traces); a.segments == 0 {
		t.Errorf("none of %d journals was compiled while traffic came", a.compiled)
	}
	a.forwarded = r.counter(t, "otelcol_exporter_sent_spans_total", "jaeger")
	a.unsent = r.counter(t, "otelcol_exporter_send_failed_spans_total", "jaeger") + r.counter(t, "otelcol_exporter_enqueue_failed_spans_total", "jaeger")
	if want := sent + a.replay.Telemetry.Accepted; a.forwarded+a.unsent < want {
		t.Errorf("%d spans were forwarded and %d not, of %d", a.forwarded, a.unsent, want)
	}
	if r.dropped == 0 {
		t.Error("no connection was dropped: nothing was tested")
	}
	if before, after := r.idle[0], r.idle[1]; after.files > before.files+idleSlack || after.goroutines > before.goroutines+idleSlack {
		t.Errorf("after the traffic the Collector kept %d descriptors and %d goroutines; before it had %d and %d",
			after.files, after.goroutines, before.files, before.goroutines)
	}
	return a
}

// soakJudged is the shortest soak in which the replay's verdict counts: in a shorter one, a short delay weighs too much.
const soakJudged = time.Minute

// counter returns a counter of the Collector for one of its exporters; 0 if it does not exist.
func (r *soaked) counter(t *testing.T, name, exporter string) int64 {
	t.Helper()
	match := regexp.MustCompile(`(?m)^` + name + `\{[^}]*exporter="[^"]*` + exporter + `"[^}]*\} (\S+)$`).FindStringSubmatch(r.metrics)
	if match == nil {
		return 0
	}
	n, err := strconv.ParseFloat(match[1], 64)
	if err != nil {
		t.Fatal(err)
	}
	return int64(n)
}

// report prints the tables and writes them to a file.
func (r *soaked) report(t *testing.T, a accounted, name string) {
	t.Helper()
	var b bytes.Buffer
	fmt.Fprintf(&b, "# Soak of %v\n\n", r.lasts)
	fmt.Fprintf(&b, "%d processors, %s, %s/%s. %.1f rows/s replayed (%d rows, every token an event), %.0f requests/s of production.\n\n",
		runtime.NumCPU(), runtime.Version(), runtime.GOOS, runtime.GOARCH, r.rate, r.rows, shopPerRow*r.rate)
	fmt.Fprintf(&b, "Medians of %v after the first %v, and of the last %v; spread is that of the middle half of the samples.\n\n", r.window(), r.warm(), r.window())
	fmt.Fprintln(&b, "| process | figure | after warm-up | at the end | change | spread | |")
	fmt.Fprintln(&b, "|---|---|---:|---:|---:|---:|---|")
	for _, w := range r.all {
		for _, g := range grown(t, w, r.warm(), r.window(), r.lasts) {
			verdict := "pass"
			switch {
			case w.pattern == nil:
				verdict = "not judged"
			case g.share() > 0.05 || g.share() < -0.05:
				verdict = "**fail**"
			}
			fmt.Fprintf(&b, "| %s | %s | %.1f | %.1f | %+.1f %% | %.1f | %s |\n", g.process, g.figure, g.before, g.after, 100*g.share(), g.spread, verdict)
		}
		fmt.Fprintf(&b, "| %s | cores | %.2f | %.2f | | | |\n", w.name, w.cores(r.warm(), r.warm()+r.window()), w.cores(r.lasts-r.window(), r.lasts))
	}
	s := a.replay
	fmt.Fprintln(&b, "\n| accounted for | |\n|---|---|")
	line := func(what, format string, args ...any) {
		fmt.Fprintf(&b, "| %s | %s |\n", what, fmt.Sprintf(format, args...))
	}
	line("rows of the trace; records; spans in the journals", "%d; %d; %d", r.rows, a.records, a.run.Spans)
	line("rows served, failed, cancelled, skipped; compiled", "%d, %d, %d, %d; %d", s.Rows.Served, s.Rows.Failed, s.Rows.Cancelled, s.Rows.Skipped, a.run.Meta.Rows)
	line("agent's spans ended; accepted; token events dropped", "%d; %d; %d", s.Telemetry.Ended, s.Telemetry.Accepted, s.Telemetry.Events)
	line("requests of production acknowledged; rows; missing; twice", "%d; %d; %d; %d", r.shop.sent.Load(), a.production.Meta.Rows, a.missing, a.twice)
	line("prompts in log records; rows with blocks of their text", "%d; %d", r.shop.records.Load(), a.production.Meta.Identity["text"])
	line("exports that were refused at first and sent again", "%d", r.shop.patience.resent.Load())
	line("spans forwarded to the backend; counted as not forwarded", "%d; %d", a.forwarded, a.unsent)
	line("journals; compiled while traffic came", "%d; %d", a.compiled, a.segments)
	line("connections of production; dropped by strangers", "%d; %d", r.shop.connections.Load(), r.dropped)
	line("Collector's descriptors and goroutines before the traffic; after it", "%d, %d; %d, %d", r.idle[0].files, r.idle[0].goroutines, r.idle[1].files, r.idle[1].goroutines)
	reasons := ""
	for _, reason := range s.Verdict.Reasons {
		reasons += " " + reason.Metric
	}
	line("the replay's verdict; exit status", "%s; %d", strings.TrimSpace(s.Verdict.Class+reasons), r.exit)
	if err := os.WriteFile(name, b.Bytes(), 0o600); err != nil {
		t.Error(err)
	}
	t.Logf("%s\n%s", name, b.String())
}

// lines counts the lines of a file.
func lines(t *testing.T, name string) (n int64) {
	t.Helper()
	file, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	buffer := make([]byte, 1<<16)
	for {
		read, err := file.Read(buffer)
		n += int64(bytes.Count(buffer[:read], []byte("\n")))
		if err == io.EOF {
			return n
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}
