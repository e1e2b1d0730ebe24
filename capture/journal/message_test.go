// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package journal

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"testing"
)

// readMessage returns the records of a message.
func readMessage(r *MessageReader, b []byte) (records []Record, err error) {
	err = r.Read(b, func(_ []byte, d *Decoder) error {
		records = append(records, d.Record())
		return nil
	})
	return records, err
}

// A message is read as it was written, by the reader of messages and by that of journals, and so are several in one file.
func TestMessage(t *testing.T) {
	records := some(t)
	var r MessageReader
	got, err := readMessage(&r, message(t, records...))
	if err != nil {
		t.Fatal(err)
	}
	equal(t, "message", records, got)
	got, err = readMessage(&r, message(t))
	if err != nil || got != nil || len(message(t)) != MessageOverhead {
		t.Errorf("without records: %v, %v, %d bytes", got, err, len(message(t)))
	}
	for _, between := range []string{"", "\n"} {
		var file []byte
		for part := range slices.Chunk(records, 3) {
			file = append(append(file, message(t, part...)...), between...)
		}
		got, damage, torn := readAll(t, file)
		if damage != nil || torn != (Torn{}) {
			t.Errorf("messages with %q between: damage %v, torn %v", between, damage, torn)
		}
		equal(t, "file of messages", records, got)
	}
}

// Bytes that are not a whole message are an error that says so, for each byte where it can be cut off or changed.
func TestMessageDamage(t *testing.T) {
	whole := message(t, some(t)[1:5]...)
	var r MessageReader
	for n := range whole {
		if _, err := readMessage(&r, whole[:n]); err == nil {
			t.Fatalf("%d of %d bytes are a message", n, len(whole))
		}
		b := bytes.Clone(whole)
		b[n] ^= 0x20
		if _, err := readMessage(&r, b); err == nil {
			t.Fatalf("bytes are a message although byte %d was changed", n)
		}
	}
	large := appendPlain(append([]byte(header), 0), make([]byte, MaxRecord+1))
	for _, c := range []struct {
		why, want string
		bytes     []byte
	}{
		{"something follows", "something follows its end", append(bytes.Clone(whole), 0)},
		{"two messages", "something follows its end", append(bytes.Clone(whole), whole...)},
		{"a journal", "no 0 after the header", journal(some(t)...)},
		{"a later version", "version 1", []byte("moonloop-journal 3\n\x00rest")},
		{"something else", "does not begin like one", []byte("{\"resourceSpans\":[]}")},
		{"nothing", "does not begin like one", nil},
		{"a record that is too large", "", large},
		{"a record of an unknown kind", "unknown kind", appendPlain(append([]byte(header), 0), bytes.Repeat([]byte{'X'}, headLength))},
		{"a list without an end", "record ends within", appendPlain(append([]byte(header), 0), append(AppendRecord(nil, &Link{Span: ref(1, 1)}), tagFollows, 1))},
	} {
		_, err := readMessage(&r, c.bytes)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", c.why, err)
		}
	}
	if _, err := readMessage(&r, []byte("moonloop-journal 3\n")); !errors.Is(err, ErrNotJournal) {
		t.Errorf("a later version: %v", err)
	}
}

// FuzzMessage reads arbitrary bytes as a message. Without an error, they are the encoding of its records, so a message contains nothing
// else.
func FuzzMessage(f *testing.F) {
	f.Add(message(f, some(f)...))
	f.Add(message(f))
	f.Add([]byte(header + "\x00\x02E"))
	f.Fuzz(func(t *testing.T, b []byte) {
		given := bytes.Clone(b)
		var r MessageReader
		var again Batch
		err := r.Read(b, func(record []byte, d *Decoder) error {
			own := d.Record()
			if err := new(Decoder).Decode(record); err != nil {
				t.Fatalf("%x was visited: %v", record, err)
			}
			return again.Add(own)
		})
		if !bytes.Equal(b, given) {
			t.Fatal("the message was changed")
		}
		records, damage, torn := countAll(b)
		if err == nil && (damage > 0 || torn != (Torn{}) || records != again.Len()) {
			t.Fatalf("%d records without an error; as a journal %d, %d damaged stretches, %v", again.Len(), records, damage, torn)
		}
	})
}

// countAll counts the content of a journal. It reads to the end, or to the first bytes that are not a journal.
func countAll(b []byte) (records, damages int, torn Torn) {
	r := NewReader("j", bytes.NewReader(b))
	for {
		_, err := r.Next()
		d := (*Damage)(nil)
		switch {
		case err == nil:
			records++
		case errors.As(err, &d):
			damages++
		default:
			return records, damages, r.Torn()
		}
	}
}
