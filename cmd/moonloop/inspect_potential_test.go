// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
)

// modelConfig writes the config.json of a model with a KV cache of 128 KiB for each token.
func modelConfig(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "config.json")
	if err := os.WriteFile(path, []byte(`{"num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8, "hidden_size": 4096}`), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

var demoTrace = filepath.Join("..", "..", "examples", "demo.jsonl")

// TestPotentialGolden: the output of inspect --mrc for a small trace, in at most 80 columns.
func TestPotentialGolden(t *testing.T) {
	exact, _, err := command(t, newInspectCommand(), "", "--mrc", "--model-config", modelConfig(t), demoTrace)
	if err != nil {
		t.Fatal(err)
	}
	sampled, _, err := command(t, newInspectCommand(), "", "--mrc", "--sample", "0.5", "--cache-sizes", "20k,150k,1M", "--warm-up", "10s", demoTrace)
	if err != nil {
		t.Fatal(err)
	}
	got := exact + "\n" + sampled
	for line := range strings.Lines(got) {
		if n := utf8.RuneCountInString(strings.TrimRight(line, " \n")); n > 80 {
			t.Errorf("%d columns: %s", n, line)
		}
	}
	checkText(t, filepath.Join("testdata", "mrc.golden"), got)
}

// TestPotentialOfThePublicTrace: the exact figures, by tokens and by bytes, are those of the simulation of single caches.
func TestPotentialOfThePublicTrace(t *testing.T) {
	t.Parallel()
	alone(t)
	out, _, err := command(t, newInspectCommand(), "", "--mrc", "--json", "--kv-bytes-per-token", "131072", "--cache-sizes", "2999808, 5.12m,1875GiB", conversationTrace(t))
	if err != nil {
		t.Fatal(err)
	}
	var got inspection
	if err := json.Unmarshal([]byte(out), &got); err != nil {
		t.Fatal(err)
	}
	p := got.Traces[0].Potential
	for i, want := range []struct {
		tokens int64
		rate   float64
	}{{2_999_808, .138730}, {5_120_000, .215748}, {15_360_000, .332153}, {0, .373624}} {
		if c := p.Curve[i]; c.Tokens != want.tokens || c.Bytes != want.tokens*131_072 || math.Abs(c.Rate-want.rate) > 5.01e-7 {
			t.Errorf("%+v, want %+v", c, want)
		}
	}
	if p.Knee.Tokens != 43_632_640 || p.WorkingSet.Tokens != 182_790*512 || len(p.Prefixes) != 10 || p.Prefixes[0].Requests != 12_031 {
		t.Errorf("%+v", p)
	}
}

func TestPotentialRefuses(t *testing.T) {
	for name, test := range map[string]struct {
		args []string
		want string
	}{
		"--sample without --mrc":                  {[]string{"--sample", "0.1"}, "--sample: has no effect without --mrc"},
		"blocks and tokens":                       {[]string{"--mrc", "--capacity", "10"}, "--capacity: with --mrc, the sizes of caches are --cache-sizes"},
		"two sizes of a token":                    {[]string{"--mrc", "--kv-bytes-per-token", "5", "--model-config", "x"}, "leave one out"},
		"a size in bytes, and no bytes per token": {[]string{"--mrc", "--cache-sizes", "40GiB"}, "give --kv-bytes-per-token or --model-config"},
		"less than a token":                       {[]string{"--mrc", "--cache-sizes", "1kB", "--kv-bytes-per-token", "1024"}, "less than one token"},
		"no such config":                          {[]string{"--mrc", "--model-config", "none.json"}, "--model-config: none.json"},
		"a file that is not a config":             {[]string{"--mrc", "--model-config", demoTrace}, "num_hidden_layers"},
	} {
		out, _, err := command(t, newInspectCommand(), goodRow, append(test.args, "-")...)
		if err == nil || !strings.Contains(err.Error(), test.want) || out != "" {
			t.Errorf("%s: error %v, output %q", name, err, out)
		}
	}
	for _, trace := range []string{
		`{"timestamp": 0, "input_length": 600, "output_length": 1, "hash_ids": [0, 0]}` + "\n",
		`{"timestamp": 0, "text_input": "of no length", "output_length": 1}` + "\n",
	} {
		out, _, err := command(t, newInspectCommand(), trace, "--mrc", "-")
		if err != nil || !strings.Contains(out, "undefined") {
			t.Errorf("%s: error %v, output %q", trace, err, out)
		}
	}
}

func TestParseCacheSizes(t *testing.T) {
	got, err := parseCacheSizes("64k, 1.5M,2G,40GiB, 1 TB,7")
	want := []cacheSize{{tokens: 64_000}, {tokens: 1.5e6}, {tokens: 2e9}, {bytes: 40 << 30}, {bytes: 1e12}, {tokens: 7}}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(cacheSize{})); diff != "" || err != nil {
		t.Errorf("%v, -want +got:\n%s", err, diff)
	}
	for _, bad := range []string{"", "0", "-1", "1.5", "inf", "nan", "1e300", "0B", "xGiB", "1,,2", "1kk"} {
		if _, err := parseCacheSizes(bad); err == nil {
			t.Errorf("%q is accepted", bad)
		}
	}
}
