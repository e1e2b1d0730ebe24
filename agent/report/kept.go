// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package report

// This file continues the records of a run that was cut short: it reads those that count, and lets the resumed part append to them.

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/moonloop/moonloop/agent/measure"
	"github.com/moonloop/moonloop/agent/report/lines"
	"github.com/moonloop/moonloop/agent/report/page"
	"github.com/moonloop/moonloop/internal/atomicfile"
	"github.com/moonloop/moonloop/internal/jsonrows"
	"github.com/moonloop/moonloop/mooncake"
)

// Kept are the valid records of a run that was cut short, in its directory.
type Kept struct {
	name    string // of the file; empty if there is none
	whole   int64  // bytes of its whole lines
	dropped []int  // lines that do not count, from 0, ascending
	last    int64  // greatest index of the others
	ordered bool   // the others are in the order of their rows
}

// ReadKept reads the records of a run that was cut short: those of [PartialFile], or, for a stopped run, of [RequestsFile]. keep reports
// for each record whether it counts. A torn last line does not count.
func ReadKept(dir string, keep func(*measure.Record) (bool, error)) (*Kept, error) {
	k := &Kept{last: -1, ordered: true}
	var f *os.File
	for _, name := range []string{PartialFile, RequestsFile} {
		var err error
		if f, err = atomicfile.Open(filepath.Join(dir, name)); err == nil {
			k.name = name
			break
		} else if !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("the records of the run cannot be read: %w", err)
		}
	}
	if f == nil {
		return k, nil
	}
	defer func() { _ = f.Close() }() // it was only read
	n := -1
	var err error
	k.whole, err = wholeLines(f, f.Name(), 0, 0, func(line []byte) error {
		n++
		r, err := parseRecord(line)
		if err != nil {
			return err
		}
		counts, err := keep(r)
		if err != nil {
			return err
		}
		if !counts {
			k.dropped = append(k.dropped, n)
			return nil
		}
		k.ordered = k.ordered && r.Index > k.last
		k.last = max(k.last, r.Index)
		return nil
	})
	return k, err
}

// Reopen continues the records: new ones are appended to those that count. It removes the results of the part before, because they do not
// cover the whole run. The sidecar is that of [PartialFile].
func (k *Kept) Reopen(dir string, sidecar *mooncake.Meta) (*Requests, error) {
	if err := k.writePartial(dir); err != nil {
		return nil, fmt.Errorf("the records of the run cannot be continued: %w", err)
	}
	path := filepath.Join(dir, RequestsFile)
	f, err := atomicfile.Reopen(path+partialSuffix, path)
	if err != nil {
		return nil, fmt.Errorf("the records of the run cannot be continued: %w", err)
	}
	q := newRequests(f, path)
	q.last, q.ordered, q.goesOn = k.last, k.ordered, true
	return q, q.describe(sidecar)
}

// writePartial leaves only the records that count in the partial file. If the process dies meanwhile, all of them are still in the file that
// ReadKept reads.
func (k *Kept) writePartial(dir string) error {
	partial := filepath.Join(dir, PartialFile)
	if k.name == "" {
		return nil
	}
	from := filepath.Join(dir, k.name)
	if len(k.dropped) > 0 {
		if err := k.copy(from, partial); err != nil {
			return err
		}
	} else {
		if err := os.Truncate(from, k.whole); err != nil {
			return err
		}
		if from != partial {
			if err := os.Rename(from, partial); err != nil {
				return err
			}
		}
	}
	if k.name == PartialFile {
		return nil
	}
	for _, name := range []string{RequestsFile, SummaryJSON, SummaryCSV, page.File, page.SeriesFile, page.SessionsFile, mooncake.MetaName(RequestsFile)} {
		if err := os.Remove(filepath.Join(dir, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// copy copies the lines that count.
func (k *Kept) copy(from, to string) error {
	f, err := atomicfile.Open(from)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }() // it was only read
	out, err := createFile(to, ".kept")
	if err != nil {
		return err
	}
	defer func() { _ = out.Discard() }()
	return fill(out, func(w io.Writer) error {
		in := jsonrows.NewLines(bufio.NewReaderSize(io.LimitReader(f, k.whole), 1<<18), lines.Longest)
		for n := 0; ; n++ {
			line, err := in.Next()
			if errors.Is(err, io.EOF) {
				return nil
			}
			if err != nil {
				return err
			}
			if _, drop := slices.BinarySearch(k.dropped, n); drop {
				continue
			}
			if _, err := w.Write(line); err != nil {
				return err
			}
		}
	})
}
