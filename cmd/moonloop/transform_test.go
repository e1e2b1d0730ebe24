// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/moonloop/moonloop/mooncake"
)

// TestTransformReveals: the sidecar of a trace made from others says with which keys all ids were made, names the algorithm only if it is
// the same for all, and says by how much times were changed at random.
func TestTransformReveals(t *testing.T) {
	folder := t.TempDir()
	must := func(args ...string) {
		t.Helper()
		var stderr strings.Builder
		if status := run(t.Context(), args, strings.NewReader(""), &strings.Builder{}, &stderr); status != exitOK {
			t.Fatalf("%v: status %d, %s", args, status, &stderr)
		}
	}
	source := func(name, key, algorithm string) string {
		file := filepath.Join(folder, name)
		must("generate", "--rows", "300", "--rate", "10", "--grid", "3s", "--out", file)
		meta, err := mooncake.LoadMeta(file)
		if err != nil {
			t.Fatal(err)
		}
		meta.HashKeys, meta.HashDomains, meta.Privacy.HashAlgorithm = []string{key}, []string{"d" + key}, algorithm
		if err := meta.Save(file); err != nil {
			t.Fatal(err)
		}
		return file
	}
	a, b, c := source("a.jsonl", "bb", "x"), source("b.jsonl", "aa", "x"), source("c.jsonl", "bb", "y")
	type reveals struct {
		Keys, Domains []string
		Algorithm     string
		Jitter        float64
	}
	out := filepath.Join(folder, "out.jsonl")
	for _, test := range []struct {
		reason string
		args   []string
		want   reveals
	}{
		{"one source", []string{a, "--time-scale", "0.5"}, reveals{[]string{"bb"}, []string{"dbb"}, "x", 0}},
		{"two keys", []string{a, b, "--merge"}, reveals{[]string{"aa", "bb"}, []string{"daa", "dbb"}, "x", 0}},
		{"two algorithms", []string{a, c, "--append"}, reveals{[]string{"bb"}, []string{"dbb"}, "", 0}},
		{"spread at random, then twice as fast", []string{a, "--spread", "uniform", "--time-scale", "0.5"}, reveals{[]string{"bb"}, []string{"dbb"}, "x", 1500}},
		{"spread, but not at random", []string{a, "--spread", "even"}, reveals{[]string{"bb"}, []string{"dbb"}, "x", 0}},
		{"copies", []string{a, "--scale", "2", "--shift", "4s"}, reveals{[]string{"bb"}, []string{"dbb"}, "x", 4000}},
	} {
		must(append(append([]string{"transform"}, test.args...), "--force", "--out", out)...)
		m, err := mooncake.LoadMeta(out)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(test.want, reveals{m.HashKeys, m.HashDomains, m.Privacy.HashAlgorithm, m.Privacy.TimestampJitter}); diff != "" {
			t.Errorf("%s (-want +got):\n%s", test.reason, diff)
		}
	}
	must("transform", out, "--time-scale", "2", "--out", filepath.Join(folder, "again.jsonl"))
	if m, err := mooncake.LoadMeta(filepath.Join(folder, "again.jsonl")); err != nil || m.Privacy.TimestampJitter != 8000 {
		t.Errorf("of a trace whose copies were shifted, at half the speed: %v ms, %v", m.Privacy.TimestampJitter, err)
	}
}

// TestTransformOfWholeTraces: a trace that was cut does not become one that looks complete, unless only its beginning is needed.
func TestTransformOfWholeTraces(t *testing.T) {
	folder := t.TempDir()
	file := filepath.Join(folder, "a.jsonl")
	if err := os.WriteFile(file, []byte(strings.Repeat(`{"timestamp": 0, "input_length": 5, "output_length": 1, "hash_ids": [0]}`+"\n", 3)), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := (&mooncake.Meta{Rows: 4}).Save(file); err != nil {
		t.Fatal(err)
	}
	for first, want := range map[string]int{"2": exitOK, "0": exitUsage} {
		var stderr strings.Builder
		out := filepath.Join(folder, "first"+first+".jsonl")
		status := run(t.Context(), []string{"transform", file, "--first", first, "--time-scale", "2", "--out", out}, strings.NewReader(""), &strings.Builder{}, &stderr)
		_, err := os.Stat(out)
		if status != want || (status == exitOK) != (err == nil) || want != exitOK && !strings.Contains(stderr.String(), "a.jsonl: the trace has 3 rows, its sidecar says 4") {
			t.Errorf("--first %s: status %d, file %v, %s", first, status, err, &stderr)
		}
	}
}

// TestSidecarsOfURLs: convert and transform read the sidecar next to a URL, as they do for a file.
func TestSidecarsOfURLs(t *testing.T) {
	folder := t.TempDir()
	server := httptest.NewServer(http.FileServer(http.Dir(folder)))
	t.Cleanup(server.Close)
	file := filepath.Join(folder, "a.jsonl")
	if err := os.WriteFile(file, []byte(`{"timestamp": 0, "input_length": 40, "output_length": 1, "hash_ids": [0, 1, 2]}`+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := (&mooncake.Meta{BlockSize: 16, HashKeys: []string{"aa"}, Transformations: []mooncake.Transformation{{Name: "before"}}}).Save(file); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"convert", "--to", "dynamo"}, {"convert", "--from", "mooncake", "--to", "dynamo"}, {"transform", "--time-scale", "2"}} {
		var got [2]*mooncake.Meta
		for i, in := range []string{file, server.URL + "/a.jsonl"} {
			var stderr strings.Builder
			out := filepath.Join(t.TempDir(), "out.jsonl")
			if status := run(t.Context(), append(slices.Clone(args), in, "--out", out), strings.NewReader(""), &strings.Builder{}, &stderr); status != exitOK {
				t.Fatalf("%v: status %d, %s", args, status, &stderr)
			}
			meta, err := mooncake.LoadMeta(out)
			if err != nil {
				t.Fatal(err)
			}
			if got[i] = meta; args[0] == "convert" {
				meta.Transformations[1].Parameters = nil // it has the name of the input
			}
		}
		if diff := cmp.Diff(got[0], got[1]); diff != "" || got[0].BlockSize != 16 || len(got[0].Transformations) < 2 {
			t.Errorf("%v (-file +URL):\n%s", args, diff)
		}
	}
}
