// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package mooncake

import (
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestTables: a table has the same rows as JSON lines of the same values.
func TestTables(t *testing.T) {
	for name, test := range map[string]struct {
		table, lines string
		opt          OpenOptions
	}{
		"lengths and times": {
			"timestamp,input_length,output_length\n0,256,8\n12.5,512,6\n",
			`{"timestamp":0,"input_length":256,"output_length":8}` + "\n" + `{"timestamp":12.5,"input_length":512,"output_length":6}`,
			OpenOptions{},
		},
		"lists, texts and absent values": {
			"\xef\xbb\xbftimestamp, input_length,hash_ids,session_id,model\r\n0,600,\"[1, 2]\",17,\r\n5,700,[1],\"a, b\",m\r\n",
			`{"timestamp":0,"input_length":600,"hash_ids":[1,2],"session_id":"17"}` + "\n" + `{"timestamp":5,"input_length":700,"hash_ids":[1],"session_id":"a, b","model":"m"}`,
			OpenOptions{},
		},
		"texts of several lines": {
			"text_input,output_length\n\"one\ntwo\",3\n5,4\n",
			`{"text_input":"one\ntwo","output_length":3}` + "\n" + `{"text_input":"5","output_length":4}`,
			OpenOptions{},
		},
		"other names": {
			"ts,isl,osl\n2,40,3\n",
			`{"timestamp":2,"input_length":40,"output_length":3}`,
			OpenOptions{Map: Mapping{"timestamp": "ts", "input_length": "isl", "output_length": "osl"}},
		},
		"dates": {
			"created_time,input_tokens\n2026-11-21T15:04:05Z,40\n",
			`{"timestamp":"2026-11-21T15:04:05Z","input_length":40}`,
			OpenOptions{},
		},
	} {
		t.Run(name, func(t *testing.T) {
			read := func(file string, opt OpenOptions) (rows []Row) {
				trace, err := Open(t.Context(), file, opt)
				if err != nil {
					t.Fatal(err)
				}
				defer func() { _ = trace.Close() }()
				for {
					row, err := trace.Read()
					if errors.Is(err, io.EOF) {
						return rows
					}
					if err != nil {
						t.Fatal(err)
					}
					rows = append(rows, *row)
				}
			}
			got := read(write(t, "t.csv", []byte(test.table)), test.opt)
			want := read(write(t, "t.jsonl", []byte(test.lines)), OpenOptions{})
			if diff := cmp.Diff(want, got, cmp.AllowUnexported(Row{})); diff != "" {
				t.Errorf("rows of the table differ (-lines +table):\n%s", diff)
			}
		})
	}
}

// TestTablesThatAreNotRows: a table without a prompt column, or with only one column, is not read as rows, and errors in a record name its
// line.
func TestTablesThatAreNotRows(t *testing.T) {
	for table, want := range map[string]string{
		"TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16,4808,10\n": "become traces with moonloop convert",
		"input_length\n5\n":                            "become traces with moonloop convert",
		"timestamp,input_length\n1,5\n2,many\n":        ":3: input_length",
		"timestamp,input_length\n1,5\n2,5,6\n":         "line 3 of the table: wrong number of fields; the first line has 2 columns",
		"timestamp,input_length\n1,\"5\n":              "line 2 of the table",
		"timestamp,input_length,input_length\n1,5,6\n": "input_length",
	} {
		trace, err := Open(t.Context(), write(t, "t.csv", []byte(table)), OpenOptions{})
		for err == nil {
			_, err = trace.Read()
		}
		if trace != nil {
			_ = trace.Close()
		}
		if errors.Is(err, io.EOF) || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", table, err)
		}
	}
	for _, open := range []string{`1,"` + strings.Repeat("5\n", 1000), `2,5` + "\n" + `3,"` + strings.Repeat("5", 20_000)} {
		trace, err := Open(t.Context(), write(t, "t.csv", []byte("timestamp,input_length\n"+open)), OpenOptions{MaxLine: 500})
		for err == nil {
			_, err = trace.Read()
		}
		if trace != nil {
			_ = trace.Close()
		}
		if !strings.Contains(err.Error(), "of the table is longer than 500 bytes") {
			t.Errorf("a quote that is not closed: %v", err)
		}
	}
	for _, cells := range [][]string{{"1"}, {"1", "2", "3"}} {
		if row, err := ParseCells([]string{"timestamp", "input_length"}, cells); err == nil {
			t.Errorf("%q: %+v", cells, row)
		}
	}
	strict, err := Open(t.Context(), write(t, "t.csv", []byte("timestamp,input_length\n1,5\n")), OpenOptions{Strict: true})
	if err == nil {
		_ = strict.Close()
		t.Error("strict reads a table")
	}
}
