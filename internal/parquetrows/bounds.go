// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package parquetrows

// This file checks a file's metadata before the library decodes it. The library allocates as many elements as a list announces, and skips
// fields that it does not know by recursion. A process that is out of memory or of stack ends, and cannot recover as from a panic.

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/parquet-go/parquet-go"
)

const (
	// maxSchema is the maximum number of columns and of groups of columns, which may be nested.
	maxSchema = 10_000
	// maxStructs is the maximum number of structures in lists of the metadata. Each needs up to 0.5 KiB in memory.
	maxStructs = 1 << 20
	// maxElements is the maximum number of other elements of lists and maps, of up to 16 bytes each.
	maxElements = 1 << 22
	// maxDepth is the maximum depth of the metadata; the format needs less than half of it.
	maxDepth = 32
	// maxPage is the maximum size of a page when decompressed, in bytes, and maxValues of its values.
	maxPage   = 1 << 28
	maxValues = 1 << 24
	// maxFileValues is the maximum number of values of a file, and maxRowValues of a row. A value needs some 100 bytes in memory.
	maxFileValues = 1 << 31
	maxRowValues  = 1 << 22
	// maxBatch bounds the largest page times the rows of a batch, in bytes: each of the rows may have a text as long as that page.
	maxBatch = 1 << 28
	// pageHead and maxPageHead are the bytes that are first read to find the end of a page's header, and the most that are read.
	pageHead, maxPageHead = 512, 1 << 20
)

// schemaField is the field of a footer that has the columns. The others are fields of a page's header: its sizes, and the structures with
// the number of its values as their first field.
const (
	schemaField                                 = 2
	decompressedField, compressedField          = 2, 3
	dataPageField, dictionaryField, dataV2Field = 5, 7, 8
)

// Types of thrift's compact protocol.
const (
	compactTrue   = 1
	compactFalse  = 2
	compactByte   = 3
	compactInt64  = 6 // also 4 and 5, of fewer bits
	compactDouble = 7
	compactBinary = 8
	compactList   = 9
	compactSet    = 10
	compactMap    = 11
	compactStruct = 12
)

var (
	errShort = errors.New("the metadata is cut off")
	errBound = errors.New("the Parquet file has more metadata than any trace needs: write it with fewer columns and larger row groups")
)

// metadata walks over a structure of thrift's compact protocol.
type metadata struct {
	data              []byte
	at                int
	structs, elements int
	// field is called with each number, and with the length of each list, in the outer structure (of 0) and in the structures that are fields
	// of it (of their field).
	field func(of, id int, n int64) error
}

func (m *metadata) left() int { return len(m.data) - m.at }

func (m *metadata) byte() (byte, error) {
	if m.left() == 0 {
		return 0, errShort
	}
	m.at++
	return m.data[m.at-1], nil
}

func (m *metadata) uvarint() (uint64, error) {
	v, n := binary.Uvarint(m.data[m.at:])
	switch {
	case n == 0:
		return 0, errShort
	case n < 0:
		return 0, errors.New(damaged)
	}
	m.at += n
	return v, nil
}

func (m *metadata) varint() (int64, error) {
	v, err := m.uvarint()
	return int64(v>>1) ^ -int64(v&1), err
}

// size reads the number of a container's elements or of a text's bytes. Each of them has at least one byte.
func (m *metadata) size() (int, error) {
	n, err := m.uvarint()
	if err == nil && n > uint64(m.left()) { //nolint:gosec // not negative
		err = errShort
	}
	return int(n), err //nolint:gosec // at most left
}

// structure walks over the fields of a structure. If it is a field of the outer one, of is the number of that field.
func (m *metadata) structure(depth, of int) error {
	if depth > maxDepth {
		return errBound
	}
	id := 0
	for {
		head, err := m.byte()
		if err != nil || head == 0 {
			return err
		}
		if delta := int(head >> 4); delta != 0 {
			id += delta
		} else {
			v, err := m.varint()
			if err != nil {
				return err
			}
			id = int(int16(v)) //nolint:gosec // as the library reads it
		}
		report := depth == 0 || depth == 1 && of != 0
		n, counted, err := m.value(head&0xf, depth, id, false)
		if err == nil && counted && report {
			err = m.field(of, id, n)
		}
		if err != nil {
			return err
		}
	}
}

// value walks over a value of a type. It returns a number or the length of a list, and whether it is one of these.
func (m *metadata) value(kind byte, depth, id int, inList bool) (n int64, counted bool, err error) {
	if depth > maxDepth {
		return 0, false, errBound
	}
	switch kind {
	case compactTrue, compactFalse:
		if inList {
			_, err = m.byte()
		}
		return 0, false, err
	case compactByte:
		_, err = m.byte()
		return 0, false, err
	case compactByte + 1, compactByte + 2, compactInt64:
		n, err = m.varint()
		return n, true, err
	case compactDouble, compactBinary:
		size := 8
		if kind == compactBinary {
			size, err = m.size()
		}
		if err == nil && size > m.left() {
			err = errShort
		}
		if err == nil {
			m.at += size
		}
		return 0, false, err
	case compactList, compactSet:
		n, err := m.list(depth)
		return int64(n), true, err
	case compactMap:
		return 0, false, m.dictionary(depth)
	case compactStruct:
		of := 0
		if depth == 0 && !inList {
			of = id
		}
		return 0, false, m.structure(depth+1, of)
	}
	return 0, false, errors.New(damaged)
}

// list walks over a list, and returns its length.
func (m *metadata) list(depth int) (int, error) {
	head, err := m.byte()
	if err != nil {
		return 0, err
	}
	n := int(head >> 4)
	if n == 15 {
		if n, err = m.size(); err != nil {
			return 0, err
		}
	}
	kind := head & 0xf
	if err := m.count(kind, n); err != nil {
		return 0, err
	}
	for range n {
		if _, _, err := m.value(kind, depth+1, 0, true); err != nil {
			return 0, err
		}
	}
	return n, nil
}

// dictionary walks over a map.
func (m *metadata) dictionary(depth int) error {
	n, err := m.size()
	if err != nil || n == 0 {
		return err
	}
	kinds, err := m.byte()
	if err != nil {
		return err
	}
	for _, kind := range []byte{kinds >> 4, kinds & 0xf} {
		if err := m.count(kind, n); err != nil {
			return err
		}
	}
	for range n {
		for _, kind := range []byte{kinds >> 4, kinds & 0xf} {
			if _, _, err := m.value(kind, depth+1, 0, true); err != nil {
				return err
			}
		}
	}
	return nil
}

// count counts n elements of a container.
func (m *metadata) count(kind byte, n int) error {
	if kind == compactStruct {
		m.structs += n
	} else {
		m.elements += n
	}
	if m.structs > maxStructs || m.elements > maxElements {
		return errBound
	}
	return nil
}

// checkFooter returns an error for a footer that the library must not decode.
func checkFooter(footer []byte) error {
	m := metadata{data: footer, field: func(of, id int, n int64) error {
		if of == 0 && id == schemaField && n > maxSchema {
			return errBound
		}
		return nil
	}}
	if err := m.structure(0, 0); errors.Is(err, errShort) {
		return errors.New(damaged)
	} else if err != nil {
		return err
	}
	return nil
}

// checkPages returns an error if the header of a page must not be decoded, a page must not be decompressed, or a row has too many values.
// Otherwise, it returns the number of rows that may be in memory at a time.
func checkPages(in io.ReaderAt, size int64, file *parquet.File) (batch int, err error) {
	var total, values, longest int64 // bytes and values of the file, and the values of its longest row
	largest := int64(1)              // page, in bytes
	for i, group := range file.Metadata().RowGroups {
		var row int64             // the maximum number of values in a row
		var repeated map[int]bool // columns that may have several of them
		for j := range group.Columns {
			c := &group.Columns[j].MetaData
			from, n := c.DataPageOffset, c.TotalCompressedSize
			if c.DictionaryPageOffset != 0 {
				from = c.DictionaryPageOffset
			}
			// Columns that share bytes could make the file as long as they like.
			if from < 0 || n < 0 || n > size-total {
				return 0, errors.New(damaged)
			}
			total += n
			p, err := checkColumn(io.NewSectionReader(in, from, n))
			if err != nil {
				return 0, err
			}
			largest = max(largest, p.largest)
			if values += p.values; values > maxFileValues {
				return 0, errBound
			}
			if more := p.values - max(group.NumRows, 1) + 1; more > 1 {
				if repeated == nil {
					repeated = map[int]bool{}
				}
				repeated[j] = true
				row += more
			}
		}
		if row > maxRowValues { // if the other rows have one value
			row, err = longestRow(file.RowGroups()[i], repeated)
			if err != nil {
				return 0, err
			}
		}
		longest = max(longest, row)
	}
	return int(min(batchRows, max(1, maxBatch/largest), maxRowValues/max(1, longest))), nil
}

// longestRow counts the values of the longest row in some columns of a group.
func longestRow(group parquet.RowGroup, columns map[int]bool) (all int64, err error) {
	buffer := make([]parquet.Value, 1024)
	for i, c := range group.ColumnChunks() {
		if !columns[i] {
			continue
		}
		n, err := longestOf(c, buffer)
		if err != nil {
			return 0, err
		}
		if all += n; all > maxRowValues {
			return 0, fmt.Errorf("a row of the Parquet file has more than %d values: no trace has such a row", maxRowValues)
		}
	}
	return all, nil
}

// longestOf counts the values of the longest row in a column, up to a little more than maxRowValues.
func longestOf(column parquet.ColumnChunk, buffer []parquet.Value) (longest int64, err error) {
	pages := column.Pages()
	defer func() { _ = pages.Close() }() // it was only read
	for row := int64(0); longest <= maxRowValues; {
		page, err := pages.ReadPage()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return 0, fmt.Errorf("%s: %w", damaged, err)
		}
		for values := page.Values(); err == nil && longest <= maxRowValues; {
			var n int
			n, err = values.ReadValues(buffer)
			for _, v := range buffer[:n] {
				if v.RepetitionLevel() == 0 {
					row = 0
				}
				row++
				longest = max(longest, row)
			}
		}
		parquet.Release(page)
		if err != nil && !errors.Is(err, io.EOF) {
			return 0, fmt.Errorf("%s: %w", damaged, err)
		}
	}
	return longest, nil
}

// pages describes the pages of a column.
type pages struct{ values, largest int64 }

// checkColumn checks the pages of a column.
func checkColumn(column *io.SectionReader) (all pages, err error) {
	head := make([]byte, pageHead)
	for at := int64(0); at < column.Size(); {
		n, err := column.ReadAt(head, at)
		if err != nil && !errors.Is(err, io.EOF) {
			return all, err
		}
		if n == 0 {
			break // it is cut off, as reading it shows
		}
		p, err := checkPage(head[:n])
		switch {
		case errors.Is(err, errShort) && n < len(head):
			return all, nil // likewise
		case errors.Is(err, errShort) && len(head) < maxPageHead:
			head = make([]byte, 2*len(head))
			continue
		case errors.Is(err, errShort):
			return all, errBound
		case err != nil:
			return all, err
		}
		at += int64(p.head) + p.compressed
		all.values += p.values
		all.largest = max(all.largest, p.decompressed)
	}
	return all, nil
}

// page is what the header of a page says: the sizes of the header, of what follows, and of that when it is decompressed, in bytes; and the
// number of its values, except for those of a dictionary.
type page struct {
	head                     int
	compressed, decompressed int64
	values                   int64
}

// checkPage checks the header of a page.
func checkPage(head []byte) (p page, err error) {
	m := metadata{data: head, field: func(of, id int, n int64) error {
		most := int64(maxPage)
		switch {
		case of == 0 && id == compressedField:
			p.compressed = n
		case of == 0 && id == decompressedField:
			p.decompressed = n
		case id == 1 && (of == dataPageField || of == dataV2Field):
			p.values, most = n, maxValues
		case id == 1 && of == dictionaryField:
			most = maxValues
		default:
			return nil
		}
		switch {
		case n < 0:
			return errors.New(damaged)
		case n > most:
			return fmt.Errorf("the Parquet file has a page of %d bytes or values: write it with smaller pages", n)
		}
		return nil
	}}
	err = m.structure(0, 0)
	p.head = m.at
	return p, err
}
