// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package parquetrows

import (
	"bytes"
	"encoding/binary"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/parquet-go/parquet-go"
)

// TestHostileMetadata: no metadata makes the reader use memory or stack without bound. Each of these files ended the process.
func TestHostileMetadata(t *testing.T) {
	footer := func(content string) []byte {
		return slices.Concat([]byte(Magic), []byte(content), binary.LittleEndian.AppendUint32(nil, uint32(len(content))), []byte(Magic))
	}
	const many = "\xfc\xff\xff\xff\xff\x07" // 2^31-1 structures
	page := func(head string) []byte {
		file := written(t, row{Signed: 1}, row{Signed: 2})
		r, err := parquet.OpenFile(bytes.NewReader(file), int64(len(file)))
		if err != nil {
			t.Fatal(err)
		}
		meta := r.Metadata().RowGroups[0].Columns[0].MetaData
		at := meta.DataPageOffset
		return append(append(bytes.Clone(file[:at]), head...), file[at+int64(len(head)):]...)
	}
	for what, c := range map[string]struct {
		file []byte
		want string
	}{
		"a list longer than the file":    {footer("\x15\x04\x19" + many), damaged},
		"a map longer than the file":     {footer("\xfb\xff\xff\xff\xff\x07\x88"), damaged},
		"a text longer than the file":    {footer("\xf8\xff\xff\xff\xff\x07"), damaged},
		"lists in lists":                 {footer("\xf9" + strings.Repeat("\x19", 1<<20)), "more metadata than any trace needs"},
		"structures in structures":       {footer(strings.Repeat("\xfc", 1<<20)), "more metadata than any trace needs"},
		"millions of empty structures":   {footer("\x49\xfc\x80\x80\x80\x01" + strings.Repeat("\x00", 2<<20)), "more metadata than any trace needs"},
		"millions of empty texts":        {footer("\x59\xf8\x80\x80\x80\x04" + strings.Repeat("\x00", 8<<20)), "more metadata than any trace needs"},
		"a hundred thousand columns":     {footer("\x29\xfc\xa0\x8d\x06" + strings.Repeat("\x00", 100_000)), "more metadata than any trace needs"},
		"an unknown type":                {footer("\x1d"), damaged},
		"lists in lists of a page":       {page("\xf9" + strings.Repeat("\x19", 100)), "more metadata than any trace needs"},
		"a page of 2 GiB":                {page("\x15\x00\x15\xfe\xff\xff\xff\x0f\x15\x02\x00"), "a page of 2147483647"},
		"a page of 2,000,000,000 values": {page("\x15\x00\x15\x02\x15\x02\x2c\x15\x80\xd0\xac\xf3\x0e\x00\x00"), "a page of 2000000000"},
		"a page of negative size":        {page("\x15\x00\x15\x02\x15\x01\x00"), damaged},
	} {
		_, err := New(bytes.NewReader(c.file), int64(len(c.file)))
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", what, err, c.want)
		}
	}
}

// TestLongRows: a row with more values than any trace has is an error, also in a file of few bytes; with less, fewer rows are in memory.
func TestLongRows(t *testing.T) {
	type list struct {
		Plain []int64 `parquet:"plain"`
	}
	open := func(lengths ...int) (*Reader, error) {
		var file bytes.Buffer
		w := parquet.NewGenericWriter[list](&file, parquet.Compression(&parquet.Zstd))
		for _, n := range lengths {
			if _, err := w.Write([]list{{make([]int64, n)}}); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		return New(bytes.NewReader(file.Bytes()), int64(file.Len()))
	}
	if _, err := open(1, maxRowValues+1, 1); err == nil || !strings.Contains(err.Error(), "no trace has such a row") {
		t.Errorf("too long: %v", err)
	}
	for _, c := range []struct{ length, rows, batch int }{{10, 1000, batchRows}, {maxRowValues / 8, 9, 8}, {maxRowValues, 1, 1}} {
		r, err := open(slices.Repeat([]int{c.length}, c.rows)...)
		if err != nil {
			t.Fatal(err)
		}
		if len(r.rows) != c.batch {
			t.Errorf("%d rows of %d values: %d at a time, want %d", c.rows, c.length, len(r.rows), c.batch)
		}
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestManyPages: headers of any length and any number of pages are read.
func TestManyPages(t *testing.T) {
	var rows []row
	for i := range 5000 {
		rows = append(rows, row{Bytes: bytes.Repeat([]byte("x"), i), Session: new(strings.Repeat("s", i%2000))})
	}
	file := written(t, rows...)
	r, err := New(bytes.NewReader(file), int64(len(file)))
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(r)
	if n := bytes.Count(text, []byte{'\n'}); n != len(rows) || err != nil {
		t.Errorf("%d rows of %d, %v", n, len(rows), err)
	}
}

// FuzzMetadata: the check of metadata does not panic, and reads no more than there is.
func FuzzMetadata(f *testing.F) {
	f.Add([]byte("\x15\x00\x15\x02\x15\x02\x2c\x15\x02\x00\x00"))
	f.Add([]byte("\x2b\x01\x88\x01a\x01b\x19\x28\x01a\x01b\x17\x00\x00\x00\x00\x00\x00\x00\x00\x11\x12\x13\x01\x1a\x21\x01\x02\x00"))
	f.Fuzz(func(t *testing.T, data []byte) {
		_ = checkFooter(data)
		if p, err := checkPage(data); err == nil && (p.head < 1 || p.head > len(data) || p.compressed < 0) {
			t.Errorf("a header of %d bytes in %d, with %d bytes after it", p.head, len(data), p.compressed)
		}
	})
}
