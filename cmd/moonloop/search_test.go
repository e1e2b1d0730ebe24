// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/moonloop/moonloop/study"
)

// TestSearchVerb searches on a simulated engine: each probe replays the trace at another density and with other words, and the folder stores
// enough for a later search to continue. Package study tests which load is found.
func TestSearchVerb(t *testing.T) {
	withoutOTel(t)
	t.Chdir(t.TempDir())
	url, stop := startSimulate(t, "--fast")
	defer stop()
	var rows strings.Builder
	for i := range 120 {
		fmt.Fprintf(&rows, `{"timestamp": %d, "input_length": 600, "output_length": 1, "hash_ids": [0, %d]}`+"\n", i, i+1)
	}
	if err := os.WriteFile("trace.jsonl", []byte(rows.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	search := func(status int, args ...string) string {
		t.Helper()
		var out strings.Builder
		if got := run(t.Context(), append([]string{"search"}, args...), strings.NewReader(""), &out, &out); got != status {
			t.Fatalf("%v: exit status %d, want %d: %s", args, got, status, out.String())
		}
		return out.String()
	}
	probes := func(most string, more ...string) []string {
		return append([]string{"trace.jsonl", "--objective", "ttft.p50<1h", "--precision", "0.005", "--out", "dir", "--max-probes", most}, append(more, "--", "--url", url, "--model", "m", "--endpoint", "completions")...)
	}
	if text := search(exitInvalid, probes("1")...); !strings.Contains(text, "capacity: ") || !strings.Contains(text, "probe 1 of at most 1: 1 × the density") {
		t.Error(text)
	}
	// Such a short run has no verdict. If a run has one, and met the objective, the next probe has another load.
	name := filepath.Join("dir", searchFile)
	kept, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	var state searchState
	if err := json.Unmarshal(kept, &state); err != nil {
		t.Fatal(err)
	}
	state.Probes[0].Verdict, state.Probes[0].Evidence = study.ValidVerdict, true
	if err := state.save("dir"); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	out := &cancelling{when: "probe 2 of at most 3", cancel: cancel}
	if got := run(ctx, append([]string{"search"}, probes("3")...), strings.NewReader(""), out, out); got != exitInterrupted ||
		!strings.Contains(out.String(), "capacity: cannot tell yet: between ") || !strings.Contains(out.String(), "moonloop: interrupted after 1 probe: run the same command again to continue\n") {
		t.Errorf("interrupted: exit status %d: %s", got, out.String())
	}
	text := search(exitInvalid, probes("2", "--json", "--progress", "none")...)
	if !strings.HasPrefix(text, "moonloop: continuing after 1 probe in dir\n") {
		t.Error(text)
	}
	if err := json.Unmarshal([]byte(text[strings.Index(text, "{"):]), &state); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	if len(state.Probes) != 2 || state.Probes[1].Load != 2 {
		t.Fatalf("%+v", state)
	}
	digests := map[string]bool{}
	for i, p := range state.Probes {
		text, err := os.ReadFile(filepath.Join("dir", fmt.Sprintf("probe-%02d", i+1), "summary.json"))
		if err != nil {
			t.Fatal(err)
		}
		var s struct {
			Trace struct {
				Rows int
				Seq  string `json:"seq_digest"`
			}
		}
		if err := json.Unmarshal(text, &s); err != nil {
			t.Fatal(err)
		}
		digests[s.Trace.Seq] = true
		if want := 120 * p.Load; float64(s.Trace.Rows) < 0.9*want || float64(s.Trace.Rows) > 1.1*want {
			t.Errorf("probe %d of load %v: %d rows", i+1, p.Load, s.Trace.Rows)
		}
	}
	if len(digests) != 2 {
		t.Errorf("the probes replayed %d traces", len(digests))
	}
	picture, err := os.ReadFile(filepath.Join("dir", curveFile))
	if err != nil || !strings.HasPrefix(string(picture), "<svg ") || !strings.Contains(string(picture), "<title>probe 1, load 1") {
		t.Errorf("%.300s, %v", picture, err)
	}
	if left, _ := filepath.Glob(filepath.Join("dir", scaledTrace+"*")); left != nil {
		t.Errorf("left behind: %v", left)
	}
	search(exitInvalid, "trace.jsonl", "--objective", "ttft.p50<1h", "--vary", "speed", "--cache", "warm", "--max-probes", "1", "--progress", "none", "--", "--url", url, "--model", "m", "--endpoint", "completions")
}

// cancelling is an output that interrupts the command when it writes a text.
type cancelling struct {
	strings.Builder
	when   string
	cancel func()
}

func (c *cancelling) Write(p []byte) (int, error) {
	if strings.Contains(string(p), c.when) {
		c.cancel()
	}
	return c.Builder.Write(p)
}

// TestSearchRefusals: a search that cannot be run is refused before it sends or writes anything.
func TestSearchRefusals(t *testing.T) {
	withoutOTel(t)
	t.Chdir(t.TempDir())
	for name, content := range map[string]string{
		"half/search.json":  `{"schema": 1`,
		"later/search.json": `{"schema": 9}`,
		"other/search.json": `{"schema": 1, "question": {"trace": "another.jsonl", "objectives": ["ttft.p99<1ms"]}}`,
		"deep/search.json":  strings.Repeat("[", 1_000_000),
		"empty.jsonl":       "\n",
		"trace.jsonl":       `{"timestamp": 0, "input_length": 6, "output_length": 1, "hash_ids": [0]}` + "\n",
	} {
		if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	const begin, end = "trace.jsonl --objective ttft.p99<2s ", " -- --url http://127.0.0.1:1"
	for args, want := range map[string]string{
		"":                                                       "search takes one trace, but 0 were given",
		"a b --objective ttft.p99<2s":                            "search takes one trace, but 2 were given",
		"trace.jsonl" + end:                                      "no objective is given",
		begin:                                                    "url: none given",
		begin + end + " more":                                    `"more" is not a flag`,
		begin + end + " --colour":                                "--colour",
		begin + end + " --out x":                                 "--out cannot be given for the probes of a search",
		begin + end + " --from otlp":                             "--from cannot be given for the probes of a search",
		begin + end + " --transform --first=1":                   "--transform cannot be given for the probes of a search",
		begin + end + " --runs 2":                                "--runs cannot be given for the probes of a search",
		begin + end + " --request-rate 5":                        "replace the arrival times",
		begin + end + " --speedup -1":                            "--speedup",
		"- --objective ttft.p99<2s " + end:                       "standard input can be read only once",
		begin + "--min-load 5" + end:                             "the search starts at 1: must lie between 5 and 50",
		begin + "--min-load 9 --max-load 9":                      "",
		begin + "--out half" + end:                               "is not the file of a search",
		begin + "--out later" + end:                              "is not the file of a search",
		begin + "--out deep" + end:                               "is not the file of a search",
		begin + "--out other" + end:                              "has another search, of another.jsonl for ttft.p99<1ms",
		begin + "--out trace.jsonl" + end:                        "not a directory",
		"nowhere.jsonl --objective ttft.p99<2s" + end:            "nowhere.jsonl",
		"trace.jsonl --objective foo.p95<1s" + end:               "there is no figure foo: want e2e, ",
		"empty.jsonl --objective ttft.p99<2s" + end:              "empty.jsonl: empty: there is no row in it",
		"empty.jsonl --objective ttft.p99<2s --vary speed" + end: "empty.jsonl: empty: there is no row in it",
		"trace.jsonl --objective ttft.p99<2s --cache warm" + end: "127.0.0.1:1",
	} {
		var out strings.Builder
		if status := run(t.Context(), append([]string{"search"}, strings.Fields(args)...), strings.NewReader(""), &out, &out); status != exitUsage || !strings.Contains(out.String(), want) ||
			strings.Contains(out.String(), "probe 1") { // no probe is announced that was not started
			t.Errorf("search %s: exit status %d, %s\nwant %q", args, status, out.String(), want)
		}
	}
}
