// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"fmt"
	"slices"
	"strings"

	"github.com/moonloop/moonloop/mooncake"
)

// decoder makes requests of the records of one file.
type decoder struct {
	*spec
	opt  *Options
	lost *losses
	file int // its index

	names  []string // of the columns of a table
	cells  []string // of the line read last
	record record
	out    []*request // of the record read last

	begun map[string]int // conversations, of formats that number ids anew in each
	block int            // tokens of a block, where a record before says it
}

// add takes a request.
func (d *decoder) add(q *request) {
	switch in := q.row.InputLength; {
	case len(d.opt.Models) > 0 && !slices.Contains(d.opt.Models, q.row.Model):
		d.skip(reasonModel)
	case in.Set && in.V == 0:
		d.skip(reasonNoPrompt)
	default:
		if q.block == 0 {
			q.block = d.spec.block
		}
		d.out = append(d.out, q)
	}
}

// skip counts a request that becomes no row.
func (d *decoder) skip(why reason) { d.lost.add("rows", string(why), 1) }

// failed counts a request that failed and has no tokens, unless it is kept.
func (d *decoder) failed(output mooncake.Opt[int64]) bool {
	if output.V > 0 || d.opt.Failed == FailedKeep {
		return false
	}
	d.skip(reasonFailed)
	return true
}

// read makes requests of a record. It keeps nothing of it.
func (d *decoder) read(record []byte) *mooncake.RowError {
	d.out = d.out[:0]
	r := &d.record
	switch {
	case !d.shape.table:
		if fault := r.parse(record); fault != nil {
			return fault
		}
	case d.names == nil:
		return d.header(string(record))
	default:
		cells, err := splitCSV(string(record), d.cells[:0])
		if err != nil {
			return &mooncake.RowError{Rule: "the line cannot be read: " + err.Error()}
		}
		if d.cells = cells; len(cells) != len(d.names) {
			return &mooncake.RowError{
				Rule:   fmt.Sprintf("the line has %d fields, the header has %d columns", len(cells), len(d.names)),
				Advice: "the file may be cut off or damaged there",
			}
		}
		r.cells(d.names, cells)
	}
	if d.decode(d, r); r.err != nil {
		return r.err
	}
	if len(d.out) > 0 {
		r.unread(d.lost.value)
	}
	return nil
}

// header takes the line with the names of columns.
func (d *decoder) header(line string) *mooncake.RowError {
	advice := "the first line must name the columns, " + strings.Join(d.fields, ", ") + " among them"
	if len(line) > maxHeader {
		return &mooncake.RowError{Rule: "the first line is too long for column names", Advice: advice}
	}
	names, err := splitCSV(line, nil)
	if err != nil {
		return &mooncake.RowError{Rule: "the first line cannot be read: " + err.Error()}
	}
	for i, name := range names {
		names[i] = strings.TrimSpace(name)
	}
	at := func(name string) int {
		return slices.IndexFunc(names, func(n string) bool { return columnName(n) == columnName(name) })
	}
	for i, name := range names {
		if name != "" && at(name) < i {
			return &mooncake.RowError{Field: clip(name), Rule: "the column is there twice"}
		}
	}
	for _, name := range d.fields {
		if at(name) < 0 {
			return &mooncake.RowError{Field: name, Rule: "the column is missing", Advice: advice}
		}
	}
	d.names = names
	return nil
}
