// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package export

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/parquet-go/parquet-go"
	"github.com/xuri/excelize/v2"

	"github.com/moonloop/moonloop/agent/report"
	"github.com/moonloop/moonloop/agent/report/lines"
	"github.com/moonloop/moonloop/agent/report/page"
)

const (
	served = `{"timestamp": 1500, "input_length": 1000, "output_length": 3, "hash_ids": [1, 2], "session_id": "a", "model": "m", "result": {"outcome":"served","row":0,"turn":0,` +
		`"intended":0.5,"dispatched":0.5,"admitted":0.5,"start":0.6,"wire":0.7,"first":10.6,"last":20.6,"end":21,"lateness_ms":0.01,"ttft_ms":10,"latency_ms":20,"itl_ms":5,"gaps_ms":[4,6],` +
		`"usage":{"prompt_tokens":1000,"completion_tokens":3,"cached_tokens":512},"predicted_cached_tokens":512,"prompt_agreement":"equal","output_agreement":"equal","status":200,"attempts":1,` +
		`"connection_reused":true,"finish_reason":"length","trace_id":"0123456789abcdef0123456789abcdef","span_id":"0123456789abcdef"}}` + "\n"
	failed = `{"timestamp": 1501, "input_length": 7, "output_length": 1, "result": {"outcome":"failed","reason":"500","message":"=cmd|' /C calc'!A0","row":1,"turn":0,"intended":1.5,"start":1.5,"end":2}}` + "\n"
	// torn is an incomplete line of a run that was killed.
	torn = `{"timestamp": 1502, "input_le`
)

func folder(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

const (
	summary = `{"schema_version":"1.0","run":{"id":"run-1"}}`
	figures = "Metric,avg,p50\nTime to First Token (ms),10.00,10.00\nRequest Count (requests),1.00,\n"
)

// TestWorkbook: the sheets have the figures as numbers, each request a row, nothing where nothing is known, and text is never a formula.
func TestWorkbook(t *testing.T) {
	for name, tc := range map[string]struct {
		files  map[string]string
		sheets []string
	}{
		"whole":  {map[string]string{report.SummaryJSON: summary, report.SummaryCSV: figures, report.RequestsFile: served + failed}, []string{"summary", "requests", "series", "sessions"}},
		"killed": {map[string]string{report.PartialFile: served + failed + torn}, []string{"summary", "requests", "series", "sessions"}},
	} {
		t.Run(name, func(t *testing.T) {
			dir := folder(t, tc.files)
			run, err := page.Load(dir, 0)
			if err != nil {
				t.Fatal(err)
			}
			file := filepath.Join(dir, "run.xlsx")
			if left, err := Workbook(run, dir, file); err != nil || left != 0 {
				t.Fatal(left, err)
			}
			book, err := excelize.OpenFile(file)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = book.Close() }()
			if diff := cmp.Diff(tc.sheets, book.GetSheetList()); diff != "" {
				t.Errorf("sheets: %s", diff)
			}
			for _, name := range tc.sheets {
				if area, err := book.GetSheetDimension(name); area != "" || err != nil { // openpyxl would read no more than that
					t.Errorf("%s claims to be %s (%v)", name, area, err)
				}
			}
			rows, err := book.GetRows("requests")
			if err != nil || len(rows) != 3 {
				t.Fatalf("%d rows of requests: %v", len(rows), err)
			}
			column := map[string]int{}
			for i, name := range rows[0] {
				column[name] = i
			}
			at := func(row int, name string) string {
				if i, is := column[name]; is && i < len(rows[row]) {
					return rows[row][i]
				}
				return ""
			}
			for name, want := range map[string][2]string{
				"outcome": {"served", "failed"}, "row": {"0", "1"}, "timestamp": {"1500", "1501"}, "session_id": {"a", ""}, "ttft_ms": {"10", ""},
				"cached_tokens": {"512", ""}, "completion_tokens": {"3", ""}, "gaps": {"2", "0"}, "lateness_ms": {"0.01", ""}, "message": {"", "=cmd|' /C calc'!A0"},
			} {
				if got := [2]string{at(1, name), at(2, name)}; got != want {
					t.Errorf("%s: %q, want %q", name, got, want)
				}
			}
			cell, _ := excelize.CoordinatesToCellName(column["message"]+1, 3)
			if formula, err := book.GetCellFormula("requests", cell); formula != "" || err != nil {
				t.Errorf("a message is the formula %q (%v)", formula, err)
			}
			cell, _ = excelize.CoordinatesToCellName(column["ttft_ms"]+1, 2)
			if kind, err := book.GetCellType("requests", cell); kind != excelize.CellTypeNumber && kind != excelize.CellTypeUnset || err != nil {
				t.Errorf("a duration is a cell of type %v (%v)", kind, err)
			}
			if rows, err := book.GetRows("series"); err != nil || len(rows) != 2 || rows[1][0] != "0" || rows[1][3] != "2" {
				t.Errorf("series: %q, %v", rows, err)
			}
			if name == "killed" {
				rows, err := book.GetRows("summary")
				if err != nil || len(rows) < 3 || len(rows[1]) != 8 || rows[1][0] != "Time to First Token (ms)" || rows[1][2] != "10" || rows[1][7] != "1" ||
					!strings.Contains(rows[len(rows)-1][0], "did not end: these are figures of the 2 requests") {
					t.Errorf("summary: %q, %v", rows, err)
				}
				return
			}
			if rows, err := book.GetRows("summary"); err != nil || !cmp.Equal(rows, [][]string{{"Metric", "avg", "p50"}, {"Time to First Token (ms)", "10", "10"}, {"Request Count (requests)", "1"}}) {
				t.Errorf("summary: %q, %v", rows, err)
			}
		})
	}
}

// TestParquet: the library reads back what a folder has, row by row; unknown values are null, not 0.
func TestParquet(t *testing.T) {
	for name, files := range map[string]map[string]string{
		"whole": {report.RequestsFile: served + failed}, "killed": {report.PartialFile: served + failed + torn},
	} {
		t.Run(name, func(t *testing.T) {
			dir := folder(t, files)
			file := filepath.Join(dir, "requests.parquet")
			if err := Parquet(dir, file); err != nil {
				t.Fatal(err)
			}
			var want []Request
			if err := lines.Read(dir, parseRequest, func(r *Request) error { want = append(want, *r); return nil }); err != nil {
				t.Fatal(err)
			}
			got, err := parquet.ReadFile[Request](file)
			if err != nil {
				t.Fatal(err)
			}
			for i := range got {
				if len(got[i].Gaps) == 0 {
					got[i].Gaps = nil
				}
			}
			if diff := cmp.Diff(want, got); diff != "" || len(got) != 2 {
				t.Errorf("%d rows, %s", len(got), diff)
			}
			if got[1].TTFT != nil || got[0].TTFT == nil || *got[0].TTFT != 10 || *got[0].Cached != 512 || len(got[0].Gaps) != 2 {
				t.Errorf("the first row: %+v", got[0])
			}
		})
	}
}

// TestSummaryOfOthers: a summary that a replay cannot have written is an error that says why.
func TestSummaryOfOthers(t *testing.T) {
	for content, want := range map[string]string{"": "it is empty", "\"": "extraneous or missing"} {
		if _, err := summarySheet(folder(t, map[string]string{report.SummaryCSV: content})); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("summary %q: error %v, want %q", content, err, want)
		}
	}
}

// TestRefusals: a folder without a run is an error, and leaves no file.
func TestRefusals(t *testing.T) {
	for name, tc := range map[string]struct {
		files map[string]string
		want  string
	}{
		"empty":   {nil, "name the folder given to"},
		"a trace": {map[string]string{report.RequestsFile: `{"timestamp": 0}` + "\n"}, `line 1: no field "result"`},
		"torn":    {map[string]string{report.RequestsFile: served + torn}, "line 2: unexpected end"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := folder(t, tc.files)
			if err := Parquet(dir, filepath.Join(dir, "p")); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("error %v, want %q", err, tc.want)
			}
			for _, name := range []string{"p", "p.partial"} {
				if _, err := os.Stat(filepath.Join(dir, name)); !errors.Is(err, os.ErrNotExist) {
					t.Errorf("%s is left behind: %v", name, err)
				}
			}
		})
	}
}
