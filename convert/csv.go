// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"encoding/csv"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/moonloop/moonloop/mooncake"
)

// The columns that a row is made of. The first ones are in each file whose format has them.
const (
	columnAt = iota
	columnModel
	columnInput
	columnOutput
	columnSession
	columns
	columnsWanted = columnSession
)

// csvFormat says what the columns of a format are called; "" is none.
type csvFormat struct {
	columns    [columns]string
	sum        string // the column with the sum of input and output
	time       func(string) (int64, error)
	timeAdvice string
}

var csvFormats = map[Format]csvFormat{
	Azure: {
		columns: [columns]string{columnAt: "TIMESTAMP", columnInput: "ContextTokens", columnOutput: "GeneratedTokens"},
		time:    date, timeAdvice: "want a date and time such as 2023-11-16 18:17:03.9799600",
	},
	BurstGPT: { // Session ID came with version 1.2
		columns: [columns]string{"Timestamp", "Model", "Request tokens", "Response tokens", "Session ID"}, sum: "Total tokens",
		time: seconds, timeAdvice: "want seconds since the first day, such as 5 or 19440110.0",
	},
}

// csvParser reads a file with a line of column names.
type csvParser struct {
	csvFormat
	opt    *Options
	lost   *losses
	names  []string     // as the header spells them
	places [columns]int // of the columns; -1 is none
	rest   []int        // columns without a place in a row
	fields []string     // of the line read last
}

// maxName is the length of the longest session id and model, in bytes.
const maxName = 256

var errNoName = fmt.Errorf("is longer than %d bytes: it is no name", maxName)

func (p *csvParser) parse(line []byte) (*request, error) {
	if p.names == nil {
		return nil, p.header(string(line))
	}
	if err := p.split(string(line)); err != nil {
		return nil, err
	}
	at, err := p.time(p.text(p.places[columnAt]))
	if err != nil {
		e := p.fault(p.places[columnAt], err)
		e.Advice = p.timeAdvice
		return nil, e
	}
	in, err := p.count(p.places[columnInput])
	if err != nil {
		return nil, err
	}
	out, err := p.count(p.places[columnOutput])
	if err != nil {
		return nil, err
	}
	row := &mooncake.Row{
		InputLength: mooncake.Some(in), OutputLength: mooncake.Some(out),
		SessionID: p.text(p.places[columnSession]), Model: p.text(p.places[columnModel]),
	}
	switch {
	case len(row.SessionID) > maxName:
		return nil, p.fault(p.places[columnSession], errNoName)
	case len(row.Model) > maxName:
		return nil, p.fault(p.places[columnModel], errNoName)
	case len(p.opt.Models) > 0 && !slices.Contains(p.opt.Models, row.Model):
		return nil, reasonModel
	case out == 0 && p.opt.Format == BurstGPT && p.opt.Failed != FailedKeep:
		return nil, reasonFailed
	case in == 0:
		return nil, reasonNoPrompt
	}
	for _, i := range p.rest {
		if p.text(i) != "" {
			p.lost.value(strings.TrimSpace(p.names[i]))
		}
	}
	return &request{at: at, row: row}, nil
}

// header takes the line with the names.
func (p *csvParser) header(line string) error {
	wanted := slices.DeleteFunc(slices.Clone(p.columns[:columnsWanted]), func(name string) bool { return name == "" })
	advice := "the first line must name the columns, " + strings.Join(wanted, ", ") + " among them"
	if len(line) > maxHeader {
		return &mooncake.RowError{Rule: "the first line is too long for column names", Advice: advice}
	}
	names, err := splitCSV(line, nil)
	if err != nil {
		return &mooncake.RowError{Rule: "the first line cannot be read: " + err.Error()}
	}
	p.names = names
	known := append(p.columns[:], p.sum)
	for i, name := range names {
		if p.column(name) < i && columnName(name) != "" {
			return &mooncake.RowError{Field: p.name(i), Rule: "the column is there twice"}
		}
		if !slices.ContainsFunc(known, func(k string) bool { return columnName(k) == columnName(name) }) {
			p.rest = append(p.rest, i)
		}
	}
	for _, name := range wanted {
		if p.column(name) < 0 {
			return &mooncake.RowError{Field: name, Rule: "the column is missing", Advice: advice}
		}
	}
	for i, name := range p.columns {
		p.places[i] = p.column(name)
	}
	return nil
}

// column returns the place of a column, -1 if the file has none.
func (p *csvParser) column(name string) int {
	if name == "" {
		return -1
	}
	return slices.IndexFunc(p.names, func(n string) bool { return columnName(n) == columnName(name) })
}

// split splits a line of values.
func (p *csvParser) split(line string) error {
	fields, err := splitCSV(line, p.fields[:0])
	if err != nil {
		return &mooncake.RowError{Rule: "the line cannot be read: " + err.Error()}
	}
	p.fields = fields
	if len(fields) != len(p.names) {
		return &mooncake.RowError{
			Rule:   fmt.Sprintf("the line has %d fields, the header has %d columns", len(fields), len(p.names)),
			Advice: "the file may be cut off or damaged there",
		}
	}
	return nil
}

// splitCSV appends the fields of a line to dst. A field that is quoted must end on its line.
func splitCSV(line string, dst []string) ([]string, error) {
	if strings.IndexByte(line, '"') >= 0 {
		r := csv.NewReader(strings.NewReader(line))
		r.TrimLeadingSpace = true
		fields, err := r.Read()
		if err != nil {
			return nil, errors.New("its quotes do not match")
		}
		return append(dst, fields...), nil
	}
	for field := range strings.SplitSeq(line, ",") {
		dst = append(dst, field)
	}
	return dst, nil
}

// text returns a value; that of column -1 is empty.
func (p *csvParser) text(column int) string {
	if column < 0 {
		return ""
	}
	return strings.TrimSpace(p.fields[column])
}

// name is the column's name for messages.
func (p *csvParser) name(column int) string { return clip(strings.TrimSpace(p.names[column])) }

// count reads a number of tokens.
func (p *csvParser) count(column int) (int64, error) {
	n, err := tokens(p.text(column))
	if err != nil {
		return 0, p.fault(column, err)
	}
	return n, nil
}

// fault is an error of a value.
func (p *csvParser) fault(column int, err error) *mooncake.RowError {
	s := p.text(column)
	if s == "" {
		return &mooncake.RowError{Field: p.name(column), Rule: "is empty"}
	}
	return &mooncake.RowError{Field: p.name(column), Value: shown(s), Rule: err.Error()}
}
