// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"errors"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/moonloop/moonloop/mooncake"
)

// mooncakeCSV converts a trace in the form of a table to JSON lines. People export such tables, and GuideLLM's trace_synthetic reads them.
// Its rows are the same ones that replay and inspect read from the table. Several tables become one trace, sorted by time.
var mooncakeCSV = spec{
	Format: "mooncake-csv", about: "Mooncake's fields as the columns of a CSV: timestamps in milliseconds, lengths, hash_ids such as [0, 1]",
	table: true, cells: true, fields: []string{"timestamp", "input_length", "output_length"}, blocks: true, models: true, global: true,
	decode: func(d *decoder, r *record) {
		row := r.row()
		if row == nil {
			return
		}
		for name, has := range map[string]bool{"hash_ranges": row.HashRanges != nil, "replies": row.Replies != nil} {
			if has { // ranges need a sidecar's block size, and replies name rows by their positions in this file
				d.lost.value(name)
			}
		}
		row.HashRanges, row.Replies = nil, nil
		q := &request{row: row, block: d.blockSize(r, mooncake.BlockSize, "block_size"), later: !row.Timestamp.Set && row.SessionID != ""}
		if r.want(row.Timestamp.Set || q.later, "timestamp", "want milliseconds"); row.Timestamp.Set {
			q.at = int64(mooncake.Duration(row.Timestamp.V))
		}
		row.Timestamp = mooncake.Opt[float64]{}
		d.add(q)
	},
}

// row reads the cells of a line as a row of a trace. It returns nil if they are invalid, and remembers the error.
func (r *record) row() *mooncake.Row {
	var columns, cells []string
	for i := range r.fields {
		f := &r.fields[i]
		if name := columnName(f.name); mooncake.IsField(name) {
			f.used = true
			columns, cells = append(columns, name), append(cells, f.text())
		}
	}
	row, err := mooncake.ParseCells(columns, cells)
	if fault, is := errors.AsType[*mooncake.RowError](err); is {
		r.top.err = fault
		return nil
	}
	return row
}

// text returns a field as a cell, even if the table came as objects, as from a Parquet file.
func (f *field) text() string {
	switch f.json.Kind() {
	case jsontext.KindInvalid:
		return f.cell
	case 'n':
		return ""
	case '"':
		text, _ := jsontext.AppendUnquote(nil, f.json) // cannot fail: the string was parsed before
		return string(text)
	default:
		return string(f.json)
	}
}
