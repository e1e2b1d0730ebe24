// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/moonloop/moonloop/capture/journal"
)

// TestRunFileIsInjective: two runs have two files, even if the file system ignores case.
func TestRunFileIsInjective(t *testing.T) {
	ids := []string{
		"", "-", "run", "Run", "RUN", "evil/run", "evil:run", "evil_run", "x.", "x", "x_", "..", ".",
		strings.Repeat("a", 64), strings.Repeat("a", 65), strings.Repeat("a", 66),
	}
	for _, id := range slices.Clone(ids) {
		// An id that equals what the file name of another id has in place of the id.
		file := RunFile("o.jsonl", name(t, id))
		ids = append(ids, strings.TrimSuffix(strings.TrimPrefix(file, "o.run-"), ".jsonl"))
	}
	slices.Sort(ids)
	seen := map[string]string{}
	for _, id := range slices.Compact(ids) {
		file := strings.ToLower(RunFile("o.jsonl", name(t, id)))
		if other, taken := seen[file]; taken {
			t.Errorf("runs %q and %q have the file %s", other, id, file)
		}
		seen[file] = id
	}
	if got := RunFile("o", name(t, "x.")); strings.HasSuffix(got, ".") {
		t.Errorf("%s ends in a dot, which some file systems drop", got)
	}
}

func TestRunFiles(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "[odd] *")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"a.jsonl", "a.run-1.jsonl", "a.run-1.meta.json", "a.run-2.jsonl.gz", "b.run-1.jsonl"} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	got, err := RunFiles(filepath.Join(dir, "a.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	equal(t, "files", []string{filepath.Join(dir, "a.run-1.jsonl"), filepath.Join(dir, "a.run-1.meta.json")}, got)
	if _, err := RunFiles(filepath.Join(dir, "nowhere", "a.jsonl")); err == nil {
		t.Error("a folder that does not exist is no error")
	}
}

// TestSpansAddUp: each inference span is a row, merged, or dropped for one reason, whatever happens to it.
func TestSpansAddUp(t *testing.T) {
	records := append(traffic(t, 600),
		call(1, 1, 0, 0, failed), call(2, 1, 0, 0, failed, response("f")), call(3, 1, 0, 0, response("f"), failed),
		call(4, 1, 0, 0, noTokens), call(5, 1, 0, 0, noTokens, inSession(9)), call(6, 1, 0, 0, tokens(1<<40, 1)),
		call(7, 1, 0, 0, func(r *journal.Inference) { r.Start = 5 }), call(8, 1, 0, 0, func(r *journal.Inference) { r.Warmup = true }),
		call(9, 1, 0, 0), call(9, 2, 1, 0), call(9, 3, 2, 0, failed),
		replayed(t, "late", 1, 10, 1, 0, 7), replayed(t, "late", 1, 10, 2, 0, 7), replayed(t, "late", -1, 11, 1, 0, 7),
		replayed(t, "later", 1, 12, 1, 0, 7), call(12, 2, 0, 0, failed),
	)
	for _, o := range []Options{
		{},
		{MissingTokens: MissingEstimate},
		{Replays: ReplaysDrop},
		{Replays: ReplaysOnly},
		{MaxRuns: 1},
		{MaxTraceSpans: 2},
		{MaxTraceSpans: 1, Format: FormatMooncake},
	} {
		_, res := compileBytes(t, o, journalOf(records...))
		all := dropped(res.Dropped, lostRun)
		for _, p := range res.Traces {
			sum := p.Meta.Rows + p.Merged
			for _, d := range p.Meta.Dropped {
				mine := d.Count - dropped(res.Dropped, loss{d.What, d.Reason})
				if (d.What == "rows" || d.What == "requests" || d.What == "spans") && d.Reason != lostDuplicate.reason {
					sum += mine
				}
				if d.Reason == lostDuplicate.reason {
					all += mine
				}
			}
			if sum != p.Spans || p.Spans == 0 {
				t.Errorf("%+v: %s: %d spans, %d accounted for: %d rows, %d merged, %v", o, p.name(), p.Spans, sum, p.Meta.Rows, p.Merged, p.Meta.Dropped)
			}
			all += p.Spans
		}
		if inferences := res.Inferences; all > inferences || all+res.Copies < inferences {
			t.Errorf("%+v: %d spans in all partitions, %d were read, %d of them copies", o, all, inferences, res.Copies)
		}
	}
}
