// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package page

import (
	"encoding/csv"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/moonloop/moonloop/agent/measure"
	"github.com/moonloop/moonloop/agent/report/lines"
)

// sheet reads a CSV file of the folder, and returns each row as a map by column name.
func sheet(t *testing.T, dir, name string) (rows []map[string]string) {
	t.Helper()
	f, err := os.Open(filepath.Join(dir, name))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	lines, err := csv.NewReader(f).ReadAll() // which checks that all lines have the same number of cells
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range lines[1:] {
		row := map[string]string{}
		for i, cell := range line {
			row[lines[0][i]] = cell
		}
		rows = append(rows, row)
	}
	return rows
}

// saved writes records to a folder, loads it, and saves its sheets.
func saved(t *testing.T, records string, slice time.Duration) (dir string) {
	t.Helper()
	dir = folder(t, map[string]string{summaryFile: smallSummary, lines.File: records})
	r, err := Load(dir, slice)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.SaveSheets(); err != nil {
		t.Fatal(err)
	}
	return dir
}

// TestTextOfATrace: a text from a trace is neither a formula in a spreadsheet nor a command to a terminal, and ids stay as they are.
func TestTextOfATrace(t *testing.T) {
	for id, want := range map[string]string{
		"conversation-7":           "conversation-7",
		"-kX3_q9":                  "-kX3_q9",
		"+49/30:7=":                "+49/30:7=",
		"a=b":                      "a=b",
		"'quoted":                  "'quoted",
		`=cmd|' /C calc'!A0`:       `'=cmd|' /C calc'!A0`,
		"@SUM(1)":                  "'@SUM(1)",
		"-2+3+cmd|' /C calc'!A0":   "'-2+3+cmd|' /C calc'!A0",
		"+HYPERLINK(\"http://e\")": "'+HYPERLINK(\"http://e\")",
		"\t=1":                     "'\t=1",
		"\r=1":                     `\x0d=1`,
		"＝1":                       "'＝1",
		"－1\n+f(1)":                "'－1\n+f(1)",
		"\x1b[31mred":              `\x1b[31mred`,
	} {
		var b strings.Builder
		s := Sheet{Header: []string{"session_id"}, Rows: [][]any{{id}}}
		if err := s.CSV(&b); err != nil {
			t.Fatal(err)
		}
		lines, err := csv.NewReader(strings.NewReader(b.String())).ReadAll()
		if err != nil {
			t.Fatal(err)
		}
		if got := lines[1][0]; got != want {
			t.Errorf("%q: %q, want %q", id, got, want)
		}
	}
}

// TestSeries: each request is counted in the slices in which it began, ran and ended. A slice without requests has a line without
// durations. The sum of the tokens does not depend on the length of a slice.
func TestSeries(t *testing.T) {
	// Ends: 1020 (in the second slice), 1045 and 3660 ms; replies of 3, 6 and 3 tokens.
	records := line(0, 990, 10, 10, 3) + line(1, 1000, 20, 5, 6) + line(2, 3600, 40, 10, 3) +
		`{"input_length": 7, "output_length": 1, "result": {"outcome":"failed","reason":"500","row":3,"intended":3700,"dispatched":3702,"start":3702,"end":3750,"lateness_ms":2}}` + "\n"
	rows := sheet(t, saved(t, records, 0), SeriesFile)
	column := func(name string) (cells []string) {
		for _, row := range rows {
			cells = append(cells, row[name])
		}
		return cells
	}
	for name, want := range map[string][]string{
		"start_s": {"0", "1", "2", "3"}, "length_s": {"1", "1", "1", "1"},
		"due": {"1", "1", "0", "2"}, "sent": {"1", "1", "0", "2"}, "finished": {"0", "2", "0", "2"}, "failed": {"0", "0", "0", "1"},
		"in_flight": {"1", "0", "0", "0"}, "input_tokens": {"1000", "1000", "0", "1000"},
		"output_tokens": {"0", "9", "0", "3"}, "output_tokens_per_s": {"0", "9", "0", "3"},
		"ttft_ms_p50": {"10", "20", "", "40"}, "ttft_ms_p99": {"10", "20", "", "40"},
		"itl_ms_p50": {"", "5", "", "10"}, "itl_ms_p99": {"", "10", "", "10"},
		"lateness_ms_max": {"0", "0", "", "2"}, "cached_pct": {"51.2", "51.2", "", "51.2"},
	} {
		if diff := cmp.Diff(want, column(name)); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
	for _, width := range []time.Duration{time.Millisecond, 70 * time.Millisecond, time.Hour} {
		rows = sheet(t, saved(t, records, width), SeriesFile)
		sum := 0
		for _, cell := range column("output_tokens") {
			n, _ := strconv.Atoi(cell)
			sum += n
		}
		want := max(1, int(math.Floor(3750/float64(width/time.Millisecond)))+1)
		if sum != 12 || len(rows) != want {
			t.Errorf("slices of %v: %d tokens in %d lines, want 12 in %d", width, sum, len(rows), want)
		}
	}
}

// TestSeriesFailed: requests that were cancelled, or disconnected on purpose, have not failed. The page draws all that were not served.
func TestSeriesFailed(t *testing.T) {
	records := line(0, 1000, 10, 5, 3)
	for i, outcome := range []string{"failed", "cancelled", "disconnected", "disconnected"} {
		records += fmt.Sprintf(`{"input_length": 7, "output_length": 1, "result": {"outcome":%q,"row":%d,"intended":1100,"dispatched":1100,"start":1100,"end":1200}}`+"\n", outcome, i+1)
	}
	dir := saved(t, records, 0)
	if row := sheet(t, dir, SeriesFile)[1]; row["finished"] != "5" || row["failed"] != "1" {
		t.Errorf("%s finished, %s failed; want 5 and 1", row["finished"], row["failed"])
	}
	s := load(t, dir).line.series()
	if got := s.Unserved[0] * s.Width; got != 4 {
		t.Errorf("the page draws %v requests that were not served, want 4", got)
	}
}

// TestLikeTheSummary: tables and page count the requests that the summary counts. Tokens are those of requests that were served, latencies
// those of requests that were also sent only once.
func TestLikeTheSummary(t *testing.T) {
	again := func(row int, with string) string {
		return strings.Replace(line(row, 1000, 700, 90, 3), `"outcome"`, with+`,"outcome"`, 1)
	}
	records := line(0, 1000, 10, 5, 3) + again(1, `"attempts":2`) + again(2, `"attempts":1,"resent":1`) +
		strings.Replace(line(3, 1000, 800, 90, 3), `"served"`, `"failed"`, 1) + line(4, 1000, 10, 5, 1)
	records = strings.ReplaceAll(records, `{"timestamp"`, `{"session_id": "s", "timestamp"`)
	dir := saved(t, records, time.Hour)
	series := sheet(t, dir, SeriesFile)[0]
	for name, want := range map[string]string{
		"ttft_ms_p99": "10", "itl_ms_p50": "5", "itl_ms_p99": "5", "input_tokens": "4000", "output_tokens": "10", "cached_pct": "51.2",
	} {
		if series[name] != want {
			t.Errorf("%s of a slice: %s, want %s", name, series[name], want)
		}
	}
	if s := sheet(t, dir, SessionsFile)[0]; s["ttft_ms_max"] != "10" || s["itl_ms_mean"] != "5" || s["output_tokens"] != "10" {
		t.Errorf("of a session: TTFT %s, ITL %s, %s output tokens; want 10, 5 and 10", s["ttft_ms_max"], s["itl_ms_mean"], s["output_tokens"])
	}
	r := load(t, folder(t, map[string]string{lines.Partial: records}))
	for _, id := range []measure.ID{measure.TTFT, measure.ITL, measure.InterChunk, measure.Latency} {
		if got := *r.figures[id].Max; got > 25 {
			t.Errorf("figure %d of the killed run: up to %v ms", id, got)
		}
	}
	if len(r.byTTFT.rows) != 2 || len(r.byTotal.rows) != 2 || len(r.points.points) != 4 {
		t.Errorf("%d and %d slowest requests, %d points of cached tokens; want 2, 2 and 4", len(r.byTTFT.rows), len(r.byTotal.rows), len(r.points.points))
	}
	if s := r.line.series(); *s.TTFT99[0] > 11 || *s.ITL99[0] > 6 || *s.Gap99[0] > 6 {
		t.Errorf("the charts show %v, %v and %v ms", *s.TTFT99[0], *s.ITL99[0], *s.Gap99[0])
	}
}

// TestTimePerTokenOfChoices: as in the summary, a reply of two choices has twice the tokens, each of which comes as fast. Without the engine's
// count, only the chunks of one choice are counted.
func TestTimePerTokenOfChoices(t *testing.T) {
	number := func(n int64) *int64 { return &n }
	at := func(ms float64) *float64 { return &ms }
	for name, c := range map[string]struct {
		count  *usage
		tokens []float64
	}{"usage": {&usage{Completion: number(8)}, nil}, "tokens of chunks": {nil, []float64{2, 2, 2, 2}}, "chunks": {nil, nil}} {
		r := record{Result: outcome{
			Outcome: measure.Served.String(), First: at(0), Last: at(60), Gaps: []float64{20, 20, 20}, Choices: 2, Usage: c.count, Tokens: c.tokens,
		}}
		if got, known := r.itl(); !known || got != 20 {
			t.Errorf("%s: %v ms, want 20", name, got)
		}
	}
}

// TestSeriesIsBounded: a run with too many slices gets longer ones. Each line says how long its slice is, and percentiles are exact.
func TestSeriesIsBounded(t *testing.T) {
	var records strings.Builder
	var want []float64
	for i := range 1000 {
		ttft := float64(1 + i*7919%1000)
		want = append(want, ttft)
		records.WriteString(line(i, float64(i)*250, ttft, 1, 2)) // 250 s, in slices of 1 ms
	}
	dir := saved(t, records.String(), time.Millisecond)
	rows := sheet(t, dir, SeriesFile)
	if len(rows) > maxSlices || rows[0]["length_s"] != "0.004" {
		t.Errorf("%d lines of %s s", len(rows), rows[0]["length_s"])
	}
	slices.Sort(want)
	rows = sheet(t, saved(t, records.String(), time.Hour), SeriesFile)
	if got := rows[0]["ttft_ms_p90"]; len(rows) != 1 || got != fmt.Sprint(want[899]) {
		t.Errorf("p90 in %d lines is %s, want %v", len(rows), got, want[899])
	}
}

// TestSessions: each session has a line of figures. Without sessions there is no file. Sessions above the maximum share one line,
// with none below it, whatever its id.
func TestSessions(t *testing.T) {
	of := func(session, record string) string {
		return strings.Replace(record, "{", `{"session_id": "`+session+`", `, 1)
	}
	records := of("a", line(0, 0, 10, 5, 3)) + of("b", line(1, 100, 20, 5, 3)) + of("a", line(2, 2000, 30, 10, 3)) + line(3, 3000, 1, 1, 2) +
		`{"session_id": "b", "input_length": 7, "output_length": 1, "result": {"outcome":"skipped","reason":"session_failed","row":4}}` + "\n"
	want := []map[string]string{
		{
			"session_id": "a", "rows": "2", "served": "2", "skipped": "0", "start_s": "0", "duration_s": "2.05", "input_tokens": "2000", "output_tokens": "6",
			"ttft_ms_mean": "20", "ttft_ms_max": "30", "itl_ms_mean": "7.5", "cached_tokens": "1024", "cached_pct": "51.2", "predicted_cached_tokens": "1024", "predicted_cached_pct": "51.2",
		},
		{
			"session_id": "b", "rows": "2", "served": "1", "skipped": "1", "start_s": "0.1", "duration_s": "0.03", "input_tokens": "1000", "output_tokens": "3",
			"ttft_ms_mean": "20", "ttft_ms_max": "20", "itl_ms_mean": "5", "cached_tokens": "512", "cached_pct": "51.2", "predicted_cached_tokens": "512", "predicted_cached_pct": "51.2",
		},
	}
	if diff := cmp.Diff(want, sheet(t, saved(t, records, 0), SessionsFile)); diff != "" {
		t.Error(diff)
	}
	if _, err := os.Stat(filepath.Join(saved(t, line(0, 0, 1, 1, 2), 0), SessionsFile)); !os.IsNotExist(err) {
		t.Errorf("a run without sessions has %s: %v", SessionsFile, err)
	}
	var many sessions
	many.add(&record{Session: otherSessions})
	for i := range maxSessions + 9 {
		many.add(&record{Session: strconv.Itoa(i)})
	}
	many.add(&record{Session: otherSessions})
	if first := many.order[0]; first.rows != 2 {
		t.Errorf("session %q has %d rows, want 2", first.id, first.rows)
	}
	if last := many.order[len(many.order)-1]; len(many.order) != maxSessions+1 || last.id != otherSessions || last.rows != 10 {
		t.Errorf("%d lines, the last of which is %q with %d rows", len(many.order), last.id, last.rows)
	}
}
