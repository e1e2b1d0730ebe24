// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package mooncake

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"hash/maphash"
	"io"

	"github.com/moonloop/moonloop/mooncake/internal/words"
)

// DefaultMaxLine is the longest line that a reader accepts unless it is told otherwise, in bytes.
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
	MaxLine       int // longest line in bytes; 0 is [DefaultMaxLine]

	// Reject decides what becomes of a row that cannot be used. Nil: Read returns its error. Else Reject owns the row: when
	// it returns nil the reader goes on as if the line were not there; an error ends the reading and stays. A row of which
	// the end is missing, because the source broke off or the line is too long, ends the reading in any case. See [Quarantine].
	Reject func(Rejected) error
}

// Reader reads the rows of a trace, one by one. It is not safe for concurrent use.
type Reader struct {
	opt      ReaderOptions
	src      *bufio.Reader
	line     int64  // number of the line read last
	text     []byte // that line
	good     bool   // Read returned it
	rows     int64
	read     int64 // rows of the source so far, those that were refused included
	refused  refusals
	recent   recent
	long     []byte // a line that does not fit into src's buffer
	parser   parser
	notices  notices
	fitting  int64 // the smallest block size that gives every row enough ids
	sessions map[uint64]promptClass
	seed     maphash.Seed
	checker  *Checker // Strict only
	err      error    // of the source; sticky
}

// NewReader returns a reader of plain JSON lines. [Open] also takes compressed files, standard input and URLs.
func NewReader(r io.Reader, opt ReaderOptions) *Reader {
	if opt.BlockSize <= 0 {
		opt.BlockSize = BlockSize
	}
	if opt.MaxLine <= 0 {
		opt.MaxLine = DefaultMaxLine
	}
	rd := &Reader{
		opt: opt, src: bufio.NewReaderSize(r, 64<<10), notices: make(notices),
		sessions: make(map[uint64]promptClass), seed: maphash.MakeSeed(),
	}
	if opt.Strict {
		rd.checker = NewChecker(CheckOptions{BlockSize: opt.BlockSize, FineBlockSize: opt.FineBlockSize})
	}
	return rd
}

// Line returns the number, from 1, of the line that Read returned or refused last.
func (r *Reader) Line() int64 { return r.line }

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
		line, err := r.readLine()
		if err != nil {
			r.err, r.good = err, false
			break
		}
		r.text = line
		if len(bytes.TrimSpace(line)) == 0 {
			continue
		}
		r.read++
		row, fault := r.parser.parse(line)
		if fault == nil {
			fault = r.examine(row)
		}
		if r.good = fault == nil; r.good {
			r.rows++
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
	if r.good {
		r.good = false
		r.rows--
	}
	r.refused.add(r.read - 1)
	at := *fault
	at.File, at.Line = r.opt.Name, r.line
	if r.opt.Reject == nil {
		return &at
	}
	r.err = r.opt.Reject(Rejected{Fault: &at, Rows: r.rows, Text: bytes.TrimRight(r.text, "\r\n")})
	return r.err
}

var utf8BOM = []byte("\xef\xbb\xbf")

// readLine returns the next line without a byte order mark. The bytes are valid until the next call.
func (r *Reader) readLine() ([]byte, error) {
	line, err := r.src.ReadSlice('\n')
	if errors.Is(err, bufio.ErrBufferFull) {
		r.long = append(r.long[:0], line...)
		for errors.Is(err, bufio.ErrBufferFull) && len(r.long) <= r.opt.MaxLine {
			line, err = r.src.ReadSlice('\n')
			r.long = append(r.long, line...)
		}
		line = r.long
	}
	switch {
	case len(line) > 0:
		r.line++ // the last line may lack its newline
	case errors.Is(err, io.EOF):
		return nil, io.EOF
	}
	if len(line) > r.opt.MaxLine {
		return nil, fmt.Errorf("%s: the line is longer than %d bytes; "+
			"write one row on each line, or raise the limit on lines if the row is real",
			location(r.opt.Name, r.line), r.opt.MaxLine)
	}
	if err != nil && !errors.Is(err, io.EOF) {
		if len(line) == 0 {
			r.line++ // the line that did not come
		}
		return nil, fmt.Errorf("%s: the trace cannot be read to its end: %w; take a whole copy of it", location(r.opt.Name, r.line),
			err)
	}
	if r.line == 1 {
		line = bytes.TrimPrefix(line, utf8BOM)
	}
	return line, nil
}

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
		if fault := r.checker.strict(row, r.line); fault != nil {
			return fault
		}
	}
	r.notices.add(NoticeReplyLost, "", r.line, lost)
	for _, name := range r.parser.unknown {
		r.notices.add(NoticeUnknownKey, name, r.line, 1)
	}
	for _, name := range r.parser.foreign {
		r.notices.add(NoticeForeignField, name, r.line, 1)
	}
	if tooMany {
		r.notices.add(NoticeTooManyIDs, "", r.line, 1)
	}
	if n := int64(len(row.HashIDs)); n > 0 {
		r.fitting = max(r.fitting, (row.InputLength.V+n-1)/n)
		if len(row.HashIDs) < blocks {
			r.notices.add(NoticePrefixOnly, "", r.line, 1)
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
			r.notices.add(NoticeContinuedLost, "", r.line, 1)
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
		r.notices.add(NoticeSessions, "", r.line, 1)
	}
	return nil
}
