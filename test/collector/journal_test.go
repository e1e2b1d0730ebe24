// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package collector

import (
	"io/fs"
	"path/filepath"
	"strings"
	"testing"

	"github.com/moonloop/moonloop/capture"
	"github.com/moonloop/moonloop/mooncake"
)

// compiled is what all journals below a folder compile to.
type compiled struct {
	rows   map[mooncake.SpanRef]int // of production, by their spans
	result capture.Result
	files  int // journals
}

// compile compiles the journals below a folder.
func compile(t *testing.T, dir string) *compiled {
	t.Helper()
	c := &compiled{rows: map[mooncake.SpanRef]int{}}
	var journals []capture.Source
	err := filepath.WalkDir(dir, func(name string, entry fs.DirEntry, err error) error {
		if err == nil && !entry.IsDir() && strings.HasSuffix(name, ".journal") {
			journals = append(journals, capture.FileSource(name))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	c.files = len(journals)
	c.result, err = capture.Compile(t.Context(), capture.Options{TempDir: t.TempDir()}, c.sink, journals...)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// sink counts the rows of production by their spans.
func (c *compiled) sink(p capture.Partition) (capture.TraceWriter, error) {
	return &counter{c, !p.Replay}, nil
}

type counter struct {
	*compiled
	count bool
}

// Write counts a row.
func (c *counter) Write(row *mooncake.Row) error {
	if c.count {
		c.rows[row.OTel]++
	}
	return nil
}

// Commit does nothing: rows are not kept.
func (*counter) Commit(*mooncake.Meta) error { return nil }

// Close does nothing.
func (*counter) Close() error { return nil }
