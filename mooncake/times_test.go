// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package mooncake

import (
	"math"
	"strings"
	"testing"
	"time"
)

// stampsOf returns the timestamps that a reader reads from rows with these JSON values as timestamps.
func stampsOf(opt ReaderOptions, values ...string) ([]float64, *Reader, error) {
	var in strings.Builder
	for _, v := range values {
		in.WriteString(`{"timestamp": ` + v + `, "input_length": 1}` + "\n")
	}
	opt.Name = "t"
	rows, r, err := read(in.String(), opt)
	var got []float64
	for _, row := range rows {
		got = append(got, row.Timestamp.V)
	}
	return got, r, err
}

func TestTimestamps(t *testing.T) {
	const at = 1795273445000. // 2026-11-21T15:04:05Z in ms
	for _, test := range []struct {
		name   string
		unit   time.Duration
		values []string
		want   []float64
		notice string
	}{
		{"milliseconds from a start", 0, []string{"0", "2999.5", "1e9", "2100000000"}, []float64{0, 2999.5, 1e9, 2.1e9}, ""},
		{"milliseconds since 1970", 0, []string{"1795273445000", "1795273445000.25"}, []float64{at, at + 0.25}, ""},
		{"seconds since 1970", 0, []string{"1795273445", "1795273445.001", "1.795273446e9"}, []float64{at, at + 1, at + 1000}, "must be seconds since 1970"},
		{"microseconds since 1970", 0, []string{"1795273445000000", "1795273445001500"}, []float64{at, at + 1.5}, "must be microseconds since 1970"},
		{"nanoseconds since 1970", 0, []string{"1795273445000000000", "1795273445001500000"}, []float64{at, at + 1.5}, "must be nanoseconds since 1970"},
		{"dates", 0, []string{`"2026-11-21T15:04:05Z"`, `"2026-11-21T16:04:05.00025+01:00"`, `"2026-11-21 15:04:05.5 +0000"`}, []float64{at, at + 0.25, at + 500}, "dates, and read"},
		{"dates without a zone", 0, []string{`"2026-11-21T15:04:05"`, `"2026-11-21 15:04:05.123456789"`}, []float64{at, at + 123.456789}, "dates without a zone"},
		{"a row without a timestamp", 0, []string{"null", "1795273445"}, []float64{0, at}, "seconds"},

		{"milliseconds as stated", time.Millisecond, []string{"1795273445", "1795273445000"}, []float64{1795273445, at}, ""},
		{"seconds as stated", time.Second, []string{"0", "0.0015", "1.1", "1e3"}, []float64{0, 1.5, 1100, 1e6}, ""},
		{"microseconds as stated", time.Microsecond, []string{"0", "1500.5"}, []float64{0, 1.5005}, ""},
		{"nanoseconds as stated", time.Nanosecond, []string{"0", "1500000"}, []float64{0, 1.5}, ""},
		{"dates, whatever numbers would be", time.Second, []string{`"2026-11-21T15:04:05Z"`}, []float64{at}, "dates"},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, r, err := stampsOf(ReaderOptions{Unit: test.unit}, test.values...)
			if err != nil {
				t.Fatal(err)
			}
			for i, want := range test.want {
				if off := got[i] - want; off > 1e-3 || off < -1e-3 { // a quarter of a microsecond is the precision of a float at 1.8e12
					t.Errorf("%s is %v ms, want %v", test.values[i], got[i], want)
				}
			}
			notices := r.Notices()
			if test.notice == "" && len(notices) > 0 || test.notice != "" && (len(notices) != 1 || !strings.Contains(notices[0].Text, test.notice)) {
				t.Errorf("notices %v, want one of %q", notices, test.notice)
			}
		})
	}
}

// TestScaledOnce: a time in another unit becomes the nearest number of milliseconds, not a rounded product.
func TestScaledOnce(t *testing.T) {
	got, _, err := stampsOf(ReaderOptions{Unit: time.Second}, "1.001", "16.077", "33.29")
	if err != nil || got[0] != 1001 || got[1] != 16077 || got[2] != 33290 {
		t.Errorf("%v, error %v", got, err)
	}
}

func TestTimestampsOfTwoKinds(t *testing.T) {
	for _, test := range []struct {
		values []string
		want   string
	}{
		{[]string{"0", `"2026-11-21T15:04:05Z"`}, "t:2: timestamp: is a date with a zone, and those of the rows before are milliseconds from the start"},
		{[]string{`"2026-11-21T15:04:05Z"`, `"2026-11-21T15:04:05"`}, "t:2: timestamp: is a date without a zone, and"},
		{[]string{`"2026-11-21T15:04:05Z"`, "1"}, "t:2: timestamp: is milliseconds from the start, and"},
		{[]string{"1795273445", "1795273445000"}, "t:2: timestamp: is milliseconds since 1970, and those of the rows before are seconds since 1970"},
		{[]string{"1795273445", "12"}, "t:2: timestamp: is milliseconds from the start, and"},
		{[]string{"0", "5", "1795273445000"}, "t:3: timestamp: is milliseconds since 1970, and"},
		{[]string{"1795273445000000", "1795273445000000000"}, "t:2: timestamp: is nanoseconds since 1970, and"},
		{[]string{`"yesterday"`}, `t:1: timestamp: a string: must be a number, or a date with a time; write it as 2026-11-21T15:04:05.123Z`},
		{[]string{`"1969-12-31T23:59:59Z"`}, "from 1970 to 2200"},
		{[]string{`"2026-11-21"`}, "a date with a time"},
		{[]string{`" 12 "`}, "write it without quotes"},
		{[]string{`true`}, "timestamp: a boolean: must be a number, or a date with a time"},
		{[]string{`1e300`}, "must be a finite number of milliseconds"},
	} {
		if _, _, err := stampsOf(ReaderOptions{}, test.values...); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%v: error %v\nwant it to contain %q", test.values, err, test.want)
		}
	}
}

// TestARefusedRowDecidesNothing: the first row that can be used decides which kind of timestamps a trace has.
func TestARefusedRowDecidesNothing(t *testing.T) {
	r := NewReader(strings.NewReader("{\"timestamp\": 1795273445, \"input_length\": 0}\n{\"timestamp\": 5, \"input_length\": 1}\n"), ReaderOptions{Reject: func(Rejected) error { return nil }})
	if row, err := r.Read(); err != nil || row.Timestamp.V != 5 {
		t.Errorf("row %v, error %v", row, err)
	}
}

func TestSidecarTellsTheUnit(t *testing.T) {
	path := write(t, "t.jsonl", []byte("{\"timestamp\": 1.5, \"input_length\": 1}\n"))
	if err := (&Meta{TimeUnit: "s"}).Save(path); err != nil {
		t.Fatal(err)
	}
	trace, err := Open(t.Context(), path, OpenOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = trace.Close() }()
	if row, err := trace.Read(); err != nil || row.Timestamp.V != 1500 || trace.Unit() != time.Second {
		t.Errorf("row %v, unit %v, error %v", row, trace.Unit(), err)
	}
	if _, err := Open(t.Context(), path, OpenOptions{Unit: time.Millisecond}); err == nil || !strings.Contains(err.Error(), "time unit ms contradicts") {
		t.Errorf("a unit that contradicts the sidecar: error %v", err)
	}
}

func TestDuration(t *testing.T) {
	for ms, want := range map[float64]time.Duration{
		0: 0, 1500: 1500 * time.Millisecond, -0.001: -time.Microsecond,
		0.001009: 1009, // truncation would give 1,008
		2e-6:     2, 0.6e-6: 1, 0.4e-6: 0,
		1e300: math.MaxInt64, -1e300: math.MinInt64, math.Inf(1): math.MaxInt64,
	} {
		if got := Duration(ms); got != want {
			t.Errorf("%v ms: %d, want %d", ms, got, want)
		}
	}
	if got := Duration(math.NaN()); got != 0 {
		t.Errorf("NaN: %v", got)
	}
}
