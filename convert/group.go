// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"slices"
	"strconv"

	"github.com/moonloop/moonloop/internal/ondisk"
	"github.com/moonloop/moonloop/mooncake"
)

// This file collects the rows of each session for formats that write them together. Rows wait in a temporary file, each with the position
// of its session's previous row. Memory holds the name of each session with the position of its last row, and, at the end, the rows of
// one session.

// sessionFormat is a format that writes the rows of a session together.
type sessionFormat struct {
	key              func(*mooncake.Row) string // the group of a row; empty: the row is alone
	begin, next, end func(e *encoder) string    // written before the first session, between two, and after the last one
	append           func(e *encoder, dst []byte, key string, rows []*mooncake.Row) ([]byte, error)
}

// groups collects rows by session.
type groups struct {
	file  ondisk.File
	w     *bufio.Writer
	size  int64
	last  map[string]int64 // position of the last row of each session
	order []group          // the sessions, in the order of their first rows
	buf   []byte
}

// group is a session with the position of its first row, or a row without a session, which has an empty key.
type group struct {
	key string
	at  int64
}

func newGroups(folder string) (*groups, error) {
	g := &groups{last: map[string]int64{}}
	if err := g.file.Open(folder); err != nil {
		return nil, fmt.Errorf("this format writes all rows of a session together, so rows are first collected in a temporary file: %w; set $TMPDIR to use another folder", err)
	}
	g.w = bufio.NewWriterSize(&g.file, 256<<10)
	return g, nil
}

// nowhere stands for the position of a row if there is none.
const nowhere = -1

// add stores a row. A row with an empty key is in no session.
func (g *groups) add(key string, row *mooncake.Row) error {
	before, known := g.last[key]
	if !known {
		before = nowhere
		g.order = append(g.order, group{key, g.size})
	}
	g.buf = mooncake.AppendRow(append(g.buf[:0], make([]byte, rowHead)...), row)
	binary.LittleEndian.PutUint64(g.buf, uint64(before))                 //nolint:gosec // bits
	binary.LittleEndian.PutUint32(g.buf[8:], uint32(len(g.buf)-rowHead)) //nolint:gosec // a row is shorter than 4 GiB
	if key != "" {
		g.last[key] = g.size
	}
	g.size += int64(len(g.buf))
	_, err := g.w.Write(g.buf)
	return g.failed(err)
}

func (g *groups) failed(err error) error {
	if err != nil {
		return fmt.Errorf("the temporary file of the rows of sessions: %w; set $TMPDIR to a folder with more space", err)
	}
	return nil
}

// rowHead is the number of bytes before a row in the file: the position of the session's previous row, and the length of the row.
const rowHead = 12

// rows returns the rows of a session, given the position of the last one.
func (g *groups) rows(at int64) (rows []*mooncake.Row, err error) {
	var head [rowHead]byte
	for at != nowhere {
		if _, err = g.file.File.ReadAt(head[:], at); err != nil {
			break
		}
		line := make([]byte, binary.LittleEndian.Uint32(head[8:]))
		if _, err = g.file.File.ReadAt(line, at+rowHead); err != nil {
			break
		}
		row, e := mooncake.ParseRow(line)
		if err = e; err != nil {
			break
		}
		rows = append(rows, row)
		at = int64(binary.LittleEndian.Uint64(head[:])) //nolint:gosec // bits
	}
	if err != nil {
		return nil, g.failed(err)
	}
	slices.Reverse(rows)
	return rows, nil
}

// close removes the file.
func (g *groups) close() {
	if g != nil {
		g.file.Close()
	}
}

// end writes all sessions, in the order of their first rows.
func (e *encoder) end(w io.Writer) error {
	g, f := e.groups, e.sessions
	if err := g.w.Flush(); err != nil {
		return g.failed(err)
	}
	dst := []byte(f.begin(e))
	alone := 0
	for i, session := range g.order {
		if i > 0 {
			dst = append(dst, f.next(e)...)
		}
		key, at := session.key, session.at
		if key != "" {
			at = g.last[key]
		}
		for taken := key == ""; taken; _, taken = g.last[key] { // a key that is taken would merge two sessions
			alone++
			key = "row-" + strconv.Itoa(alone)
		}
		rows, err := g.rows(at)
		if err == nil {
			dst, err = f.append(e, dst, key, rows)
		}
		if err == nil {
			_, err = w.Write(dst)
		}
		if err != nil {
			return err
		}
		dst = dst[:0]
	}
	_, err := w.Write(append(dst, f.end(e)...))
	g.close()
	return err
}
