// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package segment

import (
	"testing"
	"time"
)

func TestParse(t *testing.T) {
	at := time.Date(2026, 11, 21, 17, 5, 1, 0, time.UTC)
	for _, c := range []struct {
		name, file string
		want       id
		why        string
	}{
		{"a", "a-20261121T170501Z-000001.journal", id{"a", at, 1}, "what String writes"},
		{"a-b", "a-b-20261121T170501Z-000002.journal", id{"a-b", at, 2}, "a name may look like two"},
		{"a", "a-20261121T170501Z-1234567.journal", id{"a", at, 1234567}, "numbers do not end at six digits"},
		{"a", "a-b-20261121T170501Z-000002.journal", id{}, "a segment of another name, which begins with this one"},
		{"a", "a-20261121T170501Z-01.journal", id{}, "not as String writes it: two files would be one segment"},
		{"a", "a-20261121T170501Z-+00001.journal", id{}, "a sign is not a digit"},
		{"a", "a-20261321T170501Z-000001.journal", id{}, "no such month"},
		{"a", "a-20261121T170501Z-000001.jsonl", id{}, "a trace"},
		{"a", "a-20261121T170501Z-000001.journal.gz", id{}, "somebody's copy"},
		{"a", "a.lock", id{}, "the lock"},
	} {
		got, ok := parse(c.name, c.file)
		if got != c.want || ok != (c.want != id{}) {
			t.Errorf("%s of %s: got %v, %v, want %v: %s", c.file, c.name, got, ok, c.want, c.why)
		}
	}
}

func TestEnd(t *testing.T) {
	begun := time.Date(2026, 11, 21, 17, 5, 1, 0, time.FixedZone("elsewhere", 5400))
	for _, c := range []struct {
		age  time.Duration
		want time.Time
		why  string
	}{
		{0, time.Time{}, "never"},
		{time.Hour, time.Date(2026, 11, 21, 16, 0, 0, 0, time.UTC), "15:35 UTC: the next hour of UTC, not of the zone"},
		{24 * time.Hour, time.Date(2026, 11, 22, 0, 0, 0, 0, time.UTC), "midnight UTC"},
		{8 * time.Hour, time.Date(2026, 11, 21, 16, 0, 0, 0, time.UTC), "a third of a day"},
		{7 * time.Hour, begun.Add(7 * time.Hour), "does not divide a day"},
		{48 * time.Hour, begun.Add(48 * time.Hour), "nor does one longer than a day"},
	} {
		o := Options{MaxAge: c.age}
		if got := o.end(begun); !got.Equal(c.want) {
			t.Errorf("%v: got %v, want %v: %s", c.age, got, c.want, c.why)
		}
	}
}

func TestValidate(t *testing.T) {
	good := Options{Directory: "d", Name: "n"}
	if err := good.Validate(); err != nil {
		t.Errorf("the least that is needed: %v", err)
	}
	for why, change := range map[string]func(*Options){
		"no directory":                     func(o *Options) { o.Directory = "" },
		"no name":                          func(o *Options) { o.Name = "" },
		"a name that leaves the directory": func(o *Options) { o.Name = "../x" },
		"a hidden name":                    func(o *Options) { o.Name = ".x" },
		"a name that looks like an option": func(o *Options) { o.Name = "-x" },
		"negative size":                    func(o *Options) { o.MaxBytes = -1 },
		"a segment per millisecond":        func(o *Options) { o.MaxAge = time.Millisecond },
		"grace without a bound":            func(o *Options) { o.Grace = MaxGrace + 1 },
		"negative retention":               func(o *Options) { o.Retention.MaxBytes = -1 },
		"negative age of retention":        func(o *Options) { o.Retention.MaxAge = -1 },
	} {
		o := good
		change(&o)
		if o.Validate() == nil {
			t.Errorf("%s is not refused", why)
		}
		if _, err := Open(o); err == nil {
			t.Errorf("%s: Open accepts it", why)
		}
	}
}
