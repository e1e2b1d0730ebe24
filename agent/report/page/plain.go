// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package page

import (
	"bytes"

	"github.com/moonloop/moonloop/agent/report/lines"
)

// This file reads a record in the form in which a replay writes it. A page is drawn at the end of each replay, so reading is a part of what
// a request costs, and a decoder for any JSON takes five times as long. That decoder reads the lines that have another form, such as an
// escape in a string. TestPlainIsJSON checks that both decoders agree about every line that this one can read.

// plain reads records one after another, each into the same memory.
type plain struct {
	text []byte
	i    int
	bad  bool // the line is not of this form

	rec      record
	times    [9]float64 // what rec's pointers point to
	counts   [6]int64
	gaps     []float64
	tokens   []float64
	usage    usage
	observed observed
	strings  [8]string // of the last record, by place: most records have the same
}

// parse reads a line. The record is valid until the next one is read.
func (p *plain) parse(line []byte) (*record, error) {
	rec, ok := p.read(line)
	if !ok {
		var err error
		if rec, err = parseRecord(line); err != nil {
			return nil, err
		}
	}
	if rec.Result.Outcome == "" {
		return nil, lines.ErrNoResult
	}
	return rec, nil
}

// read reads a line if it is plain.
func (p *plain) read(line []byte) (*record, bool) {
	p.text, p.i, p.bad = line, 0, false
	p.rec, p.usage, p.observed = record{}, usage{}, observed{}
	p.members((*plain).row)
	return &p.rec, !p.bad && p.i == len(line)
}

func (p *plain) row(name []byte) {
	switch string(name) {
	case "session_id":
		p.string(&p.rec.Session, 0)
	case "input_length":
		p.integer(&p.rec.Input)
	case "output_length":
		p.integer(&p.rec.Output)
	case "model":
		p.string(&p.rec.Model, 1)
	case "observed":
		p.rec.Observed = &p.observed
		p.members((*plain).inObserved)
	case "result":
		p.members((*plain).inResult)
	default:
		p.skip(0)
	}
}

func (p *plain) inObserved(name []byte) {
	if string(name) == "cached_tokens" {
		p.count(&p.observed.Cached, 0)
	} else {
		p.skip(0)
	}
}

func (p *plain) inResult(name []byte) {
	x := &p.rec.Result
	switch string(name) {
	case "outcome":
		p.string(&x.Outcome, 2)
	case "reason":
		p.string(&x.Reason, 3)
	case "row":
		p.integer(&x.Row)
	case "turn":
		p.int(&x.Turn)
	case "request_model":
		p.string(&x.Model, 4)
	case "intended":
		p.time(&x.Intended, 0)
	case "dispatched":
		p.time(&x.Dispatched, 1)
	case "admitted":
		p.time(&x.Admitted, 2)
	case "start":
		p.time(&x.Start, 3)
	case "wire":
		p.time(&x.Wire, 4)
	case "first":
		p.time(&x.First, 5)
	case "last":
		p.time(&x.Last, 6)
	case "end":
		p.time(&x.End, 7)
	case "lateness_ms":
		p.time(&x.Lateness, 8)
	case "gaps_ms":
		x.Gaps = p.numbers(&p.gaps)
	case "chunk_tokens":
		x.Tokens = p.numbers(&p.tokens)
	case "whole":
		x.Whole = p.truth()
	case "embedding":
		x.Embedding = p.truth()
	case "usage":
		x.Usage = &p.usage
		p.members((*plain).inUsage)
	case "predicted_cached_tokens":
		p.count(&x.Predicted, 1)
	case "prompt_tokens_sent":
		p.count(&x.Sized, 5)
	case "trace_id":
		p.string(&x.TraceID, 5)
	case "attempts":
		p.int(&x.Attempts)
	case "resent":
		p.int(&x.Resent)
	case "choices":
		p.int(&x.Choices)
	default:
		p.skip(0)
	}
}

func (p *plain) inUsage(name []byte) {
	switch string(name) {
	case "prompt_tokens":
		p.count(&p.usage.Prompt, 2)
	case "completion_tokens":
		p.count(&p.usage.Completion, 3)
	case "cached_tokens":
		p.count(&p.usage.Cached, 4)
	default:
		p.skip(0)
	}
}

// next consumes the wanted byte, with a space before it, and reports whether it was there.
func (p *plain) next(want byte) bool {
	p.space()
	if p.i < len(p.text) && p.text[p.i] == want {
		p.i++
		return true
	}
	return false
}

func (p *plain) space() {
	if p.i < len(p.text) && p.text[p.i] == ' ' {
		p.i++
	}
}

// members reads an object. It calls member after each name; member must read the value.
func (p *plain) members(member func(p *plain, name []byte)) {
	p.list('{', '}', func() {
		name := p.quoted()
		if !p.next(':') {
			p.bad = true
			return
		}
		p.space()
		member(p, name)
	})
}

// list reads elements between two brackets, separated by commas. It calls element at the beginning of each; element must read it.
func (p *plain) list(begin, end byte, element func()) {
	if !p.next(begin) {
		p.bad = true
		return
	}
	if p.next(end) {
		return
	}
	for !p.bad {
		p.space()
		if element(); p.next(',') {
			continue
		}
		p.bad = p.bad || !p.next(end)
		return
	}
}

// quoted reads a string without escapes.
func (p *plain) quoted() []byte {
	if !p.next('"') {
		p.bad = true
		return nil
	}
	rest := p.text[p.i:]
	n := bytes.IndexByte(rest, '"')
	if n < 0 {
		p.bad = true
		return nil
	}
	for _, c := range rest[:n] {
		if c < ' ' || c >= 0x7f || c == '\\' {
			p.bad = true
			return nil
		}
	}
	p.i += n + 1
	return rest[:n]
}

// string reads a string. If the last string of this place has the same text, it is used again.
func (p *plain) string(to *string, place int) {
	text := p.quoted()
	if p.strings[place] != string(text) {
		p.strings[place] = string(text)
	}
	*to = p.strings[place]
}

func (p *plain) time(to **float64, place int) {
	p.times[place] = p.number()
	*to = &p.times[place]
}

func (p *plain) count(to **int64, place int) {
	p.integer(&p.counts[place])
	*to = &p.counts[place]
}

// integer reads a whole number, 0 or above.
func (p *plain) integer(to *int64) {
	begin := p.i
	n, all, point := p.digits()
	p.bad = p.bad || all > exactDigits || point > 0 || p.text[begin] == '-'
	*to = int64(n) //nolint:gosec // bounded
}

func (p *plain) int(to *int) {
	var n int64
	p.integer(&n)
	*to = int(n)
}

// numbers reads an array of numbers into the given memory.
func (p *plain) numbers(to *[]float64) []float64 {
	*to = (*to)[:0]
	p.list('[', ']', func() { *to = append(*to, p.number()) })
	return *to
}

// truth reads true or false.
func (p *plain) truth() bool {
	yes := bytes.HasPrefix(p.text[p.i:], []byte("true"))
	p.bad = p.bad || !yes && !bytes.HasPrefix(p.text[p.i:], []byte("false"))
	p.skip(0)
	return yes
}

// exactDigits is the maximum number of digits of a number. A whole number of this length is exact as a float, and so is a power of ten with
// as many zeros, so their quotient is the float nearest to the decimal.
const exactDigits = 15

var tens = [exactDigits + 1]float64{1, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15}

func (p *plain) number() float64 {
	begin := p.i
	n, all, point := p.digits()
	if p.bad = p.bad || all > exactDigits; p.bad {
		return 0
	}
	v := float64(n) / tens[point]
	if p.text[begin] == '-' {
		v = -v
	}
	return v
}

// digits reads a number without an exponent, and returns its digits as a whole number (too many digits overflow), the number of digits, and
// the number of those after the point.
func (p *plain) digits() (n uint64, all, point int) {
	i := p.i
	if i < len(p.text) && p.text[i] == '-' {
		i++
	}
	begin, fraction := i, 0
	for ; i < len(p.text); i++ {
		switch c := p.text[i]; {
		case c-'0' <= 9:
			n = n*10 + uint64(c-'0')
			continue
		case c == '.' && fraction == 0:
			fraction = i + 1
			continue
		}
		break
	}
	whole := i - begin
	if all = whole; fraction > 0 {
		whole, point, all = fraction-1-begin, i-fraction, all-1
	}
	ends := i == len(p.text) || p.text[i]|0x20 != 'e'
	if whole == 0 || whole > 1 && p.text[begin] == '0' || fraction > 0 && point == 0 || !ends {
		p.bad = true
	}
	p.i = i
	return n, all, point
}

// maxDepth bounds the nesting of what is skipped.
const maxDepth = 16

// skip reads a value of no interest.
func (p *plain) skip(depth int) {
	if p.i >= len(p.text) || depth > maxDepth {
		p.bad = true
		return
	}
	switch c := p.text[p.i]; c {
	case '"':
		p.quoted()
	case '[':
		p.list('[', ']', func() { p.skip(depth + 1) })
	case '{':
		p.members(func(p *plain, _ []byte) { p.skip(depth + 1) })
	case 't', 'f', 'n':
		for _, word := range []string{"true", "false", "null"} {
			if bytes.HasPrefix(p.text[p.i:], []byte(word)) {
				p.i += len(word)
				return
			}
		}
		p.bad = true
	default:
		p.digits()
	}
}
