// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package journal

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strings"
)

// ErrNotJournal is the error for a file that is not a journal, or of an unknown version. A journal of which only the header is damaged is read,
// if its first record is intact.
var ErrNotJournal = errors.New("not a journal")

// Damage is a part of a journal without a valid record. [Reader.Next] returns it as an error, after which reading can continue.
type Damage struct {
	Journal string `json:"journal"`
	Offset  int64  `json:"offset"` // of the first byte, from the start of the file
	Bytes   int64  `json:"bytes"`
}

// Error describes the damage and its position.
func (d *Damage) Error() string {
	return fmt.Sprintf("journal %s: %d bytes at offset %d are damaged and were skipped: restore the file from a copy if there is one",
		d.Journal, d.Bytes, d.Offset)
}

// Torn counts incomplete bytes at the end of a journal, or where a writer continued it. A write that a crash or a full disk cut off leaves
// such bytes, and was not acknowledged. So does anything that later removes the end of a journal, such as an incomplete copy; then they may
// have been acknowledged. A journal does not show which.
type Torn struct {
	Records int64 `json:"records"` // positions with such bytes; each was one call of Append
	Bytes   int64 `json:"bytes"`
}

// Reader reads the records of a journal. It needs memory for one record, and for the dictionary. It is not safe for concurrent use.
type Reader struct {
	name    string
	r       *bufio.Reader
	started bool
	offset  int64  // of the next byte
	from    int64  // where reading begins; 0 = after the header
	seen    int64  // earlier records are only read for the dictionary
	place   Place  // after the last record
	frame   []byte // the last frame, if it was larger than the buffer of r
	bad     *Damage
	held    []byte // a valid payload after the damage that is reported first
	torn    Torn
	dec     Decoder
	err     error
	doubt   error // why this may be no journal, until a record or a mark shows that only its header is damaged

	dictionary dictionary
	record     []byte // unpacked
}

// Place is where a reader of a growing journal continues. The zero Place is the beginning.
type Place struct {
	Offset     int64 // of the first byte that was not read
	Dictionary int64 // of the record that began the dictionary; 0 means none
}

// NewReader returns a reader. name is for errors.
func NewReader(name string, r io.Reader) *Reader {
	return &Reader{name: name, r: bufio.NewReaderSize(r, 64<<10)}
}

// NewReaderAt returns a reader that continues at a place of a journal, as if it had read everything before, and ends at a given size. It
// does not report damage before the place again.
func NewReaderAt(name string, file io.ReaderAt, size int64, at Place) *Reader {
	from := max(at.Offset, HeaderSize)
	if at.Dictionary > 0 {
		from = max(min(from, at.Dictionary), HeaderSize)
	}
	r := NewReader(name, io.MultiReader(io.NewSectionReader(file, 0, HeaderSize), io.NewSectionReader(file, from, max(size-from, 0))))
	r.from, r.seen, r.place = from, at.Offset, at
	return r
}

// Next returns the next record, io.EOF after the last one, or a [*Damage], after which the next call continues. Any other error is returned
// again.
func (r *Reader) Next() (Record, error) {
	_, d, err := r.NextEncoded()
	if err != nil {
		return nil, err
	}
	return d.Record(), nil
}

// Torn returns the torn bytes so far; all of them after io.EOF.
func (r *Reader) Torn() Torn { return r.torn }

// Place returns the place after the last record that was returned.
func (r *Reader) Place() Place { return r.place }

// Offset returns the number of bytes of the journal that were read.
func (r *Reader) Offset() int64 { return r.offset }

// NextEncoded returns the next record as in the journal, and decoded; both are valid until the next call. Its errors are those of
// [Reader.Next].
func (r *Reader) NextEncoded() ([]byte, *Decoder, error) {
	if p := r.held; p != nil {
		r.held, r.place.Offset = nil, r.offset
		return p, &r.dec, nil
	}
	if r.err == nil && !r.started {
		r.started = true
		r.err = r.readHeader()
	}
	zeros := 0
	for r.err == nil {
		start := r.offset
		frame, whole, err := r.readFrame()
		if err != nil {
			r.err = err
			break
		}
		if whole && len(frame) == 0 {
			// A writer writes one before it continues; more are a hole.
			if zeros++; zeros > 1 || r.bad != nil {
				r.damage(start, 1)
			}
			continue
		}
		zeros = 0
		if whole && between(frame) {
			continue
		}
		payload, sum, ok := []byte(nil), uint32(0), false
		if whole {
			payload, sum, ok = openFrame(frame)
		}
		if ok && isMark(payload, sum, kindResume) {
			r.tear()
			continue
		}
		if ok && isMark(payload, sum, kindEnd) {
			continue
		}
		record, ok := r.open(payload, sum, start, ok)
		if ok {
			r.doubt = nil
		}
		switch {
		case r.doubt != nil:
			r.err = r.doubt
		case r.offset <= r.seen:
			r.bad, r.torn = nil, Torn{}
		case !ok:
			r.damage(start, r.offset-start)
		case r.bad != nil:
			d := r.bad
			r.bad, r.held = nil, record
			return nil, nil, d
		default:
			r.place.Offset = r.offset
			return record, &r.dec, nil
		}
	}
	if errors.Is(r.err, io.EOF) {
		if r.tear(); r.doubt != nil {
			r.err = r.doubt
		}
	}
	if r.doubt != nil {
		r.bad, r.torn = nil, Torn{}
	}
	return nil, nil, r.err
}

// open reads a record from its frame at an offset.
func (r *Reader) open(payload []byte, sum uint32, start int64, ok bool) ([]byte, bool) {
	if !ok {
		return nil, false
	}
	record, err := r.dictionary.open(payload, sum, &r.dec, &r.record)
	if err != nil {
		return nil, false
	}
	if begins(payload) {
		r.place.Dictionary = start
	}
	return record, true
}

func (r *Reader) readHeader() error {
	head := make([]byte, len(header))
	n, err := io.ReadFull(r.r, head)
	r.offset = int64(n)
	switch {
	case err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF):
		return fmt.Errorf("journal %s cannot be read: %w", r.name, err)
	case !beginsHeader(head[:n]):
		err = fmt.Errorf("journal %s: %w", r.name, checkHeader(head[:n]))
		if !hasVersion(head[:n]) {
			return err
		}
		if r.seen == 0 {
			r.damage(0, int64(n))
			r.doubt = err
		}
		r.offset = max(r.offset, r.from)
		return nil
	case n == len(header):
		r.offset = max(r.offset, r.from)
		return nil
	case n > 0:
		r.damage(0, int64(n))
	}
	return io.EOF
}

// isHeader reports whether bytes are the header of a journal that this program can read.
func isHeader(b []byte) bool { return string(b) == header || string(b) == header1 }

// beginsHeader reports whether bytes are the beginning of such a header, or all of it.
func beginsHeader(b []byte) bool {
	return strings.HasPrefix(header, string(b)) || strings.HasPrefix(header1, string(b))
}

// hasVersion reports whether bytes that are no header may be a damaged one: nothing in it is needed except for the version.
func hasVersion(b []byte) bool {
	at := len(header) - len("2\n")
	return len(b) == len(header) && (b[at] == header[at] || b[at] == header1[at])
}

// checkHeader returns an error about the header of a journal.
func checkHeader(head []byte) error {
	if kind, _, _ := strings.Cut(header, " "); strings.HasPrefix(string(head), kind+" ") {
		return fmt.Errorf("%w of version 1 or 2: use the program that wrote it, or a newer one", ErrNotJournal)
	}
	return fmt.Errorf("%w: it does not begin like one", ErrNotJournal)
}

// readFrame reads up to the next 0, or the end of the file. A frame above the limit is read to its end, and returned empty and not whole.
// At the end of the file, it returns io.EOF.
func (r *Reader) readFrame() (frame []byte, whole bool, err error) {
	r.frame = r.frame[:0]
	start := r.offset
	for {
		part, err := r.r.ReadSlice(0)
		r.offset += int64(len(part))
		switch {
		case err == nil && len(r.frame) == 0 && r.offset-start == int64(len(part)):
			return part[:len(part)-1], true, nil
		case err == nil && r.offset-start <= maxFrame+1:
			return append(r.frame, part[:len(part)-1]...), true, nil
		case errors.Is(err, io.EOF) && r.offset > start && r.offset-start <= maxFrame:
			return append(r.frame, part...), true, nil // everything except the 0 may have been written
		case err == nil, errors.Is(err, io.EOF) && r.offset > start:
			return nil, false, nil
		case errors.Is(err, io.EOF):
			return nil, false, io.EOF
		case !errors.Is(err, bufio.ErrBufferFull):
			return nil, false, fmt.Errorf("journal %s cannot be read at offset %d: %w", r.name, r.offset, err)
		case r.offset-start <= maxFrame:
			r.frame = append(r.frame, part...)
		}
	}
}

// damage adds bytes to the current stretch of damage.
func (r *Reader) damage(offset, n int64) {
	if r.bad == nil {
		r.bad = &Damage{Journal: r.name, Offset: offset}
	}
	r.bad.Bytes = offset + n - r.bad.Offset
}

// tear counts the current stretch of damage as torn: no record follows it before a writer continued, or the journal ended.
func (r *Reader) tear() {
	if r.bad != nil {
		r.torn.Records++
		r.torn.Bytes += r.bad.Bytes
		r.bad = nil
	}
}
