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

// DefaultMaxLine is the longest line, or row of several lines, that a reader accepts unless it is told otherwise, in bytes.
const DefaultMaxLine = 64 << 20

// maxReaderSessions bounds the sessions whose prompt kind a reader remembers: up to 10 MiB.
const maxReaderSessions = 1 << 18

// ReaderOptions says how to read a trace. The zero value is usable.
type ReaderOptions struct {
	Name      string // of the trace, for errors
	Strict    bool   // what is odd is an error instead of a notice
	BlockSize int    // tokens per hash id; 0 is [BlockSize]
	// FineBlockSize is the number of tokens per id of hash_ranges, a divisor of BlockSize; 0 is unknown, and refuses rows with
	// hash_ranges.
	FineBlockSize int
	MaxLine       int // longest line, or row of several lines, in bytes; 0 is [DefaultMaxLine]

	// Unit is the unit of timestamps that are numbers. 0: it is told from the size of the first one. Numbers below 10^12 are
	// milliseconds from any zero, but for those from 1.2·10^9 to 2.2·10^9, which are seconds since 1970; larger ones are
	// milliseconds, microseconds (from 10^14 on) or nanoseconds (from 10^17 on) since 1970. Rows have milliseconds.
	Unit time.Duration

	// Map gives fields other keys; one that [ParseMapping] refuses has no effect.
	Map Mapping

	// Reject decides what becomes of a row that cannot be used. Nil: Read returns its error. Else Reject owns the row: when
	// it returns nil the reader goes on as if the line were not there; an error ends the reading and stays. A row of which
	// the end is missing, because the source broke off or the line is too long, ends the reading in any case. See [Quarantine].
	Reject func(Rejected) error
}

// Reader reads the rows of a trace, one by one. It is not safe for concurrent use.
type Reader struct {
	opt      ReaderOptions
	src      *jsonrows.Reader
	good     bool // Read returned what src has found last
	rows     int64
	read     int64 // rows of the source so far, those that were refused included
	refused  refusals
	recent   recent
	parser   parser
	notices  notices
	table    bool // lines are records of one
	done     []Transformation
	fitting  int64 // the smallest block size that gives every row enough ids
	sessions map[uint64]promptClass
	seed     maphash.Seed
	checker  *Checker // Strict only
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

// Line returns the number, from 1, of the line on which the row begins that Read returned or refused last.
func (r *Reader) Line() int64 { return r.src.Line }

// BlockSize returns the block size that rows are read with, in tokens.
func (r *Reader) BlockSize() int { return r.opt.BlockSize }

// FineBlockSize returns the number of tokens per id of hash_ranges; 0 when it is not known.
func (r *Reader) FineBlockSize() int { return r.opt.FineBlockSize }

// Notices returns what has been noticed so far, ordered by first line.
func (r *Reader) Notices() []Notice { return r.notices.list(r.opt.BlockSize, r.rows, r.fitting) }

// Read returns the next row, io.EOF after the last one, or a *[RowError], after which reading can go on with the next
// line. Any other error (the source broke off, a line is too long) ends the reading and stays.
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

// Refuse refuses the row that Read returned last, for a rule that the reader does not know: what a row means beside the
// others of its trace is for its user to tell. It completes the fault with file and line and returns it, unless
// [ReaderOptions].Reject has taken the row; then it returns nil, and Read goes on as if the line were not there.
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

// ending says where and how the reading ends.
func (r *Reader) ending(err error) error {
	unfinished, isUnfinished := errors.AsType[jsonrows.Unfinished](err)
	text, advice := "", "write one row on each line, or raise the limit on lines if the row is real"
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
		return fmt.Errorf("%s: the trace cannot be read to its end: %w; take a whole copy of it", location(r.opt.Name, r.src.Line), err)
	}
	return &unfinishedError{join("; ", location(r.opt.Name, r.src.Line)+": "+text, advice)}
}

// unfinishedError is the end of a trace of which the rest makes no sense.
type unfinishedError struct{ text string }

func (e *unfinishedError) Error() string { return e.text }

// laidOut makes a row that is not on a line by itself what it were there, and counts it.
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

// timed notes what kind of timestamp a row has.
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

// ParseRow reads a row of the trace by itself, like the function of this name: its timestamp is of the kind that those read so far are of.
func (r *Reader) ParseRow(line []byte) (*Row, error) {
	return parseRow(line, parser{fields: r.parser.fields, unit: r.parser.unit, stamps: r.parser.stamps})
}

// Unit returns the unit of timestamps in the file: the one that was given, else the one that the rows so far have been read with. Rows
// have milliseconds in any case.
func (r *Reader) Unit() time.Duration {
	return cmp.Or(r.opt.Unit, stamps[r.parser.stamps].unit, time.Millisecond)
}

// layouts are what is said of rows that are not on a line by themselves.
var layouts = []struct {
	layout jsonrows.Layout
	text   string
}{
	{jsonrows.Spans, "spread over several lines"},
	{jsonrows.Array, "in a JSON array"},
	{jsonrows.Shares, "on a line with the row before"},
	{jsonrows.Comments, "with comments, which are ignored"},
	{jsonrows.Commas, "with commas too many, which are ignored"},
}

// Transformations are what the rows that were read say was done to the trace: the last row of one that came through a pipe does.
func (r *Reader) Transformations() []Transformation { return r.done }

// examine looks at a good row in the light of the rows before it, and notes what is odd.
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

// complete gives a row that continues another one what it has from that, or leaves its ranges and replies out where that could not be used.
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

// promptClass groups the prompt kinds that one session can hold: its rows must all be of one.
type promptClass uint8

const (
	classSynthetic promptClass = iota // input_length or text_input: a new user turn, or a full prompt
	classHistory                      // messages that hold the conversation
	classDelta                        // messages that hold the new turn
	classPayload                      // whole bodies
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

// faultSession: a session does not mix kinds of prompts, since what is sent before a turn would be undefined.
func (r *Reader) faultSession(row *Row) *RowError {
	if row.SessionID == "" {
		return nil
	}
	key, class := maphash.String(r.seed, row.SessionID), classOf(row)
	before, ok := r.sessions[key]
	switch {
	case ok && before != class:
		return fault("session_id", "", "the session's rows before have "+promptClasses[before]+", this one has "+promptClasses[class],
			"use one kind in all rows of a session")
	case ok:
	case len(r.sessions) < maxReaderSessions:
		r.sessions[key] = class
	default:
		r.notices.add(NoticeSessions, "", r.src.Line, 1)
	}
	return nil
}
