// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package mooncake

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestMetaName(t *testing.T) {
	for trace, want := range map[string]string{
		"x.jsonl": "x.meta.json", "d/x.jsonl.gz": "d/x.meta.json", "x.jsonl.zst": "x.meta.json", "x.jsonl.bz2": "x.meta.json",
		"x": "x.meta.json", "x.json": "x.json.meta.json", "x.gz": "x.meta.json",
	} {
		if got := MetaName(trace); got != want {
			t.Errorf("%s: %s, want %s", trace, got, want)
		}
	}
}

func TestMetaRoundTrip(t *testing.T) {
	for name, m := range map[string]*Meta{
		"empty": {Schema: 1},
		"full": {
			Schema: 1, Tool: "t 1", Rows: 3, BlockSize: 64, SessionMode: SessionDelta,
			TimeBase: time.Date(2026, 1, 2, 3, 4, 5, 678901234, time.UTC), Identity: map[string]int64{"text": 3},
			HashDomains: []string{"0a1b2c3d"}, HashKeys: []string{"00000001", "ffffffff"}, Digests: toyDigests, Dropped: []Dropped{{"rows", "no_usage", 4}},
			Transformations: []Transformation{{
				Name: "rename", Parameters: map[string]any{"seed": 1.}, Effect: "ids renamed", Before: &TraceFigures{Rows: 3}, After: &TraceFigures{Rows: 2, GapCV: 1.5}, Sources: []TraceFigures{{Rows: 1}},
			}},
		},
	} {
		var b bytes.Buffer
		if err := m.Write(&b); err != nil {
			t.Fatal(err)
		}
		got, err := ReadMeta(&b)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(m, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func TestRefusedMeta(t *testing.T) {
	for in, want := range map[string]string{
		"":                                 "is not valid",
		"[]":                               "is not valid",
		"{}":                               "no schema version",
		`{"schema":2}`:                     "schema version 2, this program knows 1",
		`{"schema":1,"block_size":-1}`:     "block_size -1 must be above 0",
		`{"schema":1,"rows":-1}`:           "rows -1",
		`{"schema":1,"session_mode":"x"}`:  "must be full",
		`{"schema":1,"identity":{"a":-1}}`: "identity \"a\": -1",
		`{"schema":1,"dropped":[{"reason":"r","count":-2}]}`: "dropped \"r\": -2",
	} {
		if _, err := ReadMeta(strings.NewReader(in)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v\nwant it to contain %q", in, err, want)
		}
	}
	if _, err := ReadMeta(bytes.NewReader(make([]byte, maxMeta+1))); err == nil || !strings.Contains(err.Error(), "larger than") {
		t.Errorf("a huge sidecar: error %v", err)
	}
}

func TestContradictions(t *testing.T) {
	m := &Meta{Schema: 1, BlockSize: 64, SessionMode: SessionFull, Rows: 5}
	for name, test := range map[string]struct {
		err  error
		want bool
	}{
		"same block size":     {contradiction("block size", 64, m.orZero().BlockSize), false},
		"no block size given": {contradiction("block size", 0, m.orZero().BlockSize), false},
		"other block size":    {contradiction("block size", 512, m.orZero().BlockSize), true},
		"unknown block size":  {contradiction("block size", 512, (&Meta{}).orZero().BlockSize), false},
		"no sidecar":          {contradiction("block size", 512, (*Meta)(nil).orZero().BlockSize), false},
		"same mode":           {m.CheckSessionMode(SessionFull), false},
		"no mode given":       {m.CheckSessionMode(SessionUnknown), false},
		"other mode":          {m.CheckSessionMode(SessionDelta), true},
		"mode not needed":     {(&Meta{SessionMode: SessionNone}).CheckSessionMode(SessionDelta), false},
		"no sidecar, no mode": {(*Meta)(nil).CheckSessionMode(SessionDelta), false},
		"same rows":           {m.CheckRows(5), false},
		"other rows":          {m.CheckRows(4), true},
	} {
		if (test.err != nil) != test.want {
			t.Errorf("%s: error %v", name, test.err)
		}
	}
}

func TestCreate(t *testing.T) {
	for _, name := range []string{"t.jsonl", "t.jsonl.gz", "t.jsonl.zst"} {
		path := filepath.Join(t.TempDir(), name)
		f, err := Create(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, row := range toyRows() {
			if err := f.Write(row); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s exists before Commit", name)
		}
		if err := f.Commit(&Meta{BlockSize: 512}); err != nil {
			t.Fatal(err)
		}
		if err := f.Close(); err != nil {
			t.Errorf("Close after Commit: %v", err)
		}
		trace, err := Open(t.Context(), path, OpenOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(toyRows(), readAll(t, trace.Reader)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
		if m := trace.Meta(); m == nil || m.Rows != 4 || m.BlockSize != 512 || m.Schema != MetaSchema {
			t.Errorf("%s: sidecar %+v", name, m)
		}
		if err := trace.Close(); err != nil {
			t.Error(err)
		}
		for _, p := range []string{path, MetaName(path)} {
			if info, err := os.Stat(p); err != nil || info.Mode().Perm() != 0o600 {
				t.Errorf("%s: %v, %v", p, info.Mode(), err)
			}
		}
		if left, err := os.ReadDir(filepath.Dir(path)); err != nil || len(left) != 2 {
			t.Errorf("%s: files %v, %v, want the trace and its sidecar", name, left, err)
		}
	}
}

func TestAnAbandonedFileLeavesNothing(t *testing.T) {
	path := write(t, "t.jsonl", []byte("before"))
	f, err := Create(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Write(toyRows()[0]); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	}
	if data, err := os.ReadFile(path); err != nil || string(data) != "before" {
		t.Errorf("the earlier file contains %q, %v", data, err)
	}
	// A sidecar that cannot be written must not leave a trace without one.
	f, err = Create(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Commit(&Meta{BlockSize: -1}); err == nil {
		t.Error("an invalid sidecar was written")
	}
	if left, err := os.ReadDir(filepath.Dir(path)); err != nil || len(left) != 1 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

func TestCreateInAMissingFolder(t *testing.T) {
	if _, err := Create(filepath.Join(t.TempDir(), "none", "t.jsonl")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("error %v", err)
	}
}
