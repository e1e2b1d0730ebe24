// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package simulator

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
)

// recordLog keeps the latest records and passes each on as a JSON line.
type recordLog struct {
	config Recording

	mu      sync.Mutex
	kept    []*Record // in order of their ends
	bytes   int64
	dropped int64 // records that were dropped to make room

	lineMu sync.Mutex // separate from mu: a slow writer must not delay Records
	lost   int64      // lines that could not be written
	err    error      // the first reason
}

// add adds a finished record.
func (l *recordLog) add(r *Record) {
	if l.config.Keep > 0 {
		l.store(r)
	}
	if l.config.To != nil {
		line, err := json.Marshal(r)
		l.writeLine(append(line, '\n'), err)
	}
}

func (l *recordLog) store(r *Record) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.kept = append(l.kept, r)
	l.bytes += r.bytes()
	for len(l.kept) > l.config.Keep || l.bytes > l.config.KeepBytes && len(l.kept) > 1 {
		l.bytes -= l.kept[0].bytes()
		l.kept[0] = nil // append eventually makes a new array, without the dropped records
		l.kept = l.kept[1:]
		l.dropped++
	}
}

func (l *recordLog) writeLine(line []byte, err error) {
	l.lineMu.Lock()
	defer l.lineMu.Unlock()
	if err == nil {
		_, err = l.config.To.Write(line)
	}
	if err != nil {
		l.lost++
		if l.err == nil {
			l.err = err
		}
	}
}

// records returns the kept records, sorted by sequence number.
func (l *recordLog) records() []*Record {
	l.mu.Lock()
	all := slices.Clone(l.kept)
	l.mu.Unlock()
	slices.SortFunc(all, func(a, b *Record) int { return cmp.Compare(a.Seq, b.Seq) })
	return all
}

func (l *recordLog) counts() (dropped, lost int64) {
	l.mu.Lock()
	dropped = l.dropped
	l.mu.Unlock()
	l.lineMu.Lock()
	defer l.lineMu.Unlock()
	return dropped, l.lost
}

// failure returns an error when lines were lost.
func (l *recordLog) failure() error {
	l.lineMu.Lock()
	defer l.lineMu.Unlock()
	if l.err != nil {
		return fmt.Errorf("simulator: %d records could not be written: %w", l.lost, l.err)
	}
	return nil
}
