// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/moonloop/moonloop/mooncake"
	"github.com/moonloop/moonloop/mooncake/stats"
)

// rangedRows are two turns of a conversation, and a third prompt, which diverges from the first one within its second block. An engine with
// blocks of 16 tokens had cached all that the prompts share, and the reply.
const rangedRows = `{"timestamp": 0, "input_length": 1030, "output_length": 100, "hash_ids": [0, 1, 2], "hash_ranges": [[0, 65]]}
{"timestamp": 9000, "input_length": 1300, "output_length": 9, "hash_ids": [0, 1, 3], "hash_ranges": [[0, 64], [65, 18]], "replies": [[1, 1030, 100]], "observed": {"cached_tokens": 1120}}
{"timestamp": 9500, "input_length": 900, "output_length": 9, "hash_ids": [0, 4], "hash_ranges": [[0, 40], [83, 17]], "observed": {"cached_tokens": 640}}
`

// savedTrace writes a trace, with its sidecar unless that is empty.
func savedTrace(t *testing.T, name, rows, sidecar string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	for file, text := range map[string]string{path: rows, mooncake.MetaName(path): sidecar} {
		if text == "" {
			continue
		}
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return path
}

func TestInspectShowsFinerSharing(t *testing.T) {
	trace := savedTrace(t, "fine.jsonl", rangedRows, `{"schema": 1, "block_size": 512, "fine_block_size": 16}`)
	out, _, err := command(t, newInspectCommand(), "", "--strict", trace)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"3, blocks of 16 tokens", "47.55 %", "51.52 %", "54.49 %", "1  100",
		"The lines of hash_ranges above show how much more", "range_digest    ", "rules V1 to V9  all kept",
		"the engine had cached 80.0 % of the prompt tokens of 2 requests; this trace predicts 80.0 %",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is not in the output", want)
		}
	}
	if strings.Contains(out, "warning") || t.Failed() {
		t.Error(out)
	}
	out, _, err = command(t, newInspectCommand(), "", "--json", trace)
	if err != nil {
		t.Fatal(err)
	}
	var got inspection
	if err := json.Unmarshal([]byte(out), &got); err != nil {
		t.Fatal(err)
	}
	want := stats.FineStats{
		BlockSize: 16, Rows: 3, InputTokens: 3230, CoarseHitTokens: 1536, HitTokens: 1664, RepliesHitTokens: 1760,
		CoarseRate: 1536. / 3230, Rate: 1664. / 3230, RepliesRate: 1760. / 3230, ReplyRows: 1, Replies: 1, ReplyTokens: 100,
	}
	if fine := got.Traces[0].Fine; fine != want {
		t.Errorf("got  %+v\nwant %+v", fine, want)
	}
	// The output for a trace without ranges does not mention them.
	out, _, err = command(t, newInspectCommand(), "", "--json", savedTrace(t, "plain.jsonl", goodRow, ""))
	if err != nil || strings.Contains(out, `"fine_`) || strings.Contains(out, `"range`) {
		t.Errorf("%v\n%s", err, out)
	}
}

func TestInspectRefusesRangesOfUnknownSize(t *testing.T) {
	for name, tc := range map[string]struct {
		sidecar string
		args    []string
		says    string
	}{
		"no fine block size":          {"", nil, "fine.jsonl:1: hash_ranges: nothing says how many tokens an id stands for; give fine_block_size in the trace's sidecar ("},
		"the size from the flag":      {"", []string{"--fine-block-size=16"}, ""},
		"a contradiction":             {`{"schema": 1, "fine_block_size": 16}`, []string{"--fine-block-size=32"}, "fine block size 32 contradicts the trace's sidecar, which says 16"},
		"a size that does not divide": {"", []string{"--fine-block-size=48"}, "fine block size 48 must divide the block size 512"},
		"another block size":          {`{"schema": 1, "fine_block_size": 16}`, []string{"--block-size=16"}, "fine block size 16 must divide the block size 16 and be below it"},
	} {
		t.Run(name, func(t *testing.T) {
			trace := savedTrace(t, "fine.jsonl", rangedRows, tc.sidecar)
			out, _, err := command(t, newInspectCommand(), "", append(tc.args, trace)...)
			if tc.says == "" && err != nil || tc.says != "" && (err == nil || !strings.Contains(err.Error(), tc.says) || out != "") {
				t.Errorf("%v, want %q", err, tc.says)
			}
		})
	}
}

// TestInspectComparesRanges: traces that differ only in ranges are not the same workload; a violated rule is a finding.
func TestInspectComparesRanges(t *testing.T) {
	sidecar := `{"schema": 1, "fine_block_size": 16}`
	save := func(name, rows string) string { return savedTrace(t, name, rows, sidecar) }
	one := save("one.jsonl", rangedRows)
	renamed := save("renamed.jsonl", strings.NewReplacer("[[0, 65]]", "[[7000, 65]]", "[0, 64], [65, 18]", "[7000, 64], [1, 18]", "[0, 40]", "[7000, 40]").Replace(rangedRows))
	other := save("other.jsonl", strings.Replace(rangedRows, "[0, 40], [83, 17]", "[0, 39], [83, 18]", 1))
	broken := save("broken.jsonl", strings.Replace(rangedRows, "[0, 40], [83, 17]", "[0, 30], [83, 27]", 1))
	for _, tc := range []struct{ first, second, says string }{
		{one, renamed, "the same workload: all digests agree"},
		{one, other, "not the same workload: range differs"},
		{one, broken, "other ranges in 1 row, first on lines 3 and 3"},
	} {
		out, _, err := command(t, newInspectCommand(), "", tc.first, tc.second)
		if err != nil || !strings.Contains(out, tc.says) {
			t.Errorf("%v, want %q in\n%s", err, tc.says, out)
		}
	}
	out, errs, err := command(t, newInspectCommand(), "", "--strict", broken)
	if err == nil || !strings.Contains(errs, "1 finding") || !strings.Contains(out, "V9 broken       1 row: hash_ranges describe other prefixes than hash_ids, or than other rows do; the first at block 0 (first in line 3)") {
		t.Errorf("%v, %s\n%s", err, errs, out)
	}
}
