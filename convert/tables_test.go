// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"strconv"
	"strings"
	"testing"

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

// TestTableKeepsTimestamps: microseconds of a Mooncake table do not lose a nanosecond.
func TestTableKeepsTimestamps(t *testing.T) {
	got, _ := convert(t, Options{Format: mooncakeCSV.Format}, text("f.csv", "timestamp,input_length,output_length\n0,5,1\n1.001,5,1\n4503599627370.5,5,1\n"))
	want := join(`{"timestamp": 0, "input_length": 5, "output_length": 1}`, `{"timestamp": 1.001, "input_length": 5, "output_length": 1}`, `{"timestamp": 4503599627370.5, "input_length": 5, "output_length": 1}`)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
