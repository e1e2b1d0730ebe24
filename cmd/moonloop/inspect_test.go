// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/moonloop/moonloop/mooncake"
)

// command runs one verb and returns what it wrote.
func command(t *testing.T, cmd *cobra.Command, stdin string, args ...string) (stdout, stderr string, err error) {
	t.Helper()
	var out, errs bytes.Buffer
	cmd.SetArgs(append([]string{}, args...)) // nil would mean the arguments of the test itself
	cmd.SetIn(strings.NewReader(stdin))
	cmd.SetOut(&out)
	cmd.SetErr(&errs)
	cmd.SilenceUsage, cmd.SilenceErrors = true, true
	err = cmd.ExecuteContext(t.Context())
	return out.String(), errs.String(), err
}

// conversationTrace returns the path of the public conversation trace.
func conversationTrace(t *testing.T) string {
	t.Helper()
	path := filepath.Join("..", "..", "..", "shared", "data", "conversation_trace.jsonl")
	if _, err := os.Stat(path); err != nil {
		t.Skip("the public conversation trace is missing: ../shared/data/conversation_trace.jsonl from the repository root")
	}
	return path
}

const (
	goodRow = "{\"timestamp\": 0, \"input_length\": 600, \"output_length\": 1, \"hash_ids\": [0, 1]}\n"
	oddRow  = "{\"timestamp\": 0, \"input_length\": 600, \"output_length\": 1, \"hash_ids\": [0, 1, 2], \"osl\": 1}\n"
)

func TestInspectPrintsTheGoldenFigures(t *testing.T) {
	alone(t)
	out, _, err := command(t, newInspectCommand(), "", "--strict", conversationTrace(t))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"12,031", "58m56.999s", "3.4015 req/s", "mean 294.0149 ms, CV 3.0337", "1,180, mean 10.20 rows, max 28", "3s, 100.0 % of gaps on it",
		"144,793,823", "6,909  15,368  27,367", "39,552  85,401  121,301  126,195", "4,122,048", "698  1,120  2,000  2,000",
		"288,500", "182,790", "138,646  44,144", "3,876  11,905  247", "7,373, 5,114 of one row", "90,695,412",
		"105,710  0.366412  54,098,411  0.373624          105,592", "61,046  0.211598  31,238,981  0.215748",
		"4a8b86da6cca3e389a72e6bbb4a1f1ab79e989eb3dd987d42aaf4f27818cb977",
		"1a2b23aebae2550efc38f90cd9b0f98d66cccd38395d8531eacd221590ce027b",
		"190e7d8d5d4c33a03c9cc55ee05c6f9c9c6ebf05370664cc7e08de1138b02db7",
		"rules V1 to V8  all kept", "ticks every 3s", "hits more than these figures",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is not in the output", want)
		}
	}
	if t.Failed() {
		t.Log(out)
	}
}

func TestInspectJSON(t *testing.T) {
	alone(t)
	out, _, err := command(t, newInspectCommand(), "", "--json", "--capacity", "10k,1000", "--eviction", "root-first", conversationTrace(t))
	if err != nil {
		t.Fatal(err)
	}
	var got inspection
	if err := json.Unmarshal([]byte(out), &got); err != nil {
		t.Fatal(err)
	}
	c := got.Traces[0].Caches
	if len(c) != 3 || c[0].Capacity != 1000 || c[0].HitBlocks != 12831 || c[1].HitBlocks != 60921 || c[2].HitTokens != 54098411 {
		t.Errorf("caches %+v", c)
	}
	if got.Traces[0].Rows != 12031 || got.Same != nil || len(got.Traces[0].Notices) != 0 {
		t.Errorf("%d rows, same %v, notices %v", got.Traces[0].Rows, got.Same, got.Traces[0].Notices)
	}
}

func TestInspectComparesTraces(t *testing.T) {
	dir := t.TempDir()
	write := func(name, data string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(data), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	a := write("a.jsonl", goodRow)
	renamed := write("b.jsonl", strings.Replace(goodRow, "[0, 1]", "[70, 71]", 1))
	longer := write("c.jsonl", goodRow+goodRow)
	broken := write("d.jsonl", strings.Replace(goodRow, "[0, 1]", "[0, 0]", 1))
	for _, test := range []struct {
		names []string
		want  string
	}{
		{[]string{a, renamed}, "b.jsonl against a.jsonl: the same workload: all digests agree"},
		{[]string{a, renamed, longer}, "c.jsonl against a.jsonl: not the same workload: sequence differs, tree differs, arrival differs"},
		{[]string{a, broken}, "d.jsonl against a.jsonl: not the same workload: other blocks in 1 row, first on lines 1 and 1"},
		{[]string{broken, broken}, "d.jsonl against d.jsonl: the same workload: 1 row with the same lengths and shared blocks"},
		{[]string{broken, "-"}, "cannot be told"},
	} {
		out, _, err := command(t, newInspectCommand(), goodRow, test.names...)
		if err != nil || !strings.Contains(out, test.want) {
			t.Errorf("error %v; %q is not in the output:\n%s", err, test.want, out)
		}
	}
}

func TestInspectStrict(t *testing.T) {
	out, _, err := command(t, newInspectCommand(), oddRow, "-")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"V3 broken       1 row: ", `unknown key "osl" in 1 row has no effect`, "1 row lists more ids",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is not in the output:\n%s", want, out)
		}
	}
	out, stderr, err := command(t, newInspectCommand(), oddRow, "--strict", "-")
	exit, ok := errors.AsType[exitError](err)
	if !ok || exit.status != exitGoals || !strings.Contains(stderr, "3 findings") || !strings.Contains(out, "V3 broken") {
		t.Errorf("error %v, stderr %q", err, stderr)
	}
	if _, _, err := command(t, newInspectCommand(), goodRow, "--strict", "-"); err != nil {
		t.Errorf("a good trace: %v", err)
	}
}

func TestInspectRefuses(t *testing.T) {
	side := filepath.Join(t.TempDir(), "t.jsonl")
	for name, data := range map[string]string{side: goodRow, mooncake.MetaName(side): `{"schema":1,"block_size":512,"rows":2}`} {
		if err := os.WriteFile(name, []byte(data), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for name, test := range map[string]struct {
		args []string
		want string
	}{
		"no trace":              {nil, "inspect takes one file or more"},
		"a missing file":        {[]string{"none.jsonl"}, "none.jsonl"},
		"a capacity of 0":       {[]string{"--capacity", "0", "-"}, "--capacity"},
		"a broken capacity":     {[]string{"--capacity", "1.0005k", "-"}, "--capacity"},
		"an unknown eviction":   {[]string{"--eviction", "lfu", "-"}, "leaf-first or root-first"},
		"another block size":    {[]string{"--block-size=16", side}, "block size 16 contradicts"},
		"rows that are missing": {[]string{side}, "the trace has 1 rows, its sidecar says 2"},
	} {
		out, _, err := command(t, newInspectCommand(), goodRow, test.args...)
		if err == nil || !strings.Contains(err.Error(), test.want) || out != "" {
			t.Errorf("%s: error %v, output %q", name, err, out)
		}
	}
}

func TestParseCapacities(t *testing.T) {
	got, err := parseCapacities("1k, 5859,1.5K,2m")
	if err != nil || len(got) != 4 || got[0] != 1000 || got[1] != 5859 || got[2] != 1500 || got[3] != 2_000_000 {
		t.Errorf("%v, %v", got, err)
	}
}
