// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/moonloop/moonloop/internal/atomicfile"
	"github.com/moonloop/moonloop/internal/jsonrows"
)

// This file lets shards in several processes leave their results for each other in files of one folder, see shard.go. A sorter leaves its
// runs in a file. Items are divided into parts by their first 16 bits, which are those of a hash, so that a part of a run is one section of
// the file. The shard with a part reads it from the files of all shards, as it would read its own runs.

// partOf returns the part of an item, of at most 2^16 parts. Parts are in the order of items.
func partOf(item []byte, parts int) int { return int(binary.BigEndian.Uint16(item)) * parts >> 16 }

// appendPart appends the bits that determine the part of all items with a key.
func appendPart(dst, key []byte) []byte {
	return binary.BigEndian.AppendUint16(dst, uint16(xxhash.Sum64(key)>>48))
}

// partLength is the length of what appendPart appends.
const partLength = 2

// cut is the beginning of a part of a run: after this many bytes, and items, of the run.
type cut struct{ size, count int64 }

// The end of a file: for each run its offset and the cuts, one more than there are parts; then the number of runs, that of parts, and the
// kind of file.
const (
	exchangeMagic = "moonex01"
	exchangeTail  = 4 + 4 + len(exchangeMagic)
	cutBytes      = 16
)

// leave writes all items to a file, in at most this many runs, and empties the sorter.
func (s *sorter) leave(name string, most int) error {
	if err := s.settle(most); err != nil {
		return err
	}
	if err := s.file.Open(s.dir); err != nil { // if there was no item, there is no file yet
		return err
	}
	var tail []byte
	for _, r := range s.runs {
		tail = binary.LittleEndian.AppendUint64(tail, uint64(r.offset)) //nolint:gosec // not negative
		for _, c := range r.cuts {
			tail = binary.LittleEndian.AppendUint64(tail, uint64(c.size))  //nolint:gosec // likewise
			tail = binary.LittleEndian.AppendUint64(tail, uint64(c.count)) //nolint:gosec // likewise
		}
	}
	tail = binary.LittleEndian.AppendUint32(tail, uint32(len(s.runs)))                       //nolint:gosec // few
	tail = append(binary.LittleEndian.AppendUint32(tail, uint32(s.parts)), exchangeMagic...) //nolint:gosec // at most MaxShards
	if _, err := s.file.Write(tail); err != nil {
		return fmt.Errorf("the data for other shards cannot be written: %w", err)
	}
	s.runs, s.count = nil, 0
	if err := s.file.Keep(name); err != nil {
		return fmt.Errorf("the data for other shards cannot be written: %w", err)
	}
	return nil
}

// take adds parts of a file to the sorter's input, and returns how many items the parts before them have.
func (s *sorter) take(name string, from, to int) (before int64, err error) {
	f, err := os.Open(name) //nolint:gosec // in the folder that the user names
	if err != nil {
		return 0, fmt.Errorf("the data of another shard cannot be read: %w", err)
	}
	kept := false
	defer func() {
		if !kept {
			_ = f.Close()
		}
	}()
	broken := func(err error) error {
		return fmt.Errorf("%s cannot be read: remove the folder of this file, and start all shards again: %w", name, err)
	}
	size, err := f.Seek(0, io.SeekEnd)
	if err != nil || size < int64(exchangeTail) {
		return 0, broken(errors.Join(err, errors.New("its end is missing")))
	}
	tail := make([]byte, exchangeTail)
	if _, err := f.ReadAt(tail, size-int64(len(tail))); err != nil || string(tail[8:]) != exchangeMagic {
		return 0, broken(errors.Join(err, errors.New("it does not end like a file of a shard")))
	}
	runs, parts := int(binary.LittleEndian.Uint32(tail)), int(binary.LittleEndian.Uint32(tail[4:]))
	each := 8 + cutBytes*(parts+1)
	start := size - int64(exchangeTail) - int64(runs)*int64(each)
	if to > parts || start < 0 {
		return 0, broken(fmt.Errorf("it has %d parts", parts))
	}
	number := func(b []byte, at int64) (n int64, err error) {
		_, err = f.ReadAt(b[:8], at)
		return int64(binary.LittleEndian.Uint64(b)), err //nolint:gosec // as it was written
	}
	for i := range int64(runs) {
		var n [5]int64 // the run's offset, and size and count at both ends
		at := start + i*int64(each)
		for k, from := range [...]int64{0, 8 + cutBytes*int64(from), 8 + cutBytes*int64(from) + 8, 8 + cutBytes*int64(to), 8 + cutBytes*int64(to) + 8} {
			if n[k], err = number(tail, at+from); err != nil {
				return 0, broken(err)
			}
		}
		before += n[2]
		s.count += n[4] - n[2]
		if n[3] > n[1] {
			s.from, kept = append(s.from, segment{file: f, offset: n[0] + n[1], size: n[3] - n[1]}), true
		}
	}
	return before, nil
}

// folder is a place for the shards of several processes.
type folder struct{ *sharded }

func (f folder) prepare(s *sorter) { s.dir, s.file.Kept = f.Dir, true }

func (f folder) leave(s *sorter, name string, most int) error { return s.leave(name, most) }

func (f folder) take(s *sorter, name string, from, to int) (int64, error) {
	return s.take(name, from, to)
}

func (f folder) remove(name string) { _ = os.Remove(name) } // a remaining file only uses space

// statement is what a shard writes when it has done a phase.
type statement struct {
	Schema  string     `json:"schema"`
	Compile compileKey `json:"compile"`
	Learned *learned   `json:"learned"`
}

const statementSchema = "moonloop-compile-shard/1"

func (f folder) say(name string, all *learned) error {
	b, err := json.Marshal(statement{statementSchema, f.key, all})
	if err != nil {
		return err
	}
	err = atomicfile.Write(name, atomicfile.Regular, func(w io.Writer) error {
		_, err := w.Write(b)
		return err
	})
	if err != nil {
		err = fmt.Errorf("the results of this shard cannot be written: %w", err)
	}
	return err
}

func (f folder) heard(name string) (*learned, error) {
	b, err := os.ReadFile(name) //nolint:gosec // in the folder that the user names
	if err != nil {
		return nil, err
	}
	var one statement
	err = json.Unmarshal(b, &one)
	if err == nil && (one.Schema != statementSchema || one.Learned == nil) {
		err = fmt.Errorf("schema %q", one.Schema)
	}
	if err != nil {
		return nil, fmt.Errorf("%s was not written by a shard of this version: %w; name an empty folder", name, jsonrows.Explain(err))
	}
	var differ []string
	for _, d := range []struct {
		what        string
		theirs, our any
	}{
		{"number of shards", one.Compile.Shards, f.key.Shards},
		{"options", one.Compile.Options, f.key.Options},
		{"journals", one.Compile.Journals, f.key.Journals},
		{"bytes of journals", one.Compile.Bytes, f.key.Bytes},
		{"names and sizes of journals", one.Compile.Names, f.key.Names},
	} {
		if d.theirs != d.our {
			differ = append(differ, fmt.Sprintf("%s: %v there, %v here", d.what, d.theirs, d.our))
		}
	}
	if differ != nil {
		return nil, fmt.Errorf("%s belongs to another compile (%s): start all shards with the same flags, with journals that do not grow, and an empty folder", name, strings.Join(differ, "; "))
	}
	return one.Learned, nil
}

func (f folder) await(name string, shard int) (*learned, error) {
	const soonest, latest = 20 * time.Millisecond, time.Second
	for pause := soonest; ; pause = min(2*pause, latest) {
		one, err := f.heard(name)
		if !errors.Is(err, fs.ErrNotExist) {
			return one, err
		}
		if f.opt.Progress != nil {
			f.opt.Progress(StageWait, int64(shard), int64(f.Of))
		}
		select {
		case <-f.ctx.Done():
			return nil, context.Cause(f.ctx)
		case <-time.After(pause):
		}
	}
}
