// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package mooncake

import (
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestObservedRoundTrip: what production reported about a row is read, kept and written; absent is not 0.
func TestObservedRoundTrip(t *testing.T) {
	for _, c := range []struct {
		line string
		want Observed
	}{
		{`{"input_length": 600, "output_length": 1}`, Observed{}},
		{`{"input_length": 600, "output_length": 1, "observed": {"cached_tokens": 0}}`, Observed{CachedTokens: Some[int64](0)}},
		{
			`{"input_length": 600, "output_length": 1, "observed": {"cached_tokens": 512, "ttft_ms": 41.25, "duration_ms": 900}}`,
			Observed{CachedTokens: Some[int64](512), TTFT: Some(41.25), Duration: Some(900.0)},
		},
	} {
		row, err := NewReader(strings.NewReader(c.line), ReaderOptions{}).Read()
		if err != nil {
			t.Fatalf("%s: %v", c.line, err)
		}
		if d := cmp.Diff(c.want, row.Observed); d != "" {
			t.Errorf("%s: %s", c.line, d)
		}
		if got := string(AppendRow(nil, row)); got != c.line {
			t.Errorf("written as %s\nwant       %s", got, c.line)
		}
	}
	for _, nothing := range []string{`null`, `{}`, `{"cached_tokens": null}`} {
		row, err := NewReader(strings.NewReader(`{"input_length": 1, "observed": `+nothing+`}`), ReaderOptions{}).Read()
		if err != nil || !row.Observed.IsZero() {
			t.Errorf("observed %s: %v, %v", nothing, row, err)
		}
	}
}

// TestObservedRefused: impossible values are an error that names the field.
func TestObservedRefused(t *testing.T) {
	for observed, want := range map[string]string{
		`7`:                      "observed",
		`{"cached_tokens": -1}`:  "observed.cached_tokens",
		`{"cached_tokens": 601}`: "observed.cached_tokens",
		`{"cached_tokens": 1.5}`: "observed.cached_tokens",
		`{"cached_tokens": "1"}`: "observed.cached_tokens",
		`{"ttft_ms": -1}`:        "observed.ttft_ms",
		`{"duration_ms": 1e300}`: "observed.duration_ms",
		`{"duration_ms": true}`:  "observed.duration_ms",
	} {
		_, err := NewReader(strings.NewReader(`{"input_length": 600, "observed": `+observed+`}`), ReaderOptions{}).Read()
		if re, ok := errors.AsType[*RowError](err); !ok || re.Field != want || re.Advice == "" {
			t.Errorf("observed %s: %v; want an error of %s with advice", observed, err, want)
		}
	}
}

// TestObservedUnknownKey: an unknown key is counted, as anywhere in a row.
func TestObservedUnknownKey(t *testing.T) {
	r := NewReader(strings.NewReader(`{"input_length": 1, "observed": {"mood": {"a": [1]}, "cached_tokens": 1}}`), ReaderOptions{})
	row, err := r.Read()
	if err != nil || row.Observed.CachedTokens != Some[int64](1) {
		t.Fatalf("%+v, %v", row, err)
	}
	if _, err := r.Read(); !errors.Is(err, io.EOF) {
		t.Fatal(err)
	}
	if n := r.Notices(); len(n) != 1 || n[0].Code != NoticeUnknownKey || !strings.Contains(n[0].Text, "observed.mood") {
		t.Errorf("notices %+v", n)
	}
}

// TestObservedWarning: a difference of more than 2 points is reported with its likely reason and what to do.
func TestObservedWarning(t *testing.T) {
	for _, c := range []struct {
		why       string
		cache     ObservedCache
		blockSize int
		want      string // part of the warning; empty: none
	}{
		{"no rows", ObservedCache{}, 512, ""},
		{"within 2 points", ObservedCache{Rows: 10, InputTokens: 1000, Cached: 769, Predicted: 750}, 512, ""},
		{"coarse blocks: how much", ObservedCache{Rows: 10, InputTokens: 10_000, Cached: 7700, Predicted: 6320, Above: 1}, 512, "13.8 points less"},
		{"coarse blocks: what to do", ObservedCache{Rows: 10, InputTokens: 10_000, Cached: 7700, Predicted: 6320, Above: 1}, 512, "--block-size 32"},
		{"ranges are fine already", ObservedCache{Rows: 10, InputTokens: 10_000, Cached: 7700, Predicted: 6320, Above: 1, Ranged: 9}, 512, "outside this capture"},
		{"blocks are fine already", ObservedCache{Rows: 10, InputTokens: 10_000, Cached: 7700, Predicted: 6320, Above: 1}, 32, "outside this capture"},
		{"most rows miss whole blocks", ObservedCache{Rows: 10, InputTokens: 10_000, Cached: 7700, Predicted: 0, Above: 9}, 512, "outside this capture"},
		{"a template that reorders, or eviction", ObservedCache{Rows: 10, InputTokens: 10_000, Cached: 3320, Predicted: 6030, Below: 8}, 512, "27.1 points more"},
		{"no cache at all", ObservedCache{Rows: 10, InputTokens: 10_000, Predicted: 6030, Below: 8}, 512, "prefix caching was off"},
	} {
		got := c.cache.Warning(c.blockSize)
		if c.want == "" && got != "" || !strings.Contains(got, c.want) {
			t.Errorf("%s: %q, want %q", c.why, got, c.want)
		}
	}
}
