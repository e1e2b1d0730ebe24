// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package main

import (
	"context"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"github.com/moonloop/moonloop/internal/testcert"
)

// untilItOpens returns a context that ends once a goroutine is blocked in opening a pipe, or after two minutes.
func untilItOpens(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	t.Cleanup(cancel)
	opening := func() map[string]bool { // the numbers of the goroutines that are in syscall.Open
		buf := make([]byte, 4<<20)
		found := make(map[string]bool)
		for stack := range strings.SplitSeq(string(buf[:runtime.Stack(buf, true)]), "\n\n") {
			if head, frames, _ := strings.Cut(stack, "\n"); strings.Contains(frames, "syscall.Open(") {
				found[strings.Fields(head)[1]] = true
			}
		}
		return found
	}
	left := opening() // goroutines that the previous case left blocked
	go func() {
		defer cancel()
		for before := map[string]bool(nil); ctx.Err() == nil; time.Sleep(10 * time.Millisecond) {
			now := opening()
			for id := range now {
				if before[id] && !left[id] { // still blocked after 10 ms: not a regular file
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

// symlink makes a link to a file.
func symlink(t *testing.T, file, link string) {
	t.Helper()
	if err := os.Symlink(file, link); err != nil {
		t.Fatal(err)
	}
}

// recordOfOne is an engine's record of one request.
const recordOfOne = `{"seq":1,"headers_ns":5,"body_read_ns":6,"time":"2026-01-01T00:00:00Z","writes":[[9,1]]}` + "\n"

// writtenFiles are the flags that name a file to write.
const writtenFiles = "out quarantine save-prompts html junit xlsx parquet record"

// TestHostileFiles gives files of the wrong kind to every verb and flag that reads files. The cases of TestMalformedFiles, for the traces of
// replay and inspect, are left out.
func TestHostileFiles(t *testing.T) {
	gz, zst := gzipped(t, manyRows()), zstded(t, manyRows())
	certificate, privateKey := testcert.Files(t, testcert.New(t).Sign(t))
	pair := contents(t, map[string]string{"cert.pem": certificate, "key.pem": privateKey})
	commands := map[string]string{
		"agent, token":       "agent --listen 127.0.0.1:0 --allow-target ENGINE --out trace.jsonl/runs --token-file FILE",
		"agent, TLS key":     "agent --listen 127.0.0.1:0 --allow-target ENGINE --out trace.jsonl/runs --no-auth --tls-cert FILE --tls-key FILE",
		"agent, engine":      "agent --listen 127.0.0.1:0 --allow-target ENGINE --out trace.jsonl/runs --no-auth -H @FILE --api-key-file FILE --ca-file FILE --cert-file FILE --key-file FILE",
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
		"replay, tokenizer":  "replay trace.jsonl --url ENGINE --dataset trace.jsonl --tokenizer named.json",
		"replay, rates":      "replay trace.jsonl --url ENGINE --request-rate-series FILE",
		"replay, settings":   "replay trace.jsonl --url ENGINE --config FILE",
		"replay, results":    "replay --resume FILE",
		"inspect, model":     "inspect trace.jsonl --mrc --model-config FILE",
		"transform":          "transform FILE --time-scale 0.5 --out x.jsonl",
		"generate, clients":  "generate --clients FILE --rows 1 --out x.jsonl",
		"merge":              "merge FILE --out whole",
		"report":             "report FILE",
		"referee, record":    "referee FILE --judge rate=1",
		"referee, trace":     "referee truth.jsonl --judge FILE",
		"referee, export":    "referee truth.jsonl --judge rate=1 --export FILE",
		"simulate, key":      "simulate --listen 127.0.0.1:0 --record missing/r --api-key-file FILE",
		"simulate, TLS key":  "simulate --listen 127.0.0.1:0 --record missing/r --tls-cert FILE --tls-key FILE",
		"search":             "search FILE --objective ttft.p99<1h --max-probes 1 --progress none -- --url ENGINE --model sim --endpoint completions",
		"twin":               "twin FILE",
		"compare":            "compare FILE FILE",
		"router":             "router FILE",
		"shadow":             "shadow FILE --out state --allow-target ENGINE --for 1ms -- --url ENGINE --model sim",
		"capture, key":       "capture --out x.jsonl --grpc 127.0.0.1:0 --http ␀ --duration 1ms --api-key-file FILE",
		"capture, TLS key":   "capture --out x.jsonl --grpc 127.0.0.1:0 --http ␀ --duration 1ms --tls-cert FILE --tls-key FILE",
		"capture, senders":   "capture --out x.jsonl --grpc 127.0.0.1:0 --http ␀ --duration 1ms --tls-cert cert.pem --tls-key key.pem --client-ca FILE",
	}
	for _, h := range hostileFlags() {
		reads := func(command string) bool {
			return strings.HasPrefix(command, h.path[0]+" ") && strings.Contains(command, " --"+h.flag.Name+" ")
		}
		switch value, _ := pflag.UnquoteUsage(h.flag); {
		case value != "FILE" || h.kind != "missing" || slices.Contains(strings.Fields(writtenFiles), h.flag.Name):
		case h.path[0] == "simulate" && h.flag.Name == "export": // referee reads the same file
		case !slices.ContainsFunc(slices.Collect(maps.Values(commands)), reads):
			t.Errorf("%s --%s: no command line gives it a file", h.path[0], h.flag.Name)
		}
	}
	kinds := map[string]string{
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
	for kind, content := range kinds { // of a run's folder
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
		c := malformed{name: "a pipe in place of " + file, commands: commands, files: map[string]string{"trace.jsonl": rowOfSix}}
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
	for kind, content := range kinds { // of what a shadow reads
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
			c := malformed{
				name: verb + ": " + kind, commands: []string{strings.ReplaceAll(command, "FILE", file)},
				files: map[string]string{"trace.jsonl": rowOfSix, "truth.jsonl": recordOfOne},
			}
			if strings.Contains(command, "cert.pem") {
				maps.Copy(c.files, pair)
			}
			c.arrange = func(t *testing.T) {
				t.Helper()
				if strings.Contains(command, "named.json") {
					symlink(t, file, "named.json")
				}
			}
			return c
		}
		for kind, content := range kinds {
			c := one(kind, "input")
			c.files["input"] = content
			cases = append(cases, c)
		}
		cases = append(cases, one("missing", "missing"), one("a directory", "."), one("the null device", "/dev/null"), one("the zero device", "/dev/zero"))

		link := one("a link that leads to itself", "loop")
		nameLink := link.arrange
		link.arrange = func(t *testing.T) { t.Helper(); symlink(t, "loop", "loop"); nameLink(t) }
		waits := one("a pipe that nobody writes to: an interrupt ends the wait", "pipe")
		namePipe := waits.arrange
		waits.arrange = func(t *testing.T) { t.Helper(); pipe(t, "pipe"); namePipe(t) }
		waits.ctx = untilItOpens
		cases = append(cases, link, waits)
	}
	checkMalformed(t, "../hostile/files", cases)
}
