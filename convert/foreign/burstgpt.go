// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package foreign

import (
	"slices"
	"strconv"

	"github.com/moonloop/moonloop/mooncake"
)

// maxName is the length of the longest session id and model, in bytes.
const maxName = 256

// burstGPT reads the files of BurstGPT.
type burstGPT struct {
	table
	opt                         *Options
	lost                        *losses
	at, session, model, in, out int
	rest                        []int // columns without a place in a row
}

func (p *burstGPT) parse(line []byte) (*request, string, *mooncake.RowError) {
	if p.names == nil {
		return nil, "", p.columns(string(line))
	}
	if e := p.line(string(line)); e != nil {
		return nil, "", e
	}
	at, err := seconds(p.text(p.at))
	if err != nil {
		e := p.fault(p.at, err)
		e.Advice = "want seconds since the first day, such as 5 or 19440110.0"
		return nil, "", e
	}
	in, e := p.count(p.in)
	if e != nil {
		return nil, "", e
	}
	out, e := p.count(p.out)
	if e != nil {
		return nil, "", e
	}
	row := &mooncake.Row{
		InputLength: mooncake.Some(in), OutputLength: mooncake.Some(out),
		SessionID: p.text(p.session), Model: p.text(p.model),
	}
	for column, name := range map[int]string{p.session: row.SessionID, p.model: row.Model} {
		if len(name) > maxName {
			return nil, "", &mooncake.RowError{
				Field: p.name(column), Value: shown(name), Rule: "is longer than " + strconv.Itoa(maxName) + " bytes: it is no name",
			}
		}
	}
	switch {
	case len(p.opt.Models) > 0 && !slices.Contains(p.opt.Models, row.Model):
		return nil, reasonModel, nil
	case out == 0 && p.opt.Failed != FailedKeep:
		return nil, reasonFailed, nil
	case in == 0:
		return nil, reasonNoPrompt, nil
	}
	p.lose(p.rest, p.lost)
	return &request{at: at, row: row}, "", nil
}

// columns finds the columns. Session ID came with version 1.2.
func (p *burstGPT) columns(line string) *mooncake.RowError {
	wanted := []string{"Timestamp", "Model", "Request tokens", "Response tokens"}
	if e := p.header(line, wanted...); e != nil {
		return e
	}
	p.at, p.model, p.in, p.out = p.column(wanted[0]), p.column(wanted[1]), p.column(wanted[2]), p.column(wanted[3])
	p.session = p.column("Session ID")
	// The total is the sum of the two.
	p.rest = p.others(append(wanted, "Session ID", "Total tokens")...)
	return nil
}
