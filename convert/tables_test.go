// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"errors"
	"io"
	"strconv"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"
)

// TestTablesAsObjects: a table may also come as objects whose members are its columns, as from a Parquet file. Then numbers are JSON
// numbers, and an empty cell is an absent member.
func TestTablesAsObjects(t *testing.T) {
	for _, format := range Formats() {
		if s := format.spec(); s == nil || !s.table {
			continue
		}
		t.Run(string(format), func(t *testing.T) {
			_, table := fixture(t, format)
			records, err := csv.NewReader(strings.NewReader(table)).ReadAll()
			if err != nil {
				t.Fatal(err)
			}
			var objects bytes.Buffer
			for _, record := range records[1:] {
				object := map[string]any{}
				for i, cell := range record {
					if _, err := strconv.ParseFloat(cell, 64); err == nil && json.Valid([]byte(cell)) {
						object[records[0][i]] = json.Number(cell)
					} else if cell != "" {
						object[records[0][i]] = cell
					}
				}
				line, _ := json.Marshal(object)
				objects.Write(append(line, '\n'))
			}
			if is, err := Detect("f", objects.Bytes()); is != format && !strings.HasPrefix(string(format), string(is)) || err != nil {
				t.Errorf("it is detected as %s: %v", is, err)
			}
			opt := fixtureOptions(t, format)
			want, _ := convert(t, opt, text("f", table))
			got, _ := convert(t, opt, text("f", objects.String()))
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("(-table +objects):\n%s", diff)
			}
		})
	}
}

// TestTableSplit: records with line ends in quotes are the same however they arrive, and no byte of a record is examined twice.
func TestTableSplit(t *testing.T) {
	records := []string{`a,b`, "1,\"x\ny\"", `2,"say ""no"""`, "3,\"\n\n\"", `4,end`}
	file := strings.Join(records, "\n")
	for _, in := range []io.Reader{strings.NewReader(file), iotest.OneByteReader(strings.NewReader(file))} {
		l := newLines(in, "f", 1<<10, "", true)
		for _, want := range records {
			if got, err := l.next(); string(got) != want || err != nil {
				t.Errorf("record %q, %v, want %q", got, err, want)
			}
		}
		if _, err := l.next(); !errors.Is(err, io.EOF) {
			t.Errorf("the end: %v", err)
		}
	}
	var s tableSplit
	open := []byte("1,\"x\ny")
	for n := 1; n <= len(open); n++ {
		if at, _, err := s.split(open[:n], false); at != 0 || err != nil || s.examined != n {
			t.Errorf("after %d bytes of an open record: split at %d, %v, %d bytes examined", n, at, err, s.examined)
		}
	}
}

// TestTableKeepsTimestamps: microseconds of a Mooncake table do not lose a nanosecond.
func TestTableKeepsTimestamps(t *testing.T) {
	got, _ := convert(t, Options{Format: mooncakeCSV.Format}, text("f.csv", "timestamp,input_length,output_length\n0,5,1\n1.001,5,1\n4503599627370.5,5,1\n"))
	want := join(`{"timestamp": 0, "input_length": 5, "output_length": 1}`, `{"timestamp": 1.001, "input_length": 5, "output_length": 1}`, `{"timestamp": 4503599627370.5, "input_length": 5, "output_length": 1}`)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
