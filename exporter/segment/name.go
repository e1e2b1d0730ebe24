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

// id is the beginning of the names of a segment's files, after the directory.
type id struct {
	name   string
	begun  time.Time // in whole seconds
	number int64
}

func (i id) String() string {
	return fmt.Sprintf("%s-%s-%06d", i.name, i.begun.UTC().Format(stampLayout), i.number)
}

// parse parses the name of a journal file. ok is false for files of other journals, even if their names begin alike.
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

// makeTemp creates the folder for temporary files. It is called before each use, because some programs remove such folders.
func (o *Options) makeTemp() error {
	if err := os.MkdirAll(o.temp(), 0o700); err != nil {
		return fmt.Errorf("folder for temporary files cannot be made: %w", err)
	}
	return nil
}
