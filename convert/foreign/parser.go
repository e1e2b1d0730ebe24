// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package foreign

import "github.com/moonloop/moonloop/mooncake"

// request is a row on its way into the trace.
type request struct {
	at    int64 // ns from the zero of the format's times
	input int   // index of the file
	line  int64
	row   *mooncake.Row // without its timestamp; ids are those of the file

	chat, parent mooncake.Opt[int64] // Bailian
}

// before is the order of rows in the trace.
func (q *request) before(o *request) bool {
	switch {
	case q.at != o.at:
		return q.at < o.at
	case q.input != o.input:
		return q.input < o.input
	}
	return q.line < o.line
}

// size is about what the request takes in memory, in bytes.
func (q *request) size() int { return 256 + 8*len(q.row.HashIDs) + len(q.row.SessionID) }

// parser reads the lines of one file.
type parser interface {
	// parse reads a line. It returns a row, or the reason why the line gives none, or an error. A nil request without a reason
	// is a line without data. The line is the caller's again after the call.
	parse(line []byte) (*request, string, *mooncake.RowError)
}

// Reasons why a line gives no row.
const (
	reasonNoPrompt = "no prompt tokens"
	reasonFailed   = "failed: no response tokens"
	reasonModel    = "another model"
)

// newParser returns the parser for a file of the format.
func newParser(opt *Options, lost *losses) parser {
	switch opt.Format {
	case Bailian:
		return &bailian{lost: lost}
	case BurstGPT:
		return &burstGPT{opt: opt, lost: lost}
	default:
		return &azure{lost: lost}
	}
}

// losses counts what is not in the trace.
type losses struct {
	order []mooncake.Dropped
	index map[[2]string]int
}

// maxLosses bounds the reasons that are told apart; names of columns and keys are among them.
const maxLosses = 64

func (l *losses) add(what, reason string) {
	key := [2]string{what, reason}
	i, known := l.index[key]
	if !known {
		if len(l.order) >= maxLosses {
			key[1] = "more than can be told apart"
		}
		if i, known = l.index[key]; !known {
			i = len(l.order)
			l.order = append(l.order, mooncake.Dropped{What: key[0], Reason: key[1]})
			if l.index == nil {
				l.index = make(map[[2]string]int)
			}
			l.index[key] = i
		}
	}
	l.order[i].Count++
}

// value counts a value that a row has no place for.
func (l *losses) value(name string) { l.add("values", clip(name)+": a row has no place for it") }
