// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package parquetrows

import (
	"bytes"
	"io"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/parquet-go/parquet-go"
)

type part struct {
	Text  string   `parquet:"text"`
	Words []string `parquet:"words,list"`
}

type row struct {
	At      time.Time        `parquet:"at,timestamp(microsecond)"`
	Day     int32            `parquet:"day,date"`
	Signed  int64            `parquet:"signed"`
	Small   *uint32          `parquet:"small,optional"`
	IDs     []uint64         `parquet:"hash_ids,list"`
	Plain   []int64          `parquet:"plain"`
	Parts   []part           `parquet:"parts,list"`
	One     *part            `parquet:"one,optional"`
	Map     map[string]int64 `parquet:"map"`
	Share   float64          `parquet:"share"`
	Half    float32          `parquet:"half"`
	Yes     bool             `parquet:"yes"`
	Session *string          `parquet:"Session ID,optional"`
	Bytes   []byte           `parquet:"bytes"`
}

func written(t testing.TB, rows ...row) []byte {
	t.Helper()
	var file bytes.Buffer
	w := parquet.NewGenericWriter[row](&file, parquet.MaxRowsPerRowGroup(300), parquet.PageBufferSize(512))
	if _, err := w.Write(rows); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return file.Bytes()
}

func TestRows(t *testing.T) {
	file := written(t, row{
		At: time.Date(2026, 11, 24, 18, 0, 0, 123456000, time.UTC), Day: 20455, Signed: -1 << 63, Small: new(uint32(1<<32 - 1)),
		IDs: []uint64{1<<64 - 1, 0, 1 << 53}, Plain: []int64{-1, 2}, Parts: []part{{"a \"b\"\n", []string{"x", "y"}}, {"", nil}}, One: &part{Text: "z"},
		Map: map[string]int64{"b": 2, "a": -1}, Share: 0.1, Half: 0.1, Yes: true, Session: new("s"), Bytes: []byte{0xff},
	}, row{At: time.UnixMicro(0), Share: math.NaN(), Bytes: []byte("text")})
	r, err := New(bytes.NewReader(file), int64(len(file)))
	if err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	want := `{"at":"2026-11-24T18:00:00.123456Z","day":"2026-01-02","signed":-9223372036854775808,"small":4294967295,"hash_ids":[18446744073709551615,0,9007199254740992],` +
		`"plain":[-1,2],"parts":[{"text":"a \"b\"\n","words":["x","y"]},{"text":"","words":[]}],"one":{"text":"z","words":[]},"map":{"a":-1,"b":2},` +
		`"share":0.1,"half":0.1,"yes":true,"Session ID":"s","bytes":"/w=="}` + "\n" +
		`{"at":"1970-01-01T00:00:00Z","day":"1970-01-01","signed":0,"hash_ids":[],"plain":[],"parts":[],"map":{},"half":0,"yes":false,"bytes":"text"}` + "\n"
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if err := r.Close(); err != nil {
		t.Error(err)
	}
}

// TestDamage: reading a damaged file ends with an error, or gives rows, but does not panic; a file that is cut off is never read without an
// error.
func TestDamage(t *testing.T) {
	var rows []row
	for i := range 1000 {
		rows = append(rows, row{Signed: int64(i), IDs: []uint64{uint64(i), 7}, Parts: []part{{Text: strings.Repeat("x", i%9)}}, Map: map[string]int64{"k": 1}})
	}
	file := written(t, rows...)
	read := func(file []byte) (lines int, err error) {
		r, err := New(bytes.NewReader(file), int64(len(file)))
		if err != nil {
			return 0, err
		}
		defer func() { _ = r.Close() }()
		text, err := io.ReadAll(r)
		return bytes.Count(text, []byte{'\n'}), err
	}
	if n, err := read(file); n != len(rows) || err != nil {
		t.Fatalf("%d rows, %v", n, err)
	}
	random := rand.New(rand.NewPCG(1, 2))
	for range 300 {
		if n, err := read(file[:random.IntN(len(file))]); err == nil {
			t.Fatalf("a file that is cut off has %d rows", n)
		}
		other := bytes.Clone(file)
		for range 1 + random.IntN(3) {
			other[random.IntN(len(other))] ^= 1 << random.IntN(8)
		}
		_, _ = read(other)
	}
	for _, text := range []string{"", "PAR1", "PAR1PAR1", "PAR1\xff\xff\xff\xffPAR1", "PAR1\x00\x00\x00\x00PAR1"} {
		if _, err := read([]byte(text)); err == nil {
			t.Errorf("%q is accepted", text)
		}
	}
}

// TestDecimals: a decimal column, as databases write for 1.5, has its value, however it is stored.
func TestDecimals(t *testing.T) {
	schema := parquet.NewSchema("rows", parquet.Group{
		"a": parquet.Decimal(3, 9, parquet.Int32Type),
		"b": parquet.Decimal(1, 18, parquet.Int64Type),
		"c": parquet.Decimal(2, 20, parquet.FixedLenByteArrayType(9)),
		"d": parquet.Optional(parquet.Decimal(0, 30, parquet.ByteArrayType)),
	})
	fixed := func(last ...byte) string { // of 9 bytes, negative if the first one is
		sign := "\x00"
		if last[0]&0x80 != 0 {
			sign = "\xff"
		}
		return strings.Repeat(sign, 9-len(last)) + string(last)
	}
	var file bytes.Buffer
	w := parquet.NewWriter(&file, schema)
	for _, row := range []parquet.Row{
		{parquet.Int32Value(1500).Level(0, 0, 0), parquet.Int64Value(-5).Level(0, 0, 1), parquet.FixedLenByteArrayValue([]byte(fixed(0x01, 0x00))).Level(0, 0, 2), parquet.ByteArrayValue([]byte{0x7f}).Level(0, 1, 3)},
		{parquet.Int32Value(-1).Level(0, 0, 0), parquet.Int64Value(0).Level(0, 0, 1), parquet.FixedLenByteArrayValue([]byte(fixed(0xff))).Level(0, 0, 2), parquet.NullValue().Level(0, 0, 3)},
	} {
		if _, err := w.WriteRows([]parquet.Row{row}); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	r, err := New(bytes.NewReader(file.Bytes()), int64(file.Len()))
	if err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	if err := checkDecimals(parquet.Group{"x": parquet.Group{"a": parquet.Decimal(maxScale+1, 9, parquet.Int32Type)}}); err == nil || !strings.Contains(err.Error(), "77 digits") {
		t.Errorf("too many digits: %v", err)
	}
	want := `{"a":1.5,"b":-0.5,"c":2.56,"d":127}` + "\n" + `{"a":-0.001,"b":0,"c":-0.01}` + "\n"
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
