// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestShadowNeverAtProduction: an engine that could be production gets nothing, and errors are reported before anything is written.
func TestShadowNeverAtProduction(t *testing.T) {
	t.Setenv("OPENAI_API_KEY", "sk-production-0123456789")
	t.Setenv("SHADOW_KEY", "sk-shadow-0123456789")
	journals := t.TempDir()
	for args, want := range map[string]string{
		"": "--allow-target: none given",
		"--allow-target http://canary:1 -- --url http://prod:8000":                                        "--url http://prod:8000 is not allowed",
		"--allow-target http://canary:1 -- --url http://canary:1 --url http://prod:8000":                  "--url http://prod:8000 is not allowed",
		"--allow-target http://canary:1/a -- --url http://canary:1/b --api-key-env SHADOW_KEY":            "is not allowed",
		"--allow-target http://canary:1 -- --url http://canary:1":                                         "no key for canary:1",
		"--allow-target http://canary:1 -- --url http://canary:1 --api-key-env OPENAI_API_KEY":            "which applications of production use",
		"--allow-target http://127.0.0.1:1 -- --url http://127.0.0.1:1 --out there":                       "--out cannot be given for a shadow",
		"--allow-target http://127.0.0.1:1 -- --url http://127.0.0.1:1 --warmup-requests 2":               "--warmup-requests cannot be given for a shadow",
		"--allow-target http://127.0.0.1:1 -- --url http://127.0.0.1:1 --warmup-duration 1s":              "--warmup-duration cannot be given for a shadow",
		"--allow-target http://127.0.0.1:1 -- --url http://127.0.0.1:1 --speedup 2":                       "--speedup cannot be given for a shadow",
		"--allow-target http://127.0.0.1:1 --delay 30s -- --url http://127.0.0.1:1":                       "delay 30s: want at least 1m20s",
		"--allow-target http://127.0.0.1:1 --max-rate 0 -- --url http://127.0.0.1:1":                      "--max-rate",
		"--allow-target http://u:p@canary:1 -- --url http://127.0.0.1:1":                                  "--allow-target",
		"--allow-target http://canary:1 --no-key -- --url http://canary:1 --api-key-env NO_SUCH_VARIABLE": "NO_SUCH_VARIABLE",
		"--allow-target http://canary:1 -- ":                                                              "url: none given",
	} {
		out := filepath.Join(t.TempDir(), "shadow")
		var text bytes.Buffer
		line := append([]string{"shadow", journals, "--out", out}, strings.Fields(args)...)
		if status := run(t.Context(), line, strings.NewReader(""), &text, &text); status != exitUsage || !strings.Contains(text.String(), want) {
			t.Errorf("%s: exit status %d, want 2 and %q:\n%s", args, status, want, text.String())
		}
		if strings.Contains(text.String(), "0123456789") {
			t.Errorf("%s: the key is in\n%s", args, text.String())
		}
		if files, _ := os.ReadDir(out); len(files) > 1 { // a lock, at most
			t.Errorf("%s: %v were written", args, files)
		}
	}
}

// TestNoFlagIsIgnored: flags of replay that would have no effect are refused by the verbs that make replays.
func TestNoFlagIsIgnored(t *testing.T) {
	dir := t.TempDir()
	trace := filepath.Join(dir, "trace.jsonl")
	if err := os.WriteFile(trace, []byte(`{"timestamp": 0, "input_length": 6, "output_length": 1, "hash_ids": [0]}`+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	const url = "http://127.0.0.1:1"
	search := []string{"search", trace, "--objective", "ttft.p99<2s", "--", "--url", url}
	shadow := []string{"shadow", dir, "--out", filepath.Join(dir, "shadow"), "--allow-target", url, "--", "--url", url}
	for flag, verbs := range map[string][][]string{
		"--table tracereplay": {search, shadow}, "--percentiles 50": {search, shadow}, "--progress none": {search, shadow}, "--strict-verdict": {search, shadow},
		"--runs-pause 1s": {search, shadow}, "--runs-warmup first": {search, shadow}, "--runs-fresh": {search, shadow},
		"--no-report-page": {shadow}, "--trace-url http://jaeger/{trace_id}": {shadow}, "--fine-block-size 16": {shadow},
	} {
		given := strings.Fields(flag)
		for _, verb := range verbs {
			var text bytes.Buffer
			status := run(t.Context(), append(slices.Clone(verb), given...), strings.NewReader(""), &text, &text)
			if status != exitUsage || !strings.Contains(text.String(), given[0]+" cannot be given for ") {
				t.Errorf("%s %s: exit status %d, %s", verb[0], flag, status, text.String())
			}
		}
	}
	// The environment and a file of settings are those of replay, too: what only says how replay prints is no mistake there.
	t.Setenv("MOONLOOP_REPLAY_PROGRESS", "none")
	var text bytes.Buffer
	if run(t.Context(), search, strings.NewReader(""), &text, &text); strings.Contains(text.String(), "cannot be given") {
		t.Errorf("search with MOONLOOP_REPLAY_PROGRESS: %s", text.String())
	}
}

// TestOwnFlagsAreFlags: the flags that a verb reserves for itself are flags of replay, each listed once. If a name was wrong, the intended
// flag would be accepted.
func TestOwnFlagsAreFlags(t *testing.T) {
	fs := newReplayCommand().Flags()
	fs.BoolP("help", "h", false, "") // which the library adds when the command runs
	for list, names := range map[string][]string{
		"probesOwn": probesOwn, "shadowsOwn": shadowsOwn, "servicesOwn": strings.Fields(servicesOwn), "readingFlags": readingFlags,
	} {
		seen := map[string]bool{}
		for _, name := range names {
			if fs.Lookup(name) == nil {
				t.Errorf("%s: replay has no flag --%s", list, name)
			}
			if seen[name] {
				t.Errorf("%s: --%s occurs twice", list, name)
			}
			seen[name] = true
		}
	}
}
