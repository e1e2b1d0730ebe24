// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/moonloop/moonloop/mooncake"
)

// decoder converts the records of one file to requests.
type decoder struct {
	*spec
	opt  *Options
	lost *losses
	file int // index of the file

	tabled bool     // the file is a table
	names  []string // of the table's columns
	cells  []string // of the table's last line
	record record
	out    []*request // made from the last record

	scopes  int    // number of conversations, in formats that number ids anew in each
	block   int    // tokens of a block, if an earlier record has it
	model   string // model of all requests, if an earlier record has it
	session string // of rows that have none
	last    int64  // time of the turn before, in formats whose turns follow each other
	line    int64  // number of the record's line

	talks map[string]*talk // AIPerf's branching conversations, by id
	order []*talk          // the same, in the order of the file
}

// add adds a request.
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
		if d.opt.Prompts == PromptsKeep {
			q.keepPrompt()
		}
		d.out = append(d.out, q)
	}
}

// skip counts a request that does not become a row.
func (d *decoder) skip(why reason) { d.lost.add("rows", string(why), 1) }

// failed reports whether a request that failed is left out, and if so, counts it.
func (d *decoder) failed(why reason) bool {
	if d.opt.Failed == FailedKeep {
		return false
	}
	d.skip(why)
	return true
}

// conversation returns a new scope of ids.
func (d *decoder) conversation() int {
	d.scopes++
	return d.scopes
}

// blockSize reads the number of tokens of a block. If the record does not have it, blockSize returns other, or, if other is 0, reports an
// error.
func (d *decoder) blockSize(r *record, other int, name string) int {
	n := r.count(name)
	r.want(n.Set || other > 0, name, "")
	if n.Set && (n.V < 1 || n.V > mooncake.MaxBlockSize) {
		r.fail(name, strconv.FormatInt(n.V, 10), fmt.Sprintf("must be above 0 and at most %d", mooncake.MaxBlockSize), "")
	}
	return int(n.Or(int64(other)))
}

// blocksOf reads the block size of a row's ids. If there are ids, the record must have it.
func (d *decoder) blocksOf(row *mooncake.Row, r *record, name string) int {
	if row.HashIDs == nil {
		r.known(name)
		return 0
	}
	return d.blockSize(r, 0, name)
}

// observed returns the durations from the time when a request was sent to its first and last tokens; a time of 0 was not measured.
func observed(sent, first, last int64) (o mooncake.Observed) {
	if sent > 0 && first >= sent {
		o.TTFT = mooncake.Some(milliseconds(first - sent))
	}
	if sent > 0 && last >= sent {
		o.Duration = mooncake.Some(milliseconds(last - sent))
	}
	return o
}

// observedAs returns observed values with the cached tokens and the finish reason added.
func observedAs(o mooncake.Observed, cached mooncake.Opt[int64], reason string) mooncake.Observed {
	o.CachedTokens, o.FinishReason = cached, reason
	return o
}

// read converts a record to requests. The requests keep no reference to the record.
func (d *decoder) read(record []byte) *mooncake.RowError {
	d.out = d.out[:0]
	r := &d.record
	switch {
	case !d.tabled:
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

// header reads the line with the names of columns.
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
			return &mooncake.RowError{Field: clip(name), Rule: "the column occurs twice"}
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
