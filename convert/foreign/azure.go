// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package foreign

import "github.com/moonloop/moonloop/mooncake"

// azure reads the Azure LLM inference traces.
type azure struct {
	table
	lost                  *losses
	at, context, generate int
	rest                  []int // columns without a place in a row
}

func (p *azure) parse(line []byte) (*request, string, *mooncake.RowError) {
	if p.names == nil {
		if e := p.header(string(line), "TIMESTAMP", "ContextTokens", "GeneratedTokens"); e != nil {
			return nil, "", e
		}
		p.at, p.context, p.generate = p.column("TIMESTAMP"), p.column("ContextTokens"), p.column("GeneratedTokens")
		p.rest = p.others("TIMESTAMP", "ContextTokens", "GeneratedTokens")
		return nil, "", nil
	}
	if e := p.line(string(line)); e != nil {
		return nil, "", e
	}
	at, err := date(p.text(p.at))
	if err != nil {
		e := p.fault(p.at, err)
		e.Advice = "want a date and time such as 2023-11-16 18:17:03.9799600"
		return nil, "", e
	}
	in, e := p.count(p.context)
	if e != nil {
		return nil, "", e
	}
	out, e := p.count(p.generate)
	if e != nil {
		return nil, "", e
	}
	if in == 0 {
		return nil, reasonNoPrompt, nil
	}
	p.lose(p.rest, p.lost)
	return &request{at: at, row: &mooncake.Row{InputLength: mooncake.Some(in), OutputLength: mooncake.Some(out)}}, "", nil
}
