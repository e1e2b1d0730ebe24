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

// ErrNotJournal is a file that is no journal, or one of a version that this program does not know.
var ErrNotJournal = errors.New("not a journal")

// Damage is bytes of a journal that hold no record. It is an error of [Reader.Next] after which reading can go on.
type Damage struct {
	Journal string
	Offset  int64 // of the first byte, from the start of the file
	Bytes   int64
}

// Error says what was found where.
func (d *Damage) Error() string {
	return fmt.Sprintf("journal %s: %d bytes at offset %d are damaged and were skipped: restore the file from a copy if there is one",
		d.Journal, d.Bytes, d.Offset)
}

// Torn counts what stands at the end of a journal, or where a writer went on with it, and is no record. A write that a crash or a
// full disk cut off leaves that, and was not acknowledged. So does whatever takes the end off a journal later, such as a copy that is
// not whole, and then it may have been: a journal does not tell which.
type Torn struct {
	Records int64 `json:"records"` // places; each was one call of Append
	Bytes   int64 `json:"bytes"`
}

// Reader reads the records of a journal. It takes memory for one record. It is not safe for concurrent use.
type Reader struct {
	name    string
	r       *bufio.Reader
	started bool
	offset  int64  // of the next byte
	frame   []byte // the last frame, when it was larger than the buffer of r
	bad     *Damage
	held    []byte // a good payload behind the damage that is reported first
	torn    Torn
	dec     Decoder
	err     error
}

// NewReader returns a reader. name is for errors.
func NewReader(name string, r io.Reader) *Reader {
	return &Reader{name: name, r: bufio.NewReaderSize(r, 64<<10)}
}

// Next returns the next record, io.EOF after the last one, or a [*Damage], after which the next call goes on behind it.
// Any other error stays.
func (r *Reader) Next() (Record, error) {
	_, d, err := r.NextEncoded()
	if err != nil {
		return nil, err
	}
	return d.Record(), nil
}

// Torn returns what was torn so far; all of it after io.EOF.
func (r *Reader) Torn() Torn { return r.torn }

// Offset returns the number of bytes of the journal that were read.
func (r *Reader) Offset() int64 { return r.offset }

// NextEncoded returns the next record as it is in the journal, and decoded, both until the next call. Its errors are those of [Reader.Next].
func (r *Reader) NextEncoded() ([]byte, *Decoder, error) {
	if p := r.held; p != nil {
		r.held = nil
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
			// One is what a writer puts before it goes on; more are a hole.
			if zeros++; zeros > 1 || r.bad != nil {
				r.damage(start, 1)
			}
			continue
		}
		zeros = 0
		if whole && between(frame) {
			continue
		}
		payload, ok := []byte(nil), false
		if whole {
			payload, ok = openFrame(frame)
		}
		switch {
		case ok && len(payload) == 1 && payload[0] == kindResume:
			r.tear()
		case ok && len(payload) == 1 && payload[0] == kindEnd:
		case !ok || r.dec.Decode(payload) != nil:
			r.damage(start, r.offset-start)
		case r.bad != nil:
			d := r.bad
			r.bad, r.held = nil, payload
			return nil, nil, d
		default:
			return payload, &r.dec, nil
		}
	}
	if errors.Is(r.err, io.EOF) {
		r.tear()
	}
	return nil, nil, r.err
}

func (r *Reader) readHeader() error {
	head := make([]byte, len(header))
	n, err := io.ReadFull(r.r, head)
	r.offset = int64(n)
	switch {
	case err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF):
		return fmt.Errorf("journal %s cannot be read: %w", r.name, err)
	case string(head[:n]) != header[:n]:
		return fmt.Errorf("journal %s: %w", r.name, checkHeader(head[:n]))
	case n == len(header):
		return nil
	case n > 0:
		r.damage(0, int64(n))
	}
	return io.EOF
}

// checkHeader says what is wrong with the header of a journal.
func checkHeader(head []byte) error {
	kind, version, _ := strings.Cut(header, " ")
	if strings.HasPrefix(string(head), kind+" ") {
		return fmt.Errorf("%w of version %s: use the program that wrote it, or a newer one", ErrNotJournal, strings.TrimSpace(version))
	}
	return fmt.Errorf("%w: it does not begin like one", ErrNotJournal)
}

// readFrame reads up to the next 0, or the end of the file. A frame above the limit comes back empty and not whole, read
// to its end. Without another byte the error is io.EOF.
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
			return append(r.frame, part...), true, nil // all but the 0 may be there
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

// tear counts the current stretch of damage as torn: no record came after it before the writer went on, or ended.
func (r *Reader) tear() {
	if r.bad != nil {
		r.torn.Records++
		r.torn.Bytes += r.bad.Bytes
		r.bad = nil
	}
}
