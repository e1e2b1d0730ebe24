// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package acceptance

import (
	"encoding/json"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// Figures of the public conversation trace, computed from the file independently of this project.
const (
	traceRows         = 12031
	traceSeqDigest    = "4a8b86da6cca3e389a72e6bbb4a1f1ab79e989eb3dd987d42aaf4f27818cb977"
	traceInputTokens  = 144_793_823
	traceOutputTokens = 4_122_048
	// fullBlockHits are the prompt tokens that an infinite cache of full 512-token blocks serves.
	fullBlockHits = 54_063_104
)

// goldenAnalysis is the expected output of inspect for the trace; other fields are not compared.
const goldenAnalysis = `{
  "block_size": 512,
  "rows": 12031,
  "arrivals": {
    "first_ms": 0, "last_ms": 3536999, "distinct_timestamps": 1180, "rows_at_the_timestamp_before": 10851,
    "rows_per_timestamp": {"min": 2, "p50": 10, "p99": 19, "max": 28},
    "timestamp_gap_ms": [2997, 3000, 3003],
    "grid": {"coarse": true}
  },
  "input_length": {
    "sum": 144793823, "min": 891, "p1": 894, "p10": 964, "p25": 2306, "p50": 6909, "p75": 15368, "p90": 27367,
    "p95": 39552, "p99": 85401, "p99.9": 121301, "max": 126195
  },
  "output_length": {
    "sum": 4122048, "min": 1, "p1": 3, "p10": 24, "p25": 156, "p50": 350, "p75": 472, "p90": 597,
    "p95": 698, "p99": 1120, "p99.9": 2000, "max": 2000, "rows_at_max": 30, "mode": 3, "mode_count": 255
  },
  "blocks": {
    "references": 288500, "per_row_min": 2, "per_row_max": 247, "rows_with_full_last_block": 22, "rows_below_one_block": 0,
    "distinct_ids": 182790, "ids_used_once": 138646, "ids_used_again": 44144, "roots": 1, "trunk_ids": 1,
    "ids_with_several_successors": 3876, "leaves": 11905, "depth": 247, "distinct_sequences": 11913,
    "most_copies_of_a_sequence": 9, "last_ids_also_inside": 8
  },
  "digests": {
    "seq_digest": "4a8b86da6cca3e389a72e6bbb4a1f1ab79e989eb3dd987d42aaf4f27818cb977",
    "tree_digest": "1a2b23aebae2550efc38f90cd9b0f98d66cccd38395d8531eacd221590ce027b",
    "arrival_digest": "190e7d8d5d4c33a03c9cc55ee05c6f9c9c6ebf05370664cc7e08de1138b02db7"
  }
}`

// goldenCaches is the expected output of inspect for two caches, by capacity; 0 is infinite.
const goldenCaches = `{
  "10000": {"hit_blocks": 61046, "hit_tokens": 31238981},
  "0": {
    "blocks": 288500, "hit_blocks": 105710, "input_tokens": 144793823, "hit_tokens": 54098411, "prefill_tokens": 90695412,
    "full_blocks": 276491, "full_block_hits": 105592, "full_block_hit_tokens": 54063104,
    "fully_hit_requests": 118, "not_hit_requests": 1, "hit_blocks_p50_p75_p90_p95_p99_max": [1, 7, 25, 43, 106, 240]
  }
}`

// TestAcceptanceInspect compares the output of inspect for the public trace, figure by figure, and measures its cost.
func TestAcceptanceInspect(t *testing.T) {
	trace, moonloop := setting(t, "MOONLOOP_TRACE"), setting(t, "MOONLOOP_BIN")
	p := start(t, artefacts(t), "inspect", nil, moonloop, "inspect", "--json", trace)
	if code := p.wait(t, time.Minute); code != 0 {
		t.Fatalf("exit status %d\n%s", code, p.tail())
	}
	analysis := readAnalysis(t, p.out)
	caches := map[string]any{}
	for _, entry := range at[[]any](t, analysis, "caches") {
		caches[fmt.Sprint(at[float64](t, entry, "capacity_blocks"))] = entry
	}
	problems, compared := differences("", decode(t, []byte(goldenAnalysis)), analysis)
	more, n := differences("/caches", decode(t, []byte(goldenCaches)), caches)
	for _, problem := range append(problems, more...) {
		t.Error(problem)
	}
	equal(t, "violations", len(at[[]any](t, analysis, "violations")), 0)
	equal(t, "seq_digest", at[string](t, analysis, "digests", "seq_digest"), traceSeqDigest)
	equal(t, "hit tokens, infinite cache", int(at[float64](t, caches, "0", "hit_tokens")), 54_098_411)
	equal(t, "hit tokens, LRU of 10,000 blocks", int(at[float64](t, caches, "10000", "hit_tokens")), 31_238_981)
	equal(t, "golden figures that differ", len(problems)+len(more), 0)
	note(t, "golden figures compared", compared+n)
	below(t, "wall time, s", p.lasted.Seconds(), 2)
	below(t, "peak memory, MiB", p.peakMiB(), 150)
}

// readAnalysis reads what `inspect --json` printed for one trace.
func readAnalysis(t *testing.T, name string) any {
	t.Helper()
	content, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	traces := at[[]any](t, decode(t, content), "traces")
	if len(traces) != 1 {
		t.Fatalf("%d traces inspected, want 1", len(traces))
	}
	return traces[0]
}

// differences compares everything in want with the same part of got, and returns the differences and the number of figures compared. Lists
// are compared whole.
func differences(place string, want, got any) (problems []string, compared int) {
	fields, ok := want.(map[string]any)
	if !ok {
		if diff := cmp.Diff(want, got); diff != "" {
			problems = append(problems, fmt.Sprintf("%s (-want +got):\n%s", place, diff))
		}
		return problems, 1
	}
	object, ok := got.(map[string]any)
	if !ok {
		return []string{fmt.Sprintf("%s: %v, want an object", place, got)}, 0
	}
	for name, value := range fields {
		more, n := differences(place+"/"+name, value, object[name])
		problems, compared = append(problems, more...), compared+n
	}
	return problems, compared
}

func decode(t *testing.T, text []byte) any {
	t.Helper()
	var value any
	if err := json.Unmarshal(text, &value); err != nil {
		t.Fatalf("%v in %.200s", err, text)
	}
	return value
}

// at returns a field of nested objects, which must exist and have the requested type.
func at[T any](t *testing.T, value any, path ...string) T {
	t.Helper()
	for _, name := range path {
		object, ok := value.(map[string]any)
		if !ok {
			t.Fatalf("%v: no object on the way to %q", path, name)
		}
		value = object[name]
	}
	typed, ok := value.(T)
	if !ok {
		t.Fatalf("%v is %T %.100v, want %T", path, value, value, typed)
	}
	return typed
}

func TestDifferences(t *testing.T) {
	golden := decode(t, []byte(`{"a": {"b": 1, "c": [1, 2]}, "d": "x"}`))
	same := decode(t, []byte(`{"a": {"b": 1, "c": [1, 2], "more": 0}, "d": "x"}`))
	if problems, n := differences("", golden, same); n != 3 || problems != nil {
		t.Errorf("%d figures compared, want 3; %v", n, problems)
	}
	for _, other := range []string{
		`{"a": {"b": 2, "c": [1, 2]}, "d": "x"}`, `{"a": {"b": 1, "c": [1]}, "d": "x"}`, `{"a": 1, "d": "x"}`, `{"d": "x"}`,
	} {
		if problems, _ := differences("", golden, decode(t, []byte(other))); len(problems) != 1 {
			t.Errorf("%s: %d problems, want 1: %v", other, len(problems), problems)
		}
	}
}
