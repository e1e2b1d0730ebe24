// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package transform

import (
	"bytes"
	"errors"
	"io"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/moonloop/moonloop/mooncake"
	"github.com/moonloop/moonloop/mooncake/stats"
)

// public returns the public conversation trace.
func public(t testing.TB) []byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("..", "..", "..", "shared", "data", "conversation_trace.jsonl"))
	if errors.Is(err, os.ErrNotExist) {
		t.Skip("the public trace is not there: see CONTRIBUTING.md")
	}
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// source is a trace of JSON lines.
func source(data []byte, fine int) Source {
	return Source{Name: "test", Open: func() (Rows, error) {
		return mooncake.NewReader(bytes.NewReader(data), mooncake.ReaderOptions{Name: "test", FineBlockSize: fine}), nil
	}}
}

// transformed runs a transformation, and gives the trace and what inspect says of it.
func transformed(t testing.TB, c Config, sources ...Source) ([]*mooncake.Row, *stats.Analysis, Report) {
	t.Helper()
	s, err := Open(c, sources...)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	var file bytes.Buffer
	if err := s.Each(t.Context(), mooncake.NewWriter(&file).Write); err != nil {
		t.Fatal(err)
	}
	opt := stats.AnalyzeOptions{BlockSize: s.BlockSize(), FineBlockSize: s.FineBlockSize()}
	a := stats.NewAnalyzer(opt)
	r := mooncake.NewReader(&file, mooncake.ReaderOptions{Strict: true, BlockSize: opt.BlockSize, FineBlockSize: opt.FineBlockSize})
	var rows []*mooncake.Row
	for {
		row, err := r.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		a.Add(row, r.Line())
		rows = append(rows, row)
	}
	return rows, a.Analysis(), s.Report()
}

// curve counts rows per minute.
func curve(rows []*mooncake.Row) (minutes []float64) {
	for _, row := range rows {
		m := int(row.Timestamp.V / minute)
		for len(minutes) <= m {
			minutes = append(minutes, 0)
		}
		minutes[m]++
	}
	return minutes
}

// TestScalePublicTrace: what is promised of scaling, on the public trace.
func TestScalePublicTrace(t *testing.T) {
	data := public(t)
	rows, was, _ := transformed(t, Config{}, source(data, 0))
	full, truth := curve(rows), hitRate(was)
	for _, c := range []struct {
		factor float64
		seeds  uint64
	}{{0.1, 8}, {0.5, 1}, {2.5, 1}, {4, 1}} {
		var off, most, worst, mean, n float64
		for seed := range c.seeds {
			rows, a, _ := transformed(t, Config{Scale: c.factor, Seed: seed}, source(data, 0))
			if len(a.Violations) > 0 {
				t.Errorf("×%g: %v", c.factor, a.Violations)
			}
			d := 100 * math.Abs(hitRate(a)-truth)
			off += d / float64(c.seeds)
			most = max(most, d)
			for m, got := range curve(rows) {
				if full[m] < 10 {
					continue
				}
				e := math.Abs(got/(c.factor*full[m]) - 1)
				worst = max(worst, e)
				mean += e
				n++
			}
		}
		t.Logf("×%g: hit rate off by %.3f points on average, %.3f at most; minutes off by %.1f %% on average, %.1f %% at most", c.factor, off, most, 100*mean/n, 100*worst)
		if off > 2 || worst > 0.1 {
			t.Errorf("×%g: hit rate off by %.3f points on average, a minute by %.1f %%", c.factor, off, 100*worst)
		}
	}
}

func hitRate(a *stats.Analysis) float64 {
	c := a.Caches[len(a.Caches)-1]
	return float64(c.HitTokens) / float64(c.InputTokens)
}
