// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package segment

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

const (
	stampLayout   = "20060102T150405Z"
	journalSuffix = ".journal"
	traceSuffix   = ".jsonl"
	pendingSuffix = ".pending"
)

// id is what the name of a segment's files begins with, after the directory.
type id struct {
	name   string
	begun  time.Time // in seconds
	number int64
}

func (i id) String() string {
	return fmt.Sprintf("%s-%s-%06d", i.name, i.begun.UTC().Format(stampLayout), i.number)
}

// parse reads the name of a journal file. Names of other journals, also of those whose name only begins like this one's,
// are not ok.
func parse(name, file string) (i id, ok bool) {
	stamp, digits, _ := strings.Cut(strings.TrimPrefix(file, name+"-"), "-")
	begun, err := time.Parse(stampLayout, stamp)
	if err != nil {
		return id{}, false
	}
	number, err := strconv.ParseInt(strings.TrimSuffix(digits, journalSuffix), 10, 64)
	if i = (id{name, begun, number}); err != nil || i.String()+journalSuffix != file {
		return id{}, false
	}
	return i, true
}

// list returns the segments in a directory, oldest first.
func list(dir, name string) ([]id, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("segments cannot be listed: %w", err)
	}
	var ids []id
	for _, e := range entries {
		if i, ok := parse(name, e.Name()); ok {
			ids = append(ids, i)
		}
	}
	slices.SortFunc(ids, func(a, b id) int { return cmp.Compare(a.number, b.number) })
	return ids, nil
}

// path returns the path of a file of a segment.
func (o *Options) path(i id, suffix string) string {
	return filepath.Join(o.Directory, i.String()+suffix)
}

// temp returns the folder for temporary files.
func (o *Options) temp() string { return filepath.Join(o.Directory, "."+o.Name+".tmp") }

// makeTemp makes it, before each use: there are programs that remove such folders.
func (o *Options) makeTemp() error {
	if err := os.MkdirAll(o.temp(), 0o700); err != nil {
		return fmt.Errorf("folder for temporary files cannot be made: %w", err)
	}
	return nil
}
