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

	"github.com/parquet-go/parquet-go/format"
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
	maxValues = 1 << 26
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

// checkPages returns an error if the header of a page must not be decoded, or a page must not be decompressed.
func checkPages(in io.ReaderAt, size int64, footer *format.FileMetaData) error {
	var total int64
	for _, group := range footer.RowGroups {
		for i := range group.Columns {
			c := &group.Columns[i].MetaData
			from, n := c.DataPageOffset, c.TotalCompressedSize
			if c.DictionaryPageOffset != 0 {
				from = c.DictionaryPageOffset
			}
			// Columns that share bytes could make the file as long as they like.
			if from < 0 || n < 0 || n > size-total {
				return errors.New(damaged)
			}
			total += n
			if err := checkColumn(io.NewSectionReader(in, from, n)); err != nil {
				return err
			}
		}
	}
	return nil
}

// checkColumn checks the pages of a column.
func checkColumn(column *io.SectionReader) error {
	head := make([]byte, pageHead)
	for at := int64(0); at < column.Size(); {
		n, err := column.ReadAt(head, at)
		if err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		if n == 0 {
			return nil // it is cut off, as reading it shows
		}
		length, compressed, err := checkPage(head[:n])
		switch {
		case errors.Is(err, errShort) && n < len(head):
			return nil // likewise
		case errors.Is(err, errShort) && len(head) < maxPageHead:
			head = make([]byte, 2*len(head))
			continue
		case errors.Is(err, errShort):
			return errBound
		case err != nil:
			return err
		}
		at += int64(length) + compressed
	}
	return nil
}

// checkPage checks the header of a page. It returns the size of the header and of what follows it.
func checkPage(head []byte) (length int, compressed int64, err error) {
	m := metadata{data: head, field: func(of, id int, n int64) error {
		values := (of == dataPageField || of == dictionaryField || of == dataV2Field) && id == 1
		switch {
		case of == 0 && id == compressedField:
			compressed = n
		case of == 0 && id == decompressedField && n > maxPage, values && n > maxValues:
			return fmt.Errorf("the Parquet file has a page of %d bytes or values: write it with smaller pages", n)
		}
		return nil
	}}
	err = m.structure(0, 0)
	if err == nil && compressed < 0 {
		err = errors.New(damaged)
	}
	return m.at, compressed, err
}
