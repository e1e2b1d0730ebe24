// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

// Package parquetrows reads a Parquet file as JSON lines, an object for each row, so that every reader of JSON lines can read Parquet, too.
//
// Columns keep their names, and absent values are left out. Unsigned integers stay unsigned. Dates and timestamps are texts in the form
// of RFC 3339, in UTC. Decimals are numbers; of those that are stored as integers, the library preserves about 7 digits (INT32) or 15 (INT64).
// Texts in the columns that JSONColumns names are JSON. Bytes that are not UTF-8 are base64, and numbers that JSON does not have are absent.
package parquetrows

import (
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"math/big"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/deprecated"
	"github.com/parquet-go/parquet-go/format"
)

// Magic is the beginning and the end of a file.
const Magic = "PAR1"

// JSONColumns is the key in a file's metadata that names the columns whose texts contain JSON, separated by commas.
const JSONColumns = "moonloop.json_columns"

// Bounds. A footer names each column of each row group, and is in memory as a whole.
const (
	maxFooter = 64 << 20
	batchRows = 256
)

// damaged is the error for a malformed file.
const damaged = "the Parquet file is damaged or cut off: use a complete copy of the file"

// Reader is a file as JSON lines. It implements [io.Reader].
type Reader struct {
	in   *parquet.GenericReader[any]
	root parquet.Node
	json []string // columns that hold JSON
	rows []any    // a batch
	next []any    // the rows of the batch that are not lines yet
	line []byte   // the unread part of the line made last
	done int64    // rows read
	end  error    // after the rows of the batch
	err  error
}

// New opens a file of this many bytes.
func New(in io.ReaderAt, size int64) (r *Reader, err error) {
	defer guard(&err)
	var tail [8]byte
	if _, err := in.ReadAt(tail[:], size-int64(len(tail))); err != nil || string(tail[4:]) != Magic {
		return nil, errors.New(damaged)
	}
	n := int64(binary.LittleEndian.Uint32(tail[:]))
	if n > maxFooter {
		return nil, fmt.Errorf("the Parquet file has %d bytes of metadata, and %d are read at most: write it with larger row groups", n, maxFooter)
	}
	footer := make([]byte, min(n, size))
	if _, err := in.ReadAt(footer, size-int64(len(tail))-n); err != nil {
		return nil, errors.New(damaged)
	}
	if err := checkFooter(footer); err != nil {
		return nil, err
	}
	file, err := parquet.OpenFile(in, size, parquet.SkipBloomFilters(true), parquet.SkipPageIndex(true))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", damaged, err)
	}
	if err := checkDecimals(file.Schema()); err != nil {
		return nil, err
	}
	batch, err := checkPages(in, size, file)
	if err != nil {
		return nil, err
	}
	names, _ := file.Lookup(JSONColumns)
	return &Reader{in: parquet.NewGenericReader[any](file), root: file.Schema(), json: strings.Split(names, ","), rows: make([]any, batch)}, nil
}

// guard converts a panic to an error: the library panics on some damaged files.
func guard(err *error) {
	if p := recover(); p != nil {
		*err = fmt.Errorf("%s: %v", damaged, p)
	}
}

// Read returns bytes of the lines.
func (r *Reader) Read(p []byte) (n int, err error) {
	for len(r.line) == 0 {
		if r.err != nil {
			return 0, r.err
		}
		r.fill()
	}
	n = copy(p, r.line)
	r.line = r.line[n:]
	return n, nil
}

// fill makes the line of the next row. There is one line at a time: those of a batch may share a text that is in memory only once.
func (r *Reader) fill() {
	defer guard(&r.err)
	if len(r.next) == 0 {
		if r.err = r.end; r.err == nil {
			r.read()
		}
	}
	if len(r.next) > 0 {
		r.line = append(appendGroup(r.line[:0], r.root, r.next[0], r.json), '\n')
		r.next[0] = nil
		r.next = r.next[1:]
	}
}

// read reads a batch of rows.
func (r *Reader) read() {
	clear(r.rows)
	n, err := r.in.Read(r.rows)
	r.next = r.rows[:n]
	r.done += int64(n)
	switch {
	case errors.Is(err, io.EOF):
		r.end = io.EOF
		if want := r.in.NumRows(); r.done < want { // the library takes damage for the end
			r.end = fmt.Errorf("%s: it has %d rows of %d", damaged, r.done, want)
		}
	case err != nil:
		r.end = fmt.Errorf("%s: after row %d: %w", damaged, r.done, err)
	case n == 0:
		r.end = errors.New(damaged)
	}
}

// Close ends the reading. The file belongs to the caller.
func (r *Reader) Close() (err error) {
	defer guard(&err)
	return r.in.Close()
}

// appendGroup appends an object, some of whose members contain JSON.
func appendGroup(dst []byte, node parquet.Node, value any, holdJSON []string) []byte {
	members, _ := value.(map[string]any)
	dst = append(dst, '{')
	first := true
	for _, field := range node.Fields() {
		v := plain(members[field.Name()])
		if v == nil {
			continue
		}
		if !first {
			dst = append(dst, ',')
		}
		first = false
		dst = append(appendText(dst, field.Name()), ':')
		if text, ok := textOf(v); ok && slices.Contains(holdJSON, field.Name()) {
			if raw := jsontext.Value(text); raw.Compact() == nil { // on one line
				dst = append(dst, raw...)
				continue
			}
		}
		dst = appendValue(dst, field, v)
	}
	return append(dst, '}')
}

// plain returns a value without pointers; nil for null and for numbers that JSON does not have.
func plain(v any) any {
	for r := reflect.ValueOf(v); r.Kind() == reflect.Pointer; r = reflect.ValueOf(v) {
		if r.IsNil() {
			return nil
		}
		v = r.Elem().Interface()
	}
	switch f := v.(type) {
	case float64:
		if math.IsNaN(f) || math.IsInf(f, 0) {
			return nil
		}
	case float32:
		if math.IsNaN(float64(f)) || math.IsInf(float64(f), 0) {
			return nil
		}
	}
	return v
}

// appendValue appends a value of a node.
func appendValue(dst []byte, node parquet.Node, value any) []byte {
	if list, ok := value.([]any); ok {
		return appendList(dst, element(node), list)
	}
	if !node.Leaf() {
		if object, ok := value.(map[string]any); ok && isMap(node) {
			return appendMap(dst, node, object)
		}
		return appendGroup(dst, node, value, nil)
	}
	var logical format.LogicalTypeValue
	if t := node.Type().LogicalType(); t != nil {
		logical = t.Value
	}
	switch v := value.(type) {
	case bool:
		return strconv.AppendBool(dst, v)
	case int32:
		return appendWhole(dst, logical, int64(v), uint64(uint32(v))) //nolint:gosec // the bits of an unsigned number
	case int64:
		return appendWhole(dst, logical, v, uint64(v)) //nolint:gosec // likewise
	case uint32:
		return strconv.AppendUint(dst, uint64(v), 10)
	case uint64:
		return strconv.AppendUint(dst, v, 10)
	case float32:
		return strconv.AppendFloat(dst, float64(v), 'g', -1, 32)
	case float64:
		return strconv.AppendFloat(dst, v, 'g', -1, 64)
	case big.Float: // a decimal that is stored as bytes
		if decimal, ok := logical.(*format.DecimalType); ok && decimal.Scale > 0 {
			text := v.Text('f', int(decimal.Scale))
			return append(dst, strings.TrimSuffix(strings.TrimRight(text, "0"), ".")...)
		}
		return v.Append(dst, 'f', 0)
	case deprecated.Int96:
		return appendText(dst, instant(v).Format(time.RFC3339Nano))
	case time.Time:
		return appendText(dst, v.UTC().Format(time.RFC3339Nano))
	case string:
		return appendText(dst, v)
	case []byte:
		return appendText(dst, string(v))
	}
	return appendText(dst, fmt.Sprint(value))
}

// textOf returns a text, which the library may return as bytes.
func textOf(v any) (text string, ok bool) {
	switch v := v.(type) {
	case string:
		return v, true
	case []byte:
		return string(v), true
	}
	return "", false
}

// maxScale is the maximum number of digits of a decimal after the point. The library computes this power of ten for each value.
const maxScale = 76

// checkDecimals returns an error if a column has decimals with more digits.
func checkDecimals(node parquet.Node) error {
	if !node.Leaf() {
		for _, field := range node.Fields() {
			if err := checkDecimals(field); err != nil {
				return err
			}
		}
		return nil
	}
	if t := node.Type().LogicalType(); t != nil {
		if decimal, is := t.Value.(*format.DecimalType); is && (decimal.Scale < 0 || decimal.Scale > maxScale) {
			return fmt.Errorf("the Parquet file has decimals with %d digits after the point, and %d are read at most: write it with floats", decimal.Scale, maxScale)
		}
	}
	return nil
}

// appendWhole appends a number, or the time that it means.
func appendWhole(dst []byte, logical format.LogicalTypeValue, v int64, unsigned uint64) []byte {
	switch t := logical.(type) {
	case *format.IntType:
		if !t.IsSigned {
			return strconv.AppendUint(dst, unsigned, 10)
		}
	case *format.DateType:
		return appendText(dst, time.Unix(0, 0).UTC().AddDate(0, 0, int(v)).Format(time.DateOnly))
	case *format.TimestampType:
		at := time.Unix(0, v)
		switch t.Unit.Value.(type) {
		case *format.MilliSeconds:
			at = time.UnixMilli(v)
		case *format.MicroSeconds:
			at = time.UnixMicro(v)
		}
		return appendText(dst, at.UTC().Format(time.RFC3339Nano))
	}
	return strconv.AppendInt(dst, v, 10)
}

// instant returns the time of a timestamp in old files, which consists of the nanoseconds of a day and the Julian day.
func instant(v deprecated.Int96) time.Time {
	const julianOf1970 = 2440588
	nanos := int64(v[1])<<32 | int64(v[0])
	return time.Unix(0, 0).UTC().AddDate(0, 0, int(v[2])-julianOf1970).Add(time.Duration(nanos))
}

// element returns the node of the values of a list.
func element(node parquet.Node) parquet.Node {
	if node.Leaf() || node.Repeated() { // as old files have it
		return node
	}
	inner := node.Fields()[0]
	if fields := inner.Fields(); !inner.Leaf() && len(fields) == 1 && inner.Name() != "array" && !strings.HasSuffix(inner.Name(), "_tuple") {
		return fields[0]
	}
	return inner
}

func appendList(dst []byte, of parquet.Node, list []any) []byte {
	dst = append(dst, '[')
	for i, v := range list {
		if i > 0 {
			dst = append(dst, ',')
		}
		if v = plain(v); v == nil {
			dst = append(dst, "null"...)
			continue
		}
		dst = appendValue(dst, of, v)
	}
	return append(dst, ']')
}

// isMap reports whether a group is a map of texts, whose entries are its members.
func isMap(node parquet.Node) bool {
	t := node.Type().LogicalType()
	if t == nil {
		return false
	}
	_, is := t.Value.(*format.MapType)
	return is
}

func appendMap(dst []byte, node parquet.Node, object map[string]any) []byte {
	value := node.Fields()[0].Fields()[1]
	names := make([]string, 0, len(object))
	for name := range object {
		names = append(names, name)
	}
	slices.Sort(names)
	dst = append(dst, '{')
	for i, name := range names {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(appendText(dst, name), ':')
		if v := plain(object[name]); v == nil {
			dst = append(dst, "null"...)
		} else {
			dst = appendValue(dst, value, v)
		}
	}
	return append(dst, '}')
}

// appendText appends a JSON string.
func appendText(dst []byte, s string) []byte {
	if !utf8.ValidString(s) {
		s = base64.StdEncoding.EncodeToString([]byte(s))
	}
	dst, _ = jsontext.AppendQuote(dst, s) // which fails only for invalid UTF-8
	return dst
}
