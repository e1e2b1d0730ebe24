// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/moonloop/moonloop/blockhash"
	"github.com/moonloop/moonloop/capture"
	"github.com/moonloop/moonloop/capture/journal"
	"github.com/moonloop/moonloop/internal/term"
	"github.com/moonloop/moonloop/mooncake"
)

// TestCompileScripts runs moonloop compile on journals that the test writes: the scripts in testdata/compile.
func TestCompileScripts(t *testing.T) {
	t.Parallel()
	testscript.Run(t, testscript.Params{
		Dir: filepath.Join("testdata", "compile"),
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"exits":    scriptExits,
			"journals": scriptJournals,
			"damage":   scriptDamage,
			"cut":      scriptCut,
		},
		Setup: scriptSetup,
	})
}

// scriptJournals writes journals with 20 requests of production in conversations, some with text, and with two replays: journals DIR
// NUMBER [WHAT]. The records are dealt to NUMBER files in turn. With WHAT, there is only production: keys (two different keys),
// raw (no token counts), logs (prompts in log records), or links (no requests).
func scriptJournals(ts *testscript.TestScript, _ bool, args []string) {
	if len(args) < 2 || len(args[1]) != 1 {
		ts.Fatalf("usage: journals DIR NUMBER [WHAT]")
	}
	what := strings.Join(args[2:], "")
	dir := ts.MkAbs(args[0])
	ts.Check(os.MkdirAll(dir, 0o700))
	var writers []*journal.Writer
	for i := range int(args[1][0] - '0') {
		w, err := journal.OpenWriter(filepath.Join(dir, string(rune('a'+i))+".journal"), journal.WriterOptions{NoSync: true})
		ts.Check(err)
		writers = append(writers, w)
	}
	records, err := sampleRecords(what)
	ts.Check(err)
	for i, r := range records {
		ts.Check(writers[i%len(writers)].Append(r))
	}
	for _, w := range writers {
		ts.Check(w.Close())
	}
}

// scriptDamage changes a byte in the middle of a file: damage FILE
func scriptDamage(ts *testscript.TestScript, _ bool, args []string) {
	name := ts.MkAbs(args[0])
	b, err := os.ReadFile(name)
	ts.Check(err)
	b[len(b)/2] ^= 0x55
	ts.Check(os.WriteFile(name, b, 0o600))
}

// scriptCut takes bytes off the end of a file: cut FILE BYTES
func scriptCut(ts *testscript.TestScript, _ bool, args []string) {
	name := ts.MkAbs(args[0])
	info, err := os.Stat(name)
	ts.Check(err)
	n, err := strconv.ParseInt(args[1], 10, 64)
	ts.Check(err)
	ts.Check(os.Truncate(name, info.Size()-n))
}

func sampleRecords(what string) ([]journal.Record, error) {
	key, err := blockhash.NewKey(bytes.Repeat([]byte{7}, blockhash.KeySize))
	if err != nil {
		return nil, err
	}
	h, err := blockhash.NewHasher(key, blockhash.TextDomain(key))
	if err != nil {
		return nil, err
	}
	domain, err := journal.ParseDomain(blockhash.TextDomain(key))
	if err != nil {
		return nil, err
	}
	run := func(s string) journal.Name {
		n, _ := journal.ParseName(s) // as written here
		return n
	}
	text := strings.Repeat("The library opens at nine, the museum at ten. ", 400)
	var out []journal.Record
	for i := range int64(20) {
		r := &journal.Inference{
			Span: sampleSpan(uint64(i), 2), Parent: sampleSpan(0, 1).SpanID,
			Start: 1_750_000_000*1e9 + i*1e8, End: 1_750_000_000*1e9 + i*1e8 + 5e7,
			InputTokens: mooncake.Some(1000 + 100*i), OutputTokens: mooncake.Some[int64](20),
		}
		if i%2 == 0 {
			h.Reset()
			h.Role("user")
			h.Text(text[:4000+400*i])
			r.Prompt = journal.Prompt{Identity: journal.Text, Domain: domain, Key: 0x0a0b0c0d, Chain: h.Chain()}
			r.Chain.Ends = slices.Clone(r.Chain.Ends)
			if what == "keys" && i%4 == 0 {
				r.Key = 0x01020304
			}
			if what == "logs" {
				out = append(out, &journal.Content{Span: sampleSpan(uint64(i), 3), Parent: r.Span.SpanID, Start: r.Start, Prompt: r.Prompt})
				r.Prompt = journal.Prompt{}
			}
		}
		if what == "raw" {
			r.InputTokens = mooncake.Opt[int64]{}
		}
		l := &journal.Link{Span: sampleSpan(uint64(i), 1), Session: journal.Session(1 + i%5)}
		if out = append(out, l); what != "links" {
			out = append(out, r)
		}
	}
	if what != "" {
		return out, nil
	}
	for i := range int64(6) {
		for j, name := range []string{"run-1", "run-2"} {
			out = append(out, &journal.Inference{
				Span: sampleSpan(uint64(100+i), uint64(1+j)), Start: i, End: i, Run: run(name), Row: mooncake.Some(i),
				Timestamp: mooncake.Some(float64(3000 * (i / 2))), InputLength: mooncake.Some[int64](600), OutputLength: mooncake.Some(i),
				Prompt: journal.Prompt{Identity: journal.Trace, HashIDs: []uint64{7, uint64(40 + i)}, BlockSize: 512, Domain: 3},
			})
		}
	}
	return append(out, out[1]), nil // one of them delivered twice
}

func sampleSpan(trace, span uint64) mooncake.SpanRef {
	var r mooncake.SpanRef
	binary.BigEndian.PutUint64(r.TraceID[8:], trace+1)
	binary.BigEndian.PutUint64(r.SpanID[:], span)
	return r
}

// TestCompileInterrupted: Ctrl-C leaves what was there, and nothing else.
func TestCompileInterrupted(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "j.journal")
	w, err := journal.OpenWriter(file, journal.WriterOptions{NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	records, err := sampleRecords("")
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(w.Append(records...), w.Close()); err != nil {
		t.Fatal(err)
	}
	out := filepath.Join(dir, "t.jsonl")
	if err := os.WriteFile(out, []byte("before"), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var stdout, stderr bytes.Buffer
	status := run(ctx, []string{"compile", file, "--out", out, "--force", "--temp-dir", dir}, strings.NewReader(""), &stdout, &stderr)
	if status != exitInterrupted || stdout.Len() > 0 || stderr.String() != "moonloop: error: interrupted; nothing was written\n" {
		t.Errorf("status %d, output %q, errors %q", status, stdout.String(), stderr.String())
	}
	if b, err := os.ReadFile(out); err != nil || string(b) != "before" {
		t.Errorf("the earlier file contains %q, %v", b, err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 2 {
		t.Errorf("files %v, %v, want the journal and the earlier file", left, err)
	}
}

func TestCompileProgress(t *testing.T) {
	p := compileProgress{bytes: 4096}
	said := func(want string) {
		t.Helper()
		if got, part := p.show(); got != want || part >= 0 {
			t.Errorf("%q (part %g), want %q", got, part, want)
		}
	}
	said("") // nothing yet
	p.update(capture.StageRead, 1024, 0)
	said("reading journals: 1.0 KiB of 4.0 KiB")
	p.update(capture.StageGroup, 1000, 2000)
	said("grouping spans: 1,000 of 2,000")
}

// TestReportNamesFiles: each trace is reported under the name of its own file, in whatever order they were written.
func TestReportNamesFiles(t *testing.T) {
	records, err := sampleRecords("")
	if err != nil {
		t.Fatal(err)
	}
	slices.Reverse(records)
	dir := t.TempDir()
	w, err := journal.OpenWriter(filepath.Join(dir, "j.journal"), journal.WriterOptions{NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(w.Append(records...), w.Close()); err != nil {
		t.Fatal(err)
	}
	for _, flags := range [][]string{nil, {"--json", "--force"}} {
		var stdout, stderr bytes.Buffer
		args := append([]string{"compile", filepath.Join(dir, "j.journal"), "--out", filepath.Join(dir, "t.jsonl")}, flags...)
		if status := run(t.Context(), args, strings.NewReader(""), &stdout, &stderr); status != exitOK {
			t.Fatalf("status %d: %s", status, &stderr)
		}
		if flags != nil {
			var out struct {
				Traces []struct {
					File, Run string
					Meta      mooncake.Meta
				}
			}
			if err := json.Unmarshal(stdout.Bytes(), &out); err != nil {
				t.Fatal(err)
			}
			for i, want := range []string{"t.jsonl", "t.run-run-1.jsonl", "t.run-run-2.jsonl"} {
				if got := out.Traces[i]; filepath.Base(got.File) != want || got.Run != "" && !strings.Contains(want, got.Run) {
					t.Errorf("trace %d: %s of run %q, want %s", i, got.File, got.Run, want)
				}
			}
			continue
		}
		for _, want := range []string{"/t.jsonl: 20 rows of production\n", "/t.run-run-1.jsonl: 6 rows of replay run-1\n", "/t.run-run-2.jsonl: 6 rows of replay run-2\n"} {
			if !strings.Contains(filepath.ToSlash(stdout.String()), want) {
				t.Errorf("no %q in\n%s", want, &stdout)
			}
		}
		for l := range strings.Lines(strings.ReplaceAll(stdout.String(), dir, "")) {
			if n := utf8.RuneCountInString(l); n > 101 {
				t.Errorf("%d columns: %s", n, l)
			}
		}
	}
}

func TestCounted(t *testing.T) {
	for _, tc := range []struct {
		n          int64
		noun, want string
	}{
		{1, "rows", "1 row"},
		{0, "rows", "0 rows"},
		{1234, "rows", "1,234 rows"},
		{1, "hash ids", "1 hash id"},
		{1, "ancestries", "1 ancestry"},
		{1, "stretches of a journal", "1 stretch of a journal"},
		{2, "stretches of a journal", "2 stretches of a journal"},
	} {
		if got := term.Counted(tc.n, tc.noun); got != tc.want {
			t.Errorf("%q, want %q", got, tc.want)
		}
	}
}
