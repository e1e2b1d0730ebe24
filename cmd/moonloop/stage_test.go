// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/moonloop/moonloop/capture/journal"
	"github.com/moonloop/moonloop/internal/simulator"
	"github.com/moonloop/moonloop/internal/tests3"
)

// stored runs commands whose files are in object storage.
type stored struct {
	*testing.T
	temp string
}

func newStored(t *testing.T) stored {
	t.Helper()
	tests3.Start(t, "moonloop", nil)
	s := stored{t, t.TempDir()}
	t.Setenv("TMPDIR", s.temp)
	return s
}

// do runs a command. It requires an exit status, that no temporary file remains, and that the output shows neither the name of such a file
// nor the secret.
func (s stored) do(want int, args ...string) (stdout, stderr string) {
	s.Helper()
	var out, said strings.Builder
	if status := run(s.Context(), args, strings.NewReader(""), &out, &said); status != want && (want != measured || status != exitOK && status != exitInvalid) {
		s.Fatalf("%s: status %d\n%s%s", strings.Join(args, " "), status, out.String(), said.String())
	}
	stdout, stderr = out.String(), said.String()
	if all := stdout + stderr; strings.Contains(all, s.temp) || strings.Contains(all, tests3.Secret) {
		s.Errorf("%s: a temporary name or the secret is shown:\n%s", strings.Join(args, " "), all)
	}
	if left, err := filepath.Glob(filepath.Join(s.temp, "moonloop-*")); err != nil || left != nil {
		s.Errorf("%s: %v is left, %v", strings.Join(args, " "), left, err)
	}
	return stdout, stderr
}

// put writes an object.
func (s stored) put(url, content string) {
	s.Helper()
	name := filepath.Join(s.TempDir(), "file")
	if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
		s.Fatal(err)
	}
	if err := store.Put(s.Context(), url, name, true); err != nil {
		s.Fatal(err)
	}
}

// list returns the names of the objects below a URL.
func (s stored) list(url string) (names []string) {
	s.Helper()
	list, err := store.List(s.Context(), url)
	if err != nil {
		s.Fatal(err)
	}
	for _, o := range list {
		names = append(names, strings.TrimPrefix(o.URL, url+"/"))
	}
	return names
}

// TestObjectStore: journals in object storage are compiled to a trace there. The trace is replayed in shards, and their runs are merged
// and reported.
func TestObjectStore(t *testing.T) {
	s := newStored(t)
	defer store.Close() // because the server ends with the test
	records, err := sampleRecords("")
	if err != nil {
		t.Fatal(err)
	}
	day := "s3://moonloop/journals/2027-01-31"
	var local []string
	for i, minute := range []string{"00/00", "00/01", "23/59"} { // as the exporter awss3 names them
		name := filepath.Join(t.TempDir(), "traces_1.journal")
		w, err := journal.OpenWriter(name, journal.WriterOptions{NoSync: true})
		if err != nil {
			t.Fatal(err)
		}
		for n, r := range records {
			if n%3 == i {
				if err := w.Append(r); err != nil {
					t.Fatal(err)
				}
			}
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		if err := store.Put(t.Context(), day+"/"+minute+"/traces_1.journal", name, false); err != nil {
			t.Fatal(err)
		}
		local = append(local, name)
	}
	s.put(day+"/_SUCCESS", "")

	trace := "s3://moonloop/traces/2027-01-31.jsonl"
	out, _ := s.do(exitOK, "compile", day, "--out", trace, "--replays", "drop")
	if !strings.Contains(out, trace+": 20 rows") {
		t.Errorf("compile says:\n%s", out)
	}
	here := filepath.Join(t.TempDir(), "t.jsonl")
	s.do(exitOK, append([]string{"compile", "--out", here, "--replays", "drop"}, local...)...)
	want, err := os.ReadFile(here)
	if err != nil {
		t.Fatal(err)
	}
	got := filepath.Join(t.TempDir(), "got")
	if err := store.Fetch(t.Context(), trace, got); err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(got); err != nil || string(b) != string(want) {
		t.Errorf("%d bytes from the store, %d from files, %v", len(b), len(want), err)
	}
	if names := strings.Join(s.list("s3://moonloop/traces"), " "); names != "2027-01-31.jsonl 2027-01-31.meta.json" {
		t.Errorf("the store has %s", names)
	}
	if _, said := s.do(exitUsage, "compile", day, "--out", trace); !strings.Contains(said, "--force") || !strings.Contains(said, trace) {
		t.Errorf("a trace that exists: %s", said)
	}
	s.do(exitOK, "compile", day, "--out", trace, "--replays", "drop", "--force")
	s.do(exitOK, "trunk", day, "--out", "s3://moonloop/trunk.json")
	if _, said := s.do(exitUsage, "compile", "s3://moonloop/traces", "--out", here); !strings.Contains(said, "there is no object of that name, and no *.journal object below it") {
		t.Errorf("a folder without journals: %s", said)
	}
	if out, _ := s.do(exitOK, "inspect", trace, "--json"); !strings.Contains(out, `"rows": 20`) || !strings.Contains(out, `"hash_keys"`) {
		t.Errorf("inspect, which reads the sidecar, too, says:\n%s", out)
	}

	s.do(exitOK, "transform", trace, "--scale", "2", "--out", "gs://moonloop/made.jsonl.zst")
	s.do(exitOK, "inspect", "gs://moonloop/made.jsonl.zst", trace)
	foreign, err := os.ReadFile("../../convert/testdata/formats/azure.csv")
	if err != nil {
		t.Fatal(err)
	}
	s.put("s3://moonloop/foreign/azure.csv", string(foreign))
	s.do(exitOK, "convert", "s3://moonloop/foreign/azure.csv", "--from", "azure", "--out", "s3://moonloop/converted.jsonl")

	e, err := simulator.New(simulator.Config{})
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(e)
	defer func() { server.Close(); e.Close() }()
	runs := "s3://moonloop/runs/nightly"
	replay := []string{
		"replay", trace, "--url", server.URL, "--model", "m", "--endpoint", "completions", "--speedup", "20", "--run-id", "nightly",
		"--shard", "0/1", "--out", runs + "/0", "--progress", "none",
	}
	if out, _ := s.do(measured, replay...); !strings.Contains(out, runs+"/0") {
		t.Errorf("replay says:\n%s", out)
	}
	names := s.list(runs + "/0")
	if joined := strings.Join(names, " "); !strings.Contains(joined, "requests.jsonl") || !strings.Contains(joined, "summary.json") {
		t.Errorf("the run has %s", joined)
	}
	if _, said := s.do(exitUsage, replay...); !strings.Contains(said, "--force") {
		t.Errorf("a run that exists: %s", said)
	}
	s.do(measured, append(replay, "--force")...)
	if _, said := s.do(exitUsage, "replay", "s3://moonloop/traces/{today}.jsonl", "--dry-run"); !strings.Contains(said, "not exist") || strings.Contains(said, "{today}") {
		t.Errorf("the trace of a day that does not exist: %s", said)
	}
	s.do(measured, "merge", runs, "--out", "s3://moonloop/runs/whole", "--parquet", "s3://moonloop/whole.parquet")
	if out, _ := s.do(exitOK, "report", "s3://moonloop/runs/whole"); !strings.Contains(out, "s3://moonloop/runs/whole/report.html") {
		t.Errorf("report says:\n%s", out)
	}
	summary := filepath.Join(t.TempDir(), "summary.json")
	if err := store.Fetch(t.Context(), "s3://moonloop/runs/whole/summary.json", summary); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(summary)
	if err != nil {
		t.Fatal(err)
	}
	if text := string(b); !json.Valid(b) || strings.Contains(text, s.temp) || !strings.Contains(text, runs) {
		t.Errorf("the summary does not name the store:\n%s", text)
	}
	for _, refused := range [][]string{
		{"replay", "--resume", runs + "/0"},
		{"report", "s3://moonloop/nothing"},
		{"report", "s3://user:xyzzy@moonloop/a"},
		{"agent", "--out", runs, "--listen", "127.0.0.1:0", "--no-auth", "--allow-target", server.URL},
		{"inspect", "s3://moonloop/traces/missing.jsonl"},
		{"shadow", day, "--out", filepath.Join(t.TempDir(), "shadow"), "--allow-target", server.URL, "--", "--url", server.URL},
		{"capture", "--out", "s3://moonloop/captured.jsonl"},
		{"inspect", trace, "--quarantine", "s3://moonloop/bad.jsonl"},
		{"compile", day, "--out", here, "--shard", "0/2", "--shard-dir", "s3://moonloop/shards"},
	} {
		if _, said := s.do(exitUsage, refused...); strings.Contains(said, "xyzzy") {
			t.Errorf("%v: %s", refused, said)
		}
	}
}

// TestOtherURLs: URLs that are not of object storage are not used as names of files. The error says what can be read, and does not show the
// keys in the URL.
func TestOtherURLs(t *testing.T) {
	t.Chdir(t.TempDir())
	for _, c := range []struct{ command, want string }{
		{"compile URL", "compile reads files and folders on this machine, and objects in s3:// or gs://, and not http://"},
		{"compile --list ok.journal https://u:xyzzy@h/j?key=xyzzy", "https://h/j: compile reads"},
		{"compile hdfs://h/j", "and not hdfs://"},
		{"compile S3://bucket/j", "and not S3://"},
		{"compile file:///j", "leave file:// out"},
		{"trunk URL --out trunk.json", "trunk reads"},
		{"report URL", "report reads"},
		{"merge URL --out whole", "merge reads"},
		{"compare URL URL", "compare reads"},
		{"twin URL", "twin reads"},
		{"router URL", "router reads"},
		{"referee URL --judge rate=1", "referee reads"},
		{"shadow URL --out s --allow-target http://h -- --url http://h", "shadow reads files and folders on this machine, and not http://"},
		{"compile j --out URL", "--out is for files and folders on this machine, and objects in s3:// or gs://, and not http://"},
		{"transform j --scale 2 --out URL", "--out is for"},
		{"replay j --url http://h --out URL", "--out is for"},
		{"replay j --url http://h --save-prompts URL", "--save-prompts is for files and folders on this machine, and not http://"},
		{"search j --objective ttft.p99<2s --out URL -- --url http://h", "--out is for"},
		{"inspect http://127.0.0.1:1/u?key=xyzzy", "http://127.0.0.1:1/u was not fetched"},
		{"search http://127.0.0.1:1/u --objective ttft.p99<2s -- --url http://127.0.0.1:1", "http://127.0.0.1:1/u was not fetched"},
	} {
		var out, said strings.Builder
		args := strings.Fields(strings.ReplaceAll(c.command, "URL", "http://u:xyzzy@h/j?key=xyzzy"))
		status := run(t.Context(), args, strings.NewReader(""), &out, &said)
		if status != exitUsage || out.Len() > 0 || !strings.Contains(said.String(), c.want) || strings.Contains(said.String(), "xyzzy") {
			t.Errorf("%s: status %d\n%s%s\nwant %s", c.command, status, out.String(), said.String(), c.want)
		}
	}
	if left, err := os.ReadDir("."); err != nil || len(left) > 0 {
		t.Errorf("%v is left, %v", left, err)
	}
}

// TestUploadFails: a run whose upload fails is nowhere said to be in the store, and the error says where it is.
func TestUploadFails(t *testing.T) {
	tests3.Start(t, "moonloop", func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodPut {
				w.WriteHeader(http.StatusForbidden)
				return
			}
			next.ServeHTTP(w, r)
		})
	})
	defer store.Close()
	temp := t.TempDir()
	t.Setenv("TMPDIR", temp)
	e, err := simulator.New(simulator.Config{})
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(e)
	defer func() { server.Close(); e.Close() }()
	var out, said strings.Builder
	status := run(t.Context(), []string{
		"replay", "../../examples/demo.jsonl", "--url", server.URL, "--max-requests", "2", "--speedup", "1000", "--progress", "none",
		"--out", "s3://moonloop/run", "--xlsx", "s3://moonloop/run.xlsx",
	}, strings.NewReader(""), &out, &said)
	if status != exitUsage || strings.Contains(out.String(), "s3://") || !strings.Contains(said.String(), "the results stay in "+temp) {
		t.Errorf("status %d\n%s%s", status, out.String(), said.String())
	}
}

// measured stands for the statuses of a complete replay, whose verdict depends on the machine.
const measured = -1
