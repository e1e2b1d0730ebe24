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
				t.Errorf("it is taken for %s: %v", is, err)
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
