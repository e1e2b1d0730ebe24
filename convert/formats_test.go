// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/moonloop/moonloop/blockhash"
	"github.com/moonloop/moonloop/capture"
	"github.com/moonloop/moonloop/mooncake"
	"github.com/moonloop/moonloop/receiver/annotate"
)

var update = flag.Bool("update", false, "write the golden files")

// fixture returns the small file of a format in testdata/formats, which each format must have.
func fixture(t testing.TB, format Format) (name, content string) {
	t.Helper()
	names, _ := filepath.Glob(filepath.Join("testdata", "formats", string(format)+".*"))
	for _, name := range names {
		if filepath.Ext(name) != ".golden" {
			data, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			return filepath.Base(name), string(data)
		}
	}
	t.Fatalf("testdata/formats has no file of %s", format)
	return "", ""
}

// fixtureOptions returns options that make a conversion repeatable.
func fixtureOptions(t testing.TB, format Format) Options {
	t.Helper()
	key, err := annotate.ParseKey(strings.Repeat("k", blockhash.KeySize))
	if err != nil {
		t.Fatal(err)
	}
	opt := Options{Format: format, Annotate: annotate.Config{Key: key}}
	if s := format.spec(); s.verbatim {
		opt.Prompts = PromptsKeep
	}
	if format == evalscope.Format { // which does not count prompt tokens
		opt.Compile.MissingTokens = capture.MissingEstimate
	}
	return opt
}

// TestFormats converts the file of each format. Its golden file has the rows, and what the sidecar says about them and about losses.
func TestFormats(t *testing.T) {
	for _, format := range Formats() {
		if format.spec() == nil {
			continue // has tests of its own
		}
		t.Run(string(format), func(t *testing.T) {
			testFormat(t, format, fixtureOptions(t, format), string(format)+".golden")
			if format.Keeps() && !format.spec().verbatim {
				testFormat(t, format, Options{Format: format, Prompts: PromptsKeep}, string(format)+".keep.golden")
			}
		})
	}
}

func testFormat(t *testing.T, format Format, opt Options, golden string) {
	t.Helper()
	name, content := fixture(t, format)
	if got, err := Detect(name, []byte(content)); format.Detected() && got != format {
		t.Errorf("detected as %q, %v", got, err)
	}
	rows, meta := convert(t, opt, text(name, content))
	side, err := json.MarshalIndent(map[string]any{
		"block_size": meta.BlockSize, "session_mode": meta.SessionMode, "time_base": meta.TimeBase, "identity": meta.Identity,
		"dropped": dropped(meta), "effect": meta.Transformations[0].Effect,
	}, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	got := rows + string(side) + "\n"
	golden = filepath.Join("testdata", "formats", golden)
	if *update {
		if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if diff := cmp.Diff(string(want), got); diff != "" || err != nil {
		t.Errorf("%v (-golden +got); run with -update:\n%s", err, diff)
	}
}

// TestUnknownEnds: a reply whose end is not recorded has no duration, and keeps the time of its first token. Its next turn has no delay.
func TestUnknownEnds(t *testing.T) {
	ends := regexp.MustCompile(`"(endTime|end_time)": [^,]*,`)
	for format, want := range map[Format]string{
		litellm.Format:   `"observed": {"cached_tokens": 16, "ttft_ms": 250, "finish_reason": "stop"}`,
		flatSpans.Format: `"observed": {"finish_reason": "stop"}`,
	} {
		name, content := fixture(t, format)
		rows, meta := convert(t, fixtureOptions(t, format), text(name, ends.ReplaceAllString(content, "")))
		if int64(strings.Count(rows, want)) != meta.Rows || strings.Contains(rows, `"delay"`) {
			t.Errorf("%s: %s is not in each row, or a delay is:\n%s", format, want, rows)
		}
	}
}

// TestOtherForms: files of other versions, and with values that not every file has, become the rows that they describe.
func TestOtherForms(t *testing.T) {
	changed := func(format Format, from, to string) (string, map[string]int64) {
		t.Helper()
		name, content := fixture(t, format)
		if !strings.Contains(content, from) {
			t.Fatalf("%s: no %s in %s", format, from, name)
		}
		rows, meta := convert(t, fixtureOptions(t, format), text(name, strings.ReplaceAll(content, from, to)))
		return rows, dropped(meta)
	}
	if rows, _ := changed(flatSpans.Format, `"session_id": "s1",`, ""); strings.Count(rows, `"session_id"`) != 2 {
		t.Errorf("spans of one OTel trace without a session_id are not a session:\n%s", rows)
	}
	now, _ := changed(langfuse.Format, "t0", "t0")
	if old, lost := changed(langfuse.Format, `"usage_details"`, `"usage"`); old != now || lost["rows: no token counts"] > 0 {
		t.Errorf("usage of older versions (-new +old):\n%s", cmp.Diff(now, old))
	}
	const phase = `"benchmark_phase": "profiling"`
	name, line := fixture(t, aiperfProfile.Format)
	rows, meta := convert(t, fixtureOptions(t, aiperfProfile.Format), text(name, line+strings.ReplaceAll(line, phase, `"benchmark_phase": "warmup"`)))
	if strings.Count(rows, "\n") != 1 || dropped(meta)["rows: of a warm-up"] != 1 {
		t.Errorf("with requests of a warm-up: %v\n%s", dropped(meta), rows)
	}
	name, line = fixture(t, evalscope.Format)
	opt := fixtureOptions(t, evalscope.Format)
	opt.Compile.MissingTokens = capture.MissingDrop
	_, err := Convert(t.Context(), opt, writeTo(io.Discard).sink, text(name, line))
	if err == nil || !strings.Contains(err.Error(), "no token counts (--missing-tokens estimate keeps them)") {
		t.Errorf("without token counts: %v", err)
	}
}

// requestsOf counts the requests that a sidecar accounts for.
func requestsOf(meta *mooncake.Meta) int64 {
	n := meta.Rows
	for _, d := range meta.Dropped {
		if d.What == "rows" || d.What == "requests" || d.What == "spans" || d.What == "lines" {
			n += d.Count
		}
	}
	return n
}

// TestHostileFiles damages the file of each format in various ways: it is cut off anywhere, and its values are replaced. The result is an
// error that names the line, or rows that can be read again; never a panic, and no request is lost without being counted.
func TestHostileFiles(t *testing.T) {
	if testing.Short() {
		t.Skip("one goroutine works: the race detector would find nothing")
	}
	values := []string{`-1`, `NaN`, `1e400`, `18446744073709551616`, `"` + secret + `"`, `{}`, `[[]]`, ``}
	number := regexp.MustCompile(`[0-9][0-9.]*`)
	for _, format := range Formats() {
		if format.spec() == nil {
			continue
		}
		name, content := fixture(t, format)
		_, whole := convert(t, fixtureOptions(t, format), text(name, content))
		check := func(what, content string, cut bool) {
			var out strings.Builder
			w := writeTo(&out)
			opt := fixtureOptions(t, format)
			opt.MaxLine = 1 << 16
			_, err := Convert(t.Context(), opt, w.sink, text(name, content))
			if err != nil {
				if row, ok := errors.AsType[*mooncake.RowError](err); ok && (row.File != name || row.Line == 0) || strings.Contains(err.Error(), secret) {
					t.Errorf("%s, %s: %v", name, what, err)
				}
				return
			}
			if got, want := requestsOf(w.meta), requestsOf(whole); got != want && !cut {
				t.Errorf("%s, %s: %d requests are rows or counted, want %d", name, what, got, want)
			}
			if strings.Contains(out.String(), secret) && !format.Telemetry() {
				return // a session or a model of that name
			}
			r := mooncake.NewReader(strings.NewReader(out.String()), mooncake.ReaderOptions{BlockSize: w.meta.BlockSize, FineBlockSize: w.meta.FineBlockSize})
			for n := int64(0); ; n++ {
				switch _, err := r.Read(); {
				case errors.Is(err, io.EOF) && n == w.meta.Rows:
					return
				case err != nil:
					t.Errorf("%s, %s: row %d of %d: %v", name, what, n+1, w.meta.Rows, err)
					return
				}
			}
		}
		for cut := 0; cut < len(content); cut += 1 + len(content)/29 {
			check(fmt.Sprintf("cut at %d", cut), content[:cut], true)
		}
		places := number.FindAllStringIndex(content, -1)
		for i, at := range places {
			if most := 40; len(places) > most && i%(len(places)/most) > 0 {
				continue // enough of a long file
			}
			for _, v := range values {
				check(fmt.Sprintf("%.20s at %d", v, at[0]), content[:at[0]]+v+content[at[1]:], false)
			}
		}
	}
}

// FuzzRecord: the common reader accepts arbitrary bytes as a record of any shape without a panic, and what it splits off is in the file.
func FuzzRecord(f *testing.F) {
	for _, format := range Formats() {
		if format.spec() != nil {
			_, content := fixture(f, format)
			f.Add(content[:min(len(content), 1000)])
		}
	}
	f.Fuzz(func(t *testing.T, content string) {
		for _, table := range []bool{false, true} {
			l := newLines(strings.NewReader(content), "f", 1<<16, "", table)
			var lost losses
			d := decoder{spec: &spec{table: table, decode: readAll}, opt: &Options{}, lost: &lost}
			for last := int64(1); ; {
				record, err := l.next()
				if err != nil {
					break
				}
				if l.line() < last || l.line() > int64(strings.Count(content, "\n"))+1 || !strings.Contains(content, string(record)) {
					t.Fatalf("record at line %d, after %d", l.line(), last)
				}
				last = l.line()
				if fault := d.read(record); fault != nil && strings.TrimSpace(fault.Rule) == "" {
					t.Fatalf("a fault without a rule: %+v", fault)
				}
			}
		}
	})
}

// readAll reads each field of a record with every method.
func readAll(d *decoder, r *record) {
	for _, f := range r.fields {
		n := f.name
		r.count(n)
		r.integer(n)
		r.span(time.Microsecond, n)
		r.instant(n)
		r.at(time.Second, n)
		r.name(n)
		r.text(n)
		r.texts(n)
		r.yes(n)
		r.ids(n)
		r.digests(n)
		r.reason(n)
		r.raw(n)
		r.encoded(n, true)
		r.objects(func(o *record) { readAll(d, o) }, n)
		readAll(d, r.object(n))
	}
	r.unread(func(string) {})
}
