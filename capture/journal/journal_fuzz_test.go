// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package journal

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
)

// FuzzReader reads arbitrary bytes. The result is exactly the records that are whole, determined without the reader. Each byte belongs to
// a record, to damage, to a torn end, or to the separators between records. It does not matter how the bytes arrive.
func FuzzReader(f *testing.F) {
	f.Add(journal(some(f)...))
	f.Add([]byte(header + "\x00\x00\x01\x00"))
	f.Add(append([]byte("n"), journal(some(f)...)[1:]...)) // a damaged header
	f.Add(append([]byte("n"+header[1:]), appendMark(nil, kindResume)...))
	f.Add(packed(append(some(f), some(f)...)...))
	f.Add(slices.Concat(packed(some(f)...), packed(some(f)...)[len(header):], message(f, some(f)...)))
	f.Add(appendMark([]byte(header), kindResume))
	f.Add(slices.Concat(journal(some(f)[3:]...)[:90], appendMark([]byte{0}, kindResume), journal(some(f)[2:5]...)[len(header):]))
	f.Add(slices.Concat(message(f, some(f)[:2]...), []byte("\n"), message(f, some(f)[2:]...), []byte("\n")))
	f.Fuzz(func(t *testing.T, b []byte) {
		want, end := eventsOf(b)
		for how, r := range map[string]io.Reader{"whole": bytes.NewReader(b), "in halves": iotest.HalfReader(bytes.NewReader(b)), "with its end": iotest.DataErrReader(bytes.NewReader(b))} {
			got, err := readEvents(t, NewReader("j", r))
			if !errors.Is(err, end) {
				t.Fatalf("%s: ends with %v, want %v", how, err, end)
			}
			if !slices.Equal(want, got) {
				t.Fatalf("%s: read %v, want %v", how, got, want)
			}
		}
	})
}

// readEvents reads a journal and reports what it found: records by their bytes, damage by its position, a torn end last.
func readEvents(t *testing.T, r *Reader) (events []string, end error) {
	t.Helper()
	for {
		rec, err := r.Next()
		switch d := (*Damage)(nil); {
		case errors.As(err, &d):
			events = append(events, fmt.Sprintf("damage %d+%d", d.Offset, d.Bytes))
		case err != nil:
			return append(events, fmt.Sprint("torn ", r.Torn())), err
		default:
			b := AppendRecord(nil, rec)
			// A record that was read encodes to bytes that read the same.
			var d Decoder
			if err := d.Decode(b); err != nil {
				t.Fatalf("%x cannot be read again: %v", b, err)
			}
			if again := AppendRecord(nil, d.Record()); !bytes.Equal(b, again) {
				t.Fatalf("%x reads back as %x", b, again)
			}
			events = append(events, fmt.Sprintf("record %x", b))
		}
	}
}

// eventsOf computes the content of a journal from all of its bytes: its frames are between zeros.
func eventsOf(b []byte) (events []string, end error) {
	var torn Torn
	doubt := false
	if !bytes.HasPrefix(b, []byte(header)) && !bytes.HasPrefix(b, []byte(header1)) {
		if bytes.HasPrefix([]byte(header), b) || bytes.HasPrefix([]byte(header1), b) {
			if len(b) > 0 {
				torn = Torn{1, int64(len(b))}
			}
			return []string{fmt.Sprint("torn ", torn)}, io.EOF
		}
		if doubt = len(b) >= len(header) && (b[len(header)-2] == '1' || b[len(header)-2] == '2'); !doubt {
			return []string{fmt.Sprint("torn ", torn)}, ErrNotJournal
		}
	}
	var known dictionary
	var memory []byte
	offset, bad, badEnd, zeros := len(header), -1, 0, 0
	if doubt {
		bad, badEnd = 0, len(header)
	}
	for frames := bytes.SplitAfter(b[len(header):], []byte{0}); len(frames) > 0; frames = frames[1:] {
		frame := frames[0]
		start := offset
		if offset += len(frame); len(frame) == 0 {
			continue // nothing after the last zero
		}
		broken := func() {
			if badEnd = offset; bad < 0 {
				bad = start
			}
		}
		frame = bytes.TrimSuffix(frame, []byte{0})
		if len(frame) == 0 {
			if zeros++; zeros > 1 || bad >= 0 {
				broken()
			}
			continue
		}
		zeros = 0
		if s := strings.TrimPrefix(string(frame), "\n"); s == "" || s == header || s == header1 {
			continue // between two messages
		}
		var d Decoder
		payload, sum, ok := openFrame(bytes.Clone(frame))
		switch {
		case ok && sum == checksum(0, payload) && bytes.Equal(payload, []byte{kindResume}):
			if bad >= 0 {
				torn.Records, torn.Bytes, bad = torn.Records+1, torn.Bytes+int64(badEnd-bad), -1
			}
		case ok && sum == checksum(0, payload) && bytes.Equal(payload, []byte{kindEnd}):
		case !ok || len(frame) > maxFrame:
			if broken(); doubt {
				return []string{fmt.Sprint("torn ", Torn{})}, ErrNotJournal
			}
		default:
			if _, err := known.open(payload, sum, &d, &memory); err != nil {
				if broken(); doubt {
					return []string{fmt.Sprint("torn ", Torn{})}, ErrNotJournal
				}
				break
			}
			doubt = false
			if bad >= 0 {
				events, bad = append(events, fmt.Sprintf("damage %d+%d", bad, badEnd-bad)), -1
			}
			events = append(events, fmt.Sprintf("record %x", AppendRecord(nil, d.Record())))
		}
	}
	if doubt {
		return []string{fmt.Sprint("torn ", Torn{})}, ErrNotJournal
	}
	if bad >= 0 {
		torn.Records, torn.Bytes = torn.Records+1, torn.Bytes+int64(badEnd-bad)
	}
	return append(events, fmt.Sprint("torn ", torn)), io.EOF
}

// FuzzDamage cuts, flips, removes and duplicates bytes of a good journal. Every untouched record is read, in
// order, nothing is read that was never written, and losses are counted to the byte.
func FuzzDamage(f *testing.F) {
	records := some(f)
	for i := range uint64(6) {
		records = append(records, &Inference{Span: ref(i+10, 1), Start: at(int64(i)), InputTokens: opt[int64](1000)}, &Link{Span: ref(i+10, 2), Parent: sid(1), Session: Session(i)})
	}
	whole := journal(records...)
	var at []int // where each record begins, and the end
	known := map[string]int{}
	for i, r := range records {
		at = append(at, len(journal(records[:i]...)))
		known[string(AppendRecord(nil, r))] = i
	}
	at = append(at, len(whole))

	f.Add([]byte{0, 1, 44, 1})
	f.Add([]byte{1, 0, 200, 8, 1, 1, 0, 255})
	f.Add([]byte{2, 0, 100, 30, 3, 1, 20, 60})
	f.Add([]byte{2, 2, 0, 1, 0, 2, 100, 0})
	f.Fuzz(func(t *testing.T, blows []byte) {
		// origin gives the original position of each byte of b; a changed byte has none.
		b, origin := bytes.Clone(whole), make([]int, len(whole))
		for i := range origin {
			origin[i] = i
		}
		for ; len(blows) >= 4; blows = blows[4:] {
			body := len(b) - len(header)
			if body == 0 {
				break
			}
			p := len(header) + (int(blows[1])<<8|int(blows[2]))%body
			n := min(int(blows[3]), len(b)-p)
			switch blows[0] % 4 {
			case 0: // cut
				b, origin = b[:p], origin[:p]
			case 1: // flip
				if blows[3] != 0 {
					b[p] ^= blows[3]
					origin[p] = -1
				}
			case 2: // remove
				b, origin = slices.Delete(b, p, p+n), slices.Delete(origin, p, p+n)
			case 3: // double
				b, origin = slices.Insert(b, p, bytes.Clone(b[p:p+n])...), slices.Insert(origin, p, slices.Clone(origin[p:p+n])...)
			}
		}
		// Untouched: all bytes of a record, after the end of another record, up to a zero or the end.
		var want []int
		for p := len(header); p < len(b); p++ {
			i := slices.Index(at, origin[p])
			if i < 0 || i == len(records) || b[p-1] != 0 && p > len(header) {
				continue
			}
			n := at[i+1] - at[i] - 1 // without its zero
			untouched := p+n <= len(b) && (p+n == len(b) || b[p+n] == 0)
			for k := 0; untouched && k < n; k++ {
				untouched = origin[p+k] == at[i]+k
			}
			if untouched {
				want = append(want, i)
			}
		}
		var got []int
		lost, zeros := int64(0), 0
		r := NewReader("j", bytes.NewReader(b))
		read := int64(len(header))
		for {
			rec, err := r.Next()
			if d, ok := errors.AsType[*Damage](err); ok {
				lost += d.Bytes
				continue
			} else if errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				t.Fatal(err)
			}
			i, ok := known[string(AppendRecord(nil, rec))]
			if !ok {
				t.Fatalf("a record that was never written: %+v", rec)
			}
			got = append(got, i)
			read += int64(at[i+1] - at[i])
		}
		if !isSubsequence(want, got) {
			t.Fatalf("untouched are %v, read were %v", want, got)
		}
		// Each byte belongs to a record, is lost, or is a single zero before a readable record; the last record may lack its own.
		for p := len(header); p < len(b); p++ {
			if b[p] == 0 && (p == len(header) || b[p-1] == 0) {
				zeros++
			}
		}
		rest := int64(len(b)) - read - lost - r.Torn().Bytes
		if rest < -1 || rest > int64(zeros) {
			t.Fatalf("%d bytes: %d read, %d damaged, %d torn, %d zeros without a record before them; %d bytes are not accounted for",
				len(b), read, lost, r.Torn().Bytes, zeros, rest)
		}
	})
}

// isSubsequence reports whether the list all has all elements of part, in the same order.
func isSubsequence(part, all []int) bool {
	for _, v := range all {
		if len(part) > 0 && part[0] == v {
			part = part[1:]
		}
	}
	return len(part) == 0
}
