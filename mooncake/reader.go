// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package mooncake

import (
	"bufio"
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"time"

	"github.com/moonloop/moonloop/internal/jsonrows"
	"github.com/moonloop/moonloop/mooncake/internal/words"
)

// DefaultMaxLine is the default maximum length of a line, or of a row of several lines, in bytes.
const DefaultMaxLine = 64 << 20

// maxReaderSessions is the maximum number of sessions whose prompt kind a reader remembers: up to 10 MiB.
const maxReaderSessions = 1 << 18

// ReaderOptions configures a [Reader]. The zero value is usable.
type ReaderOptions struct {
	Name      string // name of the trace, for errors
	Strict    bool   // unusual rows are errors instead of notices
	BlockSize int    // tokens per hash id; 0 = [BlockSize]
	// FineBlockSize is the number of tokens per id of hash_ranges, a divisor of BlockSize; 0 = unknown, and rows with hash_ranges are
	// refused.
	FineBlockSize int
	MaxLine       int // longest line, or row of several lines, in bytes; 0 = [DefaultMaxLine]

	// Unit is the unit of numeric timestamps. 0 = the size of the first one shows it: numbers below 10^12 are milliseconds from any zero,
	// except for those from 1.2·10^9 to 2.2·10^9, which are seconds since 1970. Larger numbers are milliseconds, microseconds (from 10^14)
	// or nanoseconds (from 10^17) since 1970. Rows have milliseconds.
	Unit time.Duration

	// Map reads fields from other keys. A mapping that [ParseMapping] refuses has no effect.
	Map Mapping

	// Reject decides what happens to a row that cannot be used. Nil: Read returns the error. Else Reject is called with the row. If it
	// returns nil, the reader continues as if the line did not exist; if it returns an error, that error ends the reading for good. A row
	// whose end is missing, because the source broke off or the line is too long, always ends the reading. See [Quarantine].
	Reject func(Rejected) error
}

// Reader reads the rows of a trace, one by one. It is not safe for concurrent use.
type Reader struct {
	opt      ReaderOptions
	src      *jsonrows.Reader
	good     bool // Read returned the row that src found last
	rows     int64
	read     int64 // rows of the source so far, including refused ones
	refused  refusals
	recent   recent
	parser   parser
	notices  notices
	table    bool // the lines are records of a table
	done     []Transformation
	fitting  int64 // the smallest block size that gives every row enough ids
	sessions map[uint64]promptClass
	seed     maphash.Seed
	checker  *Checker // only with Strict
	err      error    // of the source; sticky
}

// NewReader returns a reader of uncompressed JSON. [Open] also takes compressed files, standard input and URLs.
func NewReader(r io.Reader, opt ReaderOptions) *Reader {
	if opt.BlockSize <= 0 {
		opt.BlockSize = BlockSize
	}
	if opt.MaxLine <= 0 {
		opt.MaxLine = DefaultMaxLine
	}
	rd := &Reader{
		opt: opt, src: jsonrows.NewReader(bufio.NewReaderSize(r, 64<<10), opt.MaxLine, opt.Strict), notices: make(notices),
		sessions: make(map[uint64]promptClass), seed: maphash.MakeSeed(),
	}
	rd.parser.fields = rowFields
	if known, err := opt.Map.fields(); err == nil {
		rd.parser.fields = known
	}
	if opt.Unit > 0 {
		rd.parser.unit, rd.parser.stamps = opt.Unit, stampGiven
	}
	if opt.Strict {
		rd.checker = NewChecker(CheckOptions{BlockSize: opt.BlockSize, FineBlockSize: opt.FineBlockSize})
	}
	return rd
}

// Line returns the number, from 1, of the line on which the last row that Read returned or refused begins.
func (r *Reader) Line() int64 { return r.src.Line }

// BlockSize returns the block size that rows are read with, in tokens.
func (r *Reader) BlockSize() int { return r.opt.BlockSize }

// FineBlockSize returns the number of tokens per id of hash_ranges; 0 if it is not known.
func (r *Reader) FineBlockSize() int { return r.opt.FineBlockSize }

// Notices returns the notices so far, ordered by first line.
func (r *Reader) Notices() []Notice { return r.notices.list(r.opt.BlockSize, r.rows, r.fitting) }

// Read returns the next row, io.EOF after the last one, or a *[RowError]. After a RowError, reading can continue with the next line. Any
// other error (the source broke off, a line is too long) ends the reading for good.
func (r *Reader) Read() (*Row, error) {
	for r.err == nil {
		if err := r.src.Next(); err != nil {
			r.err, r.good = r.ending(err), false
			break
		}
		r.read++
		row, fault := r.parser.parse(r.src.Text, r.src.Column)
		if fault != nil && errors.Is(fault.Err, errSyntax) {
			switch other, err := r.src.Extend(); {
			case err != nil:
				r.err, r.good = r.ending(err), false
				return nil, r.err
			case other:
				row, fault = r.parser.parse(r.src.Text, r.src.Column)
			case r.opt.Strict:
				fault.Advice = join("; ", fault.Advice, "a strict reading wants each row on a line by itself")
			}
		}
		if fault == nil {
			fault = r.examine(row)
		}
		if r.good = fault == nil; r.good {
			r.rows++
			r.laidOut(row)
			r.timed(row)
			return row, nil
		}
		if err := r.Refuse(fault); err != nil {
			return nil, err
		}
	}
	return nil, r.err
}

// Refuse refuses the row that Read returned last, because of a rule that the reader does not know, for example one about what the caller
// made of earlier rows. Refuse adds file and line to the error and returns it. If [ReaderOptions].Reject has accepted the row, it returns
// nil, and Read continues as if the line did not exist.
func (r *Reader) Refuse(fault *RowError) error {
	at := *fault
	at.File, at.Line = r.opt.Name, r.src.Line
	if r.good {
		r.good = false
		r.rows--
	} else {
		at.Line += r.parser.linesBefore()
	}
	r.refused.add(r.read - 1)
	if r.opt.Reject == nil {
		return &at
	}
	r.err = r.opt.Reject(Rejected{Fault: &at, Rows: r.rows, Text: bytes.TrimRight(r.src.Raw, "\r\n")})
	return r.err
}

// ending describes where and how the reading ended.
func (r *Reader) ending(err error) error {
	unfinished, isUnfinished := errors.AsType[jsonrows.Unfinished](err)
	text, advice := "", "write one row on each line, or raise the limit on lines (--max-line of moonloop inspect and transform) if the row is real"
	switch {
	case errors.Is(err, io.EOF):
		return io.EOF
	case isUnfinished:
		text, advice = unfinished.Error(), ""
	case errors.Is(err, jsonrows.ErrLongLine):
		text = fmt.Sprintf("the line is longer than %d bytes", r.opt.MaxLine)
	case errors.Is(err, jsonrows.ErrLongRow):
		text = fmt.Sprintf("the row that begins here is longer than %d bytes", r.opt.MaxLine)
	default:
		return fmt.Errorf("%s: the trace cannot be read to its end: %w; use a complete copy of the file", location(r.opt.Name, r.src.Line), err)
	}
	return &unfinishedError{join("; ", location(r.opt.Name, r.src.Line)+": "+text, advice)}
}

// unfinishedError is the error for a trace that breaks off.
type unfinishedError struct{ text string }

func (e *unfinishedError) Error() string { return e.text }

// laidOut handles a row that is not on a line of its own as if it were, and counts it.
func (r *Reader) laidOut(row *Row) {
	if r.table {
		r.notices.add(NoticeLayout, "in a table (CSV)", r.src.Line, 1)
	}
	l := r.src.Layout
	if l == 0 {
		return
	}
	if l&jsonrows.Spans != 0 || !bytes.Equal(r.src.Text, r.src.Raw) {
		row.compact()
	}
	for _, kind := range layouts {
		if l&kind.layout != 0 {
			r.notices.add(NoticeLayout, kind.text, r.src.Line, 1)
		}
	}
}

// timed records the kind of a row's timestamp.
func (r *Reader) timed(row *Row) {
	if kind := r.parser.stamp; row.Timestamp.Set && kind != stampGiven {
		if r.parser.stamps == stampNone {
			r.parser.stamps = kind
		}
		if text := stamps[kind].notice; text != "" {
			r.notices.add(NoticeTimes, text, r.src.Line, 1)
		}
	}
}

// ParseRow reads a row of the trace by itself, like the function of the same name. Its timestamp is read like those of the rows so far.
func (r *Reader) ParseRow(line []byte) (*Row, error) {
	return parseRow(line, parser{fields: r.parser.fields, unit: r.parser.unit, stamps: r.parser.stamps})
}

// Unit returns the unit of timestamps in the file: the given one, else the one recognised so far. Rows always have milliseconds.
func (r *Reader) Unit() time.Duration {
	return cmp.Or(r.opt.Unit, stamps[r.parser.stamps].unit, time.Millisecond)
}

// layouts are the texts about rows that are not on a line of their own.
var layouts = []struct {
	layout jsonrows.Layout
	text   string
}{
	{jsonrows.Spans, "spread over several lines"},
	{jsonrows.Array, "in a JSON array"},
	{jsonrows.Shares, "on the same line as the row before"},
	{jsonrows.Comments, "with comments, which are ignored"},
	{jsonrows.Commas, "with extra commas, which are ignored"},
}

// Transformations returns the transformations that the rows read so far list. The last row of a trace that came through a pipe has them.
func (r *Reader) Transformations() []Transformation { return r.done }

// examine compares a good row with the rows before it, and records unusual findings.
func (r *Reader) examine(row *Row) *RowError {
	blocks := BlockCount(row.InputLength.V, r.opt.BlockSize)
	tooMany := row.InputLength.Set && len(row.HashIDs) > blocks
	switch {
	case r.opt.Strict && len(r.parser.unknown) > 0:
		return fault(r.parser.unknown[0], "", "is an unknown key", "correct or remove it, or read without strict")
	case r.opt.Strict && tooMany:
		return fault("hash_ids", words.Plural(int64(len(row.HashIDs)), "id"),
			fmt.Sprintf("input_length %d has room for %d blocks of %d tokens", row.InputLength.V, blocks, r.opt.BlockSize),
			"give the block size that the trace was made with, or read without strict")
	}
	if fault := r.complete(row); fault != nil {
		return fault
	}
	if fault := r.faultSizes(row); fault != nil {
		return fault
	}
	lost, fault := r.refused.remap(row, r.read-1)
	if fault != nil {
		return fault
	}
	if fault := r.faultSession(row); fault != nil {
		return fault
	}
	if r.checker != nil {
		if fault := r.checker.strict(row, r.src.Line); fault != nil {
			return fault
		}
	}
	r.done = append(r.done, r.parser.done...)
	r.notices.add(NoticeReplyLost, "", r.src.Line, lost)
	for _, name := range r.parser.unknown {
		r.notices.add(NoticeUnknownKey, name, r.src.Line, 1)
	}
	for _, name := range r.parser.foreign {
		r.notices.add(NoticeForeignField, name, r.src.Line, 1)
	}
	if tooMany {
		r.notices.add(NoticeTooManyIDs, "", r.src.Line, 1)
	}
	if n := int64(len(row.HashIDs)); n > 0 {
		r.fitting = max(r.fitting, (row.InputLength.V+n-1)/n)
		if len(row.HashIDs) < blocks {
			r.notices.add(NoticePrefixOnly, "", r.src.Line, 1)
		}
	}
	return nil
}

// complete adds to a row the ranges and replies of the row that it continues. If that row could not be used, it removes those of the row
// itself.
func (r *Reader) complete(row *Row) *RowError {
	if n := r.parser.continues; n.Set {
		switch known, fault := r.recent.complete(row, r.read-1, n.V, &r.refused); {
		case fault != nil:
			return fault
		case !known:
			row.HashRanges, row.Replies = nil, nil
			r.notices.add(NoticeContinuedLost, "", r.src.Line, 1)
		}
	}
	r.recent.add(r.read-1, row)
	return nil
}

// promptClass groups the prompt kinds that may occur in one session: all its rows must have the same class.
type promptClass uint8

const (
	classSynthetic promptClass = iota // input_length or text_input: a new user turn, or a full prompt
	classHistory                      // messages with the conversation
	classDelta                        // messages with the new turn
	classPayload                      // whole request bodies
)

var promptClasses = [...]string{"input_length or text_input", "messages", "messages with message_mode delta", "payload"}

func classOf(row *Row) promptClass {
	switch k := row.Kind(); {
	case k == KindMessages && row.MessageMode == MessageDelta:
		return classDelta
	case k == KindMessages:
		return classHistory
	case k == KindPayload:
		return classPayload
	}
	return classSynthetic
}

// faultSession checks that a session does not mix kinds of prompts, because then the content before a turn would be undefined.
func (r *Reader) faultSession(row *Row) *RowError {
	if row.SessionID == "" {
		return nil
	}
	key, class := maphash.String(r.seed, row.SessionID), classOf(row)
	before, ok := r.sessions[key]
	switch {
	case ok && before != class:
		return fault("session_id", "", "earlier rows of the session have "+promptClasses[before]+", this one has "+promptClasses[class],
			"use one kind in all rows of a session")
	case ok:
	case len(r.sessions) < maxReaderSessions:
		r.sessions[key] = class
	default:
		r.notices.add(NoticeSessions, "", r.src.Line, 1)
	}
	return nil
}
