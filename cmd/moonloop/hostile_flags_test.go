// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package main

import (
	"bytes"
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/moonloop/moonloop/capture/journal"
	"github.com/moonloop/moonloop/internal/testcert"
)

// The suite of hostile flags walks the commands, so that no flag can be forgotten: every flag of every verb, by each of its names, with
// each kind of value that is wrong somewhere. testdata/hostile/flags.golden has the result of each.

// hostileKinds are the kinds of values, in their order in the golden file.
var hostileKinds = []string{"missing", "forgotten", "empty", "huge", "negative", "wrong", "control"}

// acceptedFlags are the values that a verb accepts although they are hostile elsewhere, and why. VERB, FLAG and KIND may be *.
var acceptedFlags = []struct{ verb, flags, kind, reason string }{
	{"*", "BOOL", "missing", "a switch needs no value"},
	{"*", "seed", "huge", "every number of 64 bits is a seed"},
	{"capture", "grpc http", "empty", "an empty address means not to listen"},
	{"*", "model only-model to-model only-class only-session session-key class-key deny run-id run label", "negative wrong", "every word is a name"},
	{"*", "out journal record quarantine save-prompts dataset xlsx parquet", "negative wrong", "every word is the name of a file"},
	{"replay", "save-prompts", "missing forgotten", "TraceReplay's has no value"},
	{"replay", "tokenizer", "wrong huge control", "other tools take the name of a model, which has no effect"},
	{"agent", "traces", "negative wrong", "every word is the name of a folder"},
	{"replay simulate", "record-header instance-header session-header", "negative wrong", "every word is the name of a header"},
	{"compare router twin", "again junit html", "negative wrong", "every word is the name of a file or folder"},
	{"referee simulate", "judge export html", "negative wrong", "every word is the name of a file"},
	{"simulate", "run", "negative wrong", "every text is a command"},
	{"compare", "between", "negative wrong", "every text is a command; without --run it is not run"},
	{"inspect", "quarantine", "negative wrong", "every word is the name of a file"},
	{"replay", "clock-reference", "wrong", "every word is the name of a host"},
	{"help completion", "*", "*", "the library's own"},
}

// hostileFlag is one case.
type hostileFlag struct {
	verb *cobra.Command
	path []string // of the verb
	flag *pflag.Flag
	as   string // --max-requests, --num-prompts, -H
	kind string
}

// words returns the flag and its value as written on the command line; nil if the flag cannot have a value of this kind.
func (h hostileFlag) words() []string {
	kind := h.flag.Value.Type()
	value := ""
	switch h.kind {
	case "missing":
		return []string{h.as}
	case "forgotten":
		if kind == "bool" {
			return nil
		}
		return []string{h.as, "--help"}
	case "empty":
	case "huge":
		value = map[string]string{
			"int": "9223372036854775807", "int64": "9223372036854775807", "uint64": "9223372036854775807",
			"float64": "1e308", "duration": "2562047h", "time": "2562047h",
		}[kind]
		if value == "" {
			value = strings.Repeat("x", 100_000)
		}
	case "negative":
		value = "-1"
		if kind == "duration" {
			value = "-1s"
		}
	case "wrong":
		value = "qwerty"
	case "control":
		value = "a\nb\x1b[31m"
	}
	if kind == "bool" {
		return []string{h.as + "=" + value}
	}
	return []string{h.as, value}
}

// accepted returns why the verb accepts the case; "" if it must not.
func (h hostileFlag) accepted() string {
	name := h.flag.Name
	if h.flag.Value.Type() == "bool" {
		name = "BOOL"
	}
	has := func(list, word string) bool { return list == "*" || slices.Contains(strings.Fields(list), word) }
	for _, a := range acceptedFlags {
		if has(a.verb, h.path[0]) && has(a.flags, name) && has(a.kind, h.kind) {
			return a.reason
		}
	}
	return ""
}

// hostileFlags returns all cases.
func hostileFlags() (cases []hostileFlag) {
	var walk func(cmd *cobra.Command, path []string)
	walk = func(cmd *cobra.Command, path []string) {
		cmd.InitDefaultHelpFlag()
		cmd.InitDefaultVersionFlag()
		aliases := aliasesOf(cmd)
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			names := []string{"--" + f.Name}
			if f.Shorthand != "" {
				names = append(names, "-"+f.Shorthand)
			}
			for alias, name := range aliases {
				if name == f.Name {
					names = append(names, "--"+alias)
				}
			}
			slices.Sort(names)
			for _, as := range names {
				for _, kind := range hostileKinds {
					if len(path) > 0 && f.Name != "help" {
						cases = append(cases, hostileFlag{cmd, path, f, as, kind})
					}
				}
			}
		})
		for _, c := range cmd.Commands() {
			walk(c, append(slices.Clone(path), c.Name()))
		}
	}
	root := newRootCommand()
	wordCompletion(root)
	walk(root, nil)
	return cases
}

// hostileBase is a good command line of each verb, flags in pairs. ENGINE is the URL of a server that counts its requests.
var hostileBase = map[string][]string{
	"replay":    {"trace.jsonl", "--url", "ENGINE", "--model", "sim", "--endpoint", "completions", "--progress", "none"},
	"inspect":   {"trace.jsonl"},
	"convert":   {"azure.csv", "--out", "x.jsonl"},
	"compile":   {"a.journal", "--out", "x.jsonl"},
	"trunk":     {"a.journal", "--out", "x.jsonl"},
	"capture":   {"--out", "x.jsonl", "--grpc", "127.0.0.1:0", "--http", "127.0.0.1:0", "--progress", "none"},
	"simulate":  {"--listen", "127.0.0.1:0", "--judge", "rate=1000"},
	"generate":  {"--rows", "1"},
	"agent":     {"--listen", "127.0.0.1:0", "--allow-target", "ENGINE", "--out", "runs"},
	"transform": {"trace.jsonl"},
	"compare":   {"runs", "runs"},
	"twin":      {"runs"},
	"shadow":    {"journals", "--out", "shadow", "--allow-target", "http://127.0.0.1:1"},
	"merge":     {"runs", "--out", "whole"},
	"referee":   {"truth.jsonl", "--judge", "rate=1000"},
	"search":    {"trace.jsonl", "--objective", "ttft.p99<2s", "--progress", "none"},
}

// hostileBeside are flags without which another flag would be wrong for a different reason.
var hostileBeside = map[string][]string{
	"quarantine": {"--lenient"}, "lenient": {"--quarantine", "q.jsonl"}, "goodput-goal": {"--slo", "ttft=1s"},
	"tls-cert": {"--tls-key", "key.pem"}, "tls-key": {"--tls-cert", "cert.pem"},
	"cert-file": {"--key-file", "key.pem"}, "key-file": {"--cert-file", "cert.pem"},
	"model-config": {"--mrc"}, "cache-sizes": {"--mrc"}, "kv-bytes-per-token": {"--mrc"},
}

// command returns the whole command line of a case.
func (h hostileFlag) command(engine string) []string {
	args := slices.Clone(h.path)
	base := hostileBase[h.path[0]]
	for i := 0; i < len(base); i++ {
		if strings.HasPrefix(base[i], "--") {
			if base[i] != "--"+h.flag.Name {
				args = append(args, base[i], strings.ReplaceAll(base[i+1], "ENGINE", engine))
			}
			i++
			continue
		}
		args = append(args, base[i])
	}
	args = append(args, hostileBeside[h.flag.Name]...)
	if h.path[0] == "convert" && slices.Contains(telemetryFlags(), h.flag.Name) {
		args = append(args, "--from", "otlp")
	}
	if base := hostileBase[h.path[0]]; slices.Contains(base, "x.jsonl") && h.flag.Name != "force" {
		args = append(args, "--force")
	}
	return append(args, h.words()...)
}

// arrangeHostile writes the files of the good command lines into the working directory.
func arrangeHostile(t *testing.T, files map[string]string) {
	t.Helper()
	for name, content := range files {
		if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	w, err := journal.OpenWriter("a.journal", journal.WriterOptions{NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	records, err := sampleRecords("")
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range records {
		if err := w.Append(r); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
}

// hostileRun runs a command line with a context that has ended, so a verb ends as soon as it would begin to wait for something. It returns
// status and standard error. A verb that hangs, or allocates memory by a value, fails the test.
func hostileRun(t *testing.T, args []string) (status int, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	root := newRootCommand()
	root.SetOut(&out)
	wordCompletion(root)
	var walk func(cmd *cobra.Command)
	walk = func(cmd *cobra.Command) {
		if body := cmd.RunE; body != nil {
			cmd.RunE = func(cmd *cobra.Command, args []string) error {
				if cmd.Name() == "demo" { // which would start a process
					return nil
				}
				over, cancel := context.WithCancel(cmd.Context())
				cancel()
				cmd.SetContext(over)
				return body(cmd, args)
			}
		}
		for _, c := range cmd.Commands() {
			walk(c)
		}
	}
	walk(root)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	done := make(chan int, 1)
	go func() { done <- execute(t.Context(), root, args, strings.NewReader(""), &out, &errs) }()
	select {
	case status = <-done:
	case <-time.After(2 * time.Minute):
		t.Fatalf("%.200q hangs", args)
	}
	runtime.ReadMemStats(&after)
	if n := after.TotalAlloc - before.TotalAlloc; n > 256<<20 {
		t.Errorf("%.200q allocates %d MiB", args, n>>20)
	}
	return status, errs.String()
}

// TestHostileFlags: each flag with each hostile value is refused with status 2 and a message that names the flag as it was typed, the
// value unless it may be secret, and the remedy; or it is accepted, for a stated reason.
func TestHostileFlags(t *testing.T) {
	alone(t)
	withoutOTel(t)
	t.Setenv(tokenEnv, "0123456789abcdef")
	var requests atomic.Int64
	engine := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { requests.Add(1) }))
	defer engine.Close()
	golden, err := filepath.Abs(filepath.Join("testdata", "hostile", "flags.golden"))
	if err != nil {
		t.Fatal(err)
	}
	cert, key := testcert.Files(t, testcert.New(t).Sign(t))
	files := contents(t, map[string]string{"cert.pem": cert, "key.pem": key})
	files["azure.csv"] = "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.6805900,374,44\n"
	files["truth.jsonl"] = recordOfOne
	var got strings.Builder
	got.WriteString("# Written by go test -update: what becomes of each hostile value of each flag, by each name of it.\n")
	verb, last := "", ""
	for _, h := range hostileFlags() {
		words := h.words()
		if words == nil {
			continue
		}
		if h.path[0] != verb {
			verb = h.path[0]
			t.Chdir(t.TempDir())
			arrangeHostile(t, files)
		}
		status, stderr := hostileRun(t, h.command(engine.URL))
		stderr = machineDependent.ReplaceAllString(stderr, "$$HOST")
		text, reason := "", h.accepted()
		first, rest, _ := strings.Cut(stderr, "\n")
		refused := status == exitUsage && strings.HasPrefix(first, "moonloop: error: "+h.as)
		switch name := strings.Join(h.path, " ") + " " + h.as; {
		case refused && reason != "" && h.path[0] != "completion":
			t.Errorf("%s, %s: refused, but in the list of what is accepted: %s", name, h.kind, first)
		case refused:
			text = strings.TrimPrefix(first, "moonloop: error: ")
			if why := h.judge(text, rest); why != "" {
				t.Errorf("%s, %s: the message %s: %s", name, h.kind, why, stderr)
			}
		case reason == "":
			t.Errorf("%s, %s: not refused, and not in the list of what is accepted; status %d, %.300s", name, h.kind, status, stderr)
		default:
			text = "accepted: " + reason
		}
		if name := strings.Join(h.path, " ") + " " + h.as; name != last {
			got.WriteString("\n" + name + "\n")
			last = name
		}
		got.WriteString("  " + h.kind + strings.Repeat(" ", 10-len(h.kind)) + text + "\n")
	}
	if n := requests.Load(); n > 0 {
		t.Errorf("the engine was asked %d times", n)
	}
	checkText(t, golden, got.String())
}

// cures are the words with which the advice of a message begins.
var cures = regexp.MustCompile(`want .|; (give|name|leave|write|export|end|pass|choose|did you mean)`)

// judge returns what is wrong with a message; "" if nothing is.
func (h hostileFlag) judge(message, rest string) string {
	value := ""
	if words := h.words(); len(words) == 2 {
		value = words[1]
	} else if _, v, found := strings.Cut(words[0], "="); found {
		value = v
	}
	secret := ruleOf(h.flag).secret
	switch {
	case strings.ContainsFunc(message, isControl) || strings.ContainsFunc(strings.ReplaceAll(rest, "\n", ""), isControl):
		return "has control characters"
	case len(message) > 400:
		return "is too long"
	case !cures.MatchString(message):
		return "does not say what to do"
	case secret && len(value) > 1 && h.kind != "forgotten" && strings.Contains(message, value[:min(len(value), 20)]):
		return "repeats what may be secret"
	case !secret && h.kind == "control" && !strings.Contains(message, `a\nb\x1b[31m`):
		return "does not repeat the value"
	case !secret && value != "" && h.kind != "control" && !strings.Contains(message, value[:min(len(value), 20)]):
		return "does not repeat the value"
	}
	return ""
}

// checkText compares a text with a golden file, line by line.
func checkText(t *testing.T, golden, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(golden, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(strings.Split(string(want), "\n"), strings.Split(got, "\n")); diff != "" {
		t.Errorf("-want +got (go test -update rewrites it):\n%s", diff)
	}
}

// withoutOTel removes the variables of OpenTelemetry for the duration of a test.
func withoutOTel(t *testing.T) {
	t.Helper()
	for _, v := range os.Environ() {
		if name, _, _ := strings.Cut(v, "="); strings.HasPrefix(name, "OTEL_") {
			t.Setenv(name, "")
		}
	}
}
