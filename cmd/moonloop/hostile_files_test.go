// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"
)

// untilItOpens returns a context that ends when a goroutine waits for a file to open, as it does for a pipe.
func untilItOpens(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	t.Cleanup(cancel)
	buf := make([]byte, 4<<20)
	waiting := func() map[string]bool { // goroutines by their first lines
		found := make(map[string]bool)
		for stack := range strings.SplitSeq(string(buf[:runtime.Stack(buf, true)]), "\n\n") {
			if head, frames, _ := strings.Cut(stack, "\n"); strings.Contains(frames, "syscall.Open(") {
				found[strings.Fields(head)[1]] = true
			}
		}
		return found
	}
	left := waiting() // by the case before
	go func() {
		defer cancel()
		for before := map[string]bool(nil); ctx.Err() == nil; time.Sleep(10 * time.Millisecond) {
			now := waiting()
			for id := range now {
				if before[id] && !left[id] { // a regular file has been opened by now
					return
				}
			}
			before = now
		}
	}()
	return ctx
}

// pipe makes a pipe to which nobody writes.
func pipe(t *testing.T, name string) {
	t.Helper()
	if err := syscall.Mkfifo(name, 0o600); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { // releases those that still wait
		if f, err := os.OpenFile(name, os.O_RDWR, 0); err == nil {
			time.Sleep(50 * time.Millisecond)
			_ = f.Close()
		}
	})
}

// recordOfOne is an engine's record of one request.
const recordOfOne = `{"seq":1,"headers_ns":5,"body_read_ns":6,"time":"2026-01-01T00:00:00Z","writes":[[9,1]]}` + "\n"

// TestHostileFiles: files of the wrong kind, for every verb and flag that reads one. Cases that TestMalformedFiles has for replay and
// inspect are left out.
func TestHostileFiles(t *testing.T) {
	alone(t)
	gz, zst := gzipped(t, manyRows()), zstded(t, manyRows())
	commands := map[string]string{
		"convert":            "convert FILE --out x.jsonl",
		"convert from otlp":  "convert FILE --from otlp --max-line 65536 --out x.jsonl",
		"convert from azure": "convert FILE --from azure --max-line 65536 --out x.jsonl",
		"compile":            "compile FILE --out x.jsonl",
		"compile, list":      "compile FILE --list",
		"trunk":              "trunk FILE --out trunk.json",
		"replay, headers":    "replay trace.jsonl --url ENGINE -H @FILE",
		"replay, key":        "replay trace.jsonl --url ENGINE --api-key-file FILE",
		"replay, authority":  "replay trace.jsonl --url https://127.0.0.1:1 --ca-file FILE",
		"replay, TLS key":    "replay trace.jsonl --url https://127.0.0.1:1 --cert-file FILE --key-file FILE",
		"replay, dataset":    "replay trace.jsonl --url ENGINE --dataset FILE",
		"referee, record":    "referee FILE --judge rate=1",
		"referee, trace":     "referee truth.jsonl --judge FILE",
		"referee, export":    "referee truth.jsonl --judge rate=1 --export FILE",
		"simulate, key":      "simulate --listen 127.0.0.1:0 --record missing/r --api-key-file FILE",
		"search":             "search FILE --objective ttft.p99<1h --max-probes 1 --progress none -- --url ENGINE --model sim --endpoint completions",
		"twin":               "twin FILE",
		"compare":            "compare FILE FILE",
		"router":             "router FILE",
		"shadow":             "shadow FILE --out state --allow-target ENGINE --for 1ms -- --url ENGINE --model sim",
		"capture, key":       "capture --out x.jsonl --grpc 127.0.0.1:0 --http ␀ --duration 1ms --api-key-file FILE",
	}
	contents := map[string]string{
		"empty":           "",
		"blank lines":     "\n \n\r\n\t\n",
		"an HTML page":    "<!DOCTYPE html>\n<html><body>xyzzy: sign in</body></html>\n",
		"a PNG":           "\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR",
		"UTF-16":          utf16le(rowOfSix),
		"cut gzip":        gz[:len(gz)/2],
		"cut zstd":        zst[:len(zst)/2],
		"CRLF":            strings.ReplaceAll(rowOfSix, "\n", "\r\n"),
		"a UTF-8 mark":    "\xef\xbb\xbf" + rowOfSix,
		"NUL bytes":       strings.Repeat("\x00", 4096),
		"a huge line":     strings.Repeat("xyzzy", 1<<18),
		"binary junk":     "\x93\x01\xfe\xca\x17\x00\x80\n\xf0",
		"a Mooncake row":  rowOfSix,
		"terminal escape": "\x1b]0;xyzzy\x07\x1b[31m\n",
	}
	var cases []malformed
	const good = `{"schema_version": "1.0", "start_time": "2026-01-01T00:00:00Z", "run": {"id": "run"}, "verdict": {"class": "valid"}, "trace": {"rows": 1}}`
	for kind, content := range contents { // of a run's folder
		const summary, records = "summary.json", "requests.jsonl"
		cases = append(cases,
			malformed{name: "twin, summary: " + kind, commands: []string{"twin ."}, files: map[string]string{summary: content}},
			malformed{name: "twin, records: " + kind, commands: []string{"twin .", "router ."}, files: map[string]string{summary: good, records: content}},
			malformed{name: "compare, summary: " + kind, commands: []string{"compare . . --json"}, files: map[string]string{summary: content}})
	}
	for file, commands := range map[string][]string{
		"summary.json": {"twin .", "router .", "compare . .", "merge . --out whole", "report ."}, "requests.jsonl": {"twin .", "report ."},
		"search.json":  {"search ../trace.jsonl --out . --objective ttft.p99<1h --progress none -- --url ENGINE --model sim"},
		"resume.jsonl": {"replay --resume ."}, "run-1/summary.json": {"replay --resume ."},
		"shadow.json": {"shadow . --out . --allow-target ENGINE --for 1ms -- --url ENGINE --model sim"},
	} {
		c := malformed{name: "a pipe in the place of " + file, commands: commands, files: map[string]string{"trace.jsonl": rowOfSix}}
		c.arrange = func(t *testing.T) {
			t.Helper()
			if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
				t.Fatal(err)
			}
			pipe(t, file)
		}
		if file == "requests.jsonl" {
			c.files["summary.json"] = good
		}
		cases = append(cases, c)
	}
	for kind, content := range contents { // of what a shadow reads
		state := malformed{name: "shadow, state: " + kind, commands: []string{strings.ReplaceAll(commands["shadow"], "FILE", ".")}, files: map[string]string{}}
		state.arrange = func(t *testing.T) {
			t.Helper()
			if err := errors.Join(os.Mkdir("state", 0o700), os.WriteFile("state/shadow.json", []byte(content), 0o600)); err != nil {
				t.Fatal(err)
			}
		}
		journal := state
		journal.name, journal.files, journal.arrange = "shadow, journal: "+kind, map[string]string{"traces.journal": content}, nil
		cases = append(cases, state, journal)
	}
	for verb, command := range commands {
		one := func(kind, file string) malformed {
			return malformed{
				name: verb + ": " + kind, commands: []string{strings.ReplaceAll(command, "FILE", file)},
				files: map[string]string{"trace.jsonl": rowOfSix, "truth.jsonl": recordOfOne},
			}
		}
		for kind, content := range contents {
			c := one(kind, "input")
			c.files["input"] = content
			cases = append(cases, c)
		}
		cases = append(cases, one("missing", "missing"), one("a directory", "."), one("the null device", "/dev/null"), one("the device of zeros", "/dev/zero"))

		link := one("a link that leads to itself", "loop")
		link.arrange = func(t *testing.T) {
			t.Helper()
			if err := os.Symlink("loop", "loop"); err != nil {
				t.Fatal(err)
			}
		}
		waits := one("a pipe that nobody writes to: an interrupt ends the wait", "pipe")
		waits.arrange = func(t *testing.T) { t.Helper(); pipe(t, "pipe") }
		waits.ctx = untilItOpens
		cases = append(cases, link, waits)
	}
	checkMalformed(t, "../hostile/files", cases)
}
