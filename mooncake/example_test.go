// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package mooncake_test

import (
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"path/filepath"
	"strings"

	"github.com/moonloop/moonloop/mooncake"
)

// A trace is read row by row. Oddities with one sensible reading are accepted, and counted.
func ExampleReader() {
	trace := strings.NewReader(`{"timestamp": 0, "input_length": 1100, "output_length": 20, "hash_ids": [0, 1, 2]}
{"timestamp": 250, "input_length": 1300, "output_length": 9, "hash_ids": [0, 1, 3], "colour": "red"}
`)
	rows := mooncake.NewReader(trace, mooncake.ReaderOptions{Name: "trace.jsonl"})
	for {
		row, err := rows.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(row.InputLength.V, row.OutputLength.V, row.HashIDs)
	}
	for _, notice := range rows.Notices() {
		fmt.Println(notice.Text)
	}
	// Output:
	// 1100 20 [0 1 2]
	// 1300 9 [0 1 3]
	// unknown key "colour" in 1 row has no effect
}

// A trace is written with its sidecar. No file has its name before it is complete.
func ExampleCreate() {
	dir, err := os.MkdirTemp("", "")
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	trace, err := mooncake.Create(filepath.Join(dir, "trace.jsonl"))
	if err != nil {
		log.Fatal(err)
	}
	defer trace.Close()
	row := &mooncake.Row{InputLength: mooncake.Some[int64](600), OutputLength: mooncake.Some[int64](12), HashIDs: []uint64{0, 1}}
	if err := trace.Write(row); err != nil {
		log.Fatal(err)
	}
	if err := trace.Commit(&mooncake.Meta{BlockSize: 512}); err != nil {
		log.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(dir, "trace.jsonl"))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%s", text)
	// Output: {"input_length": 600, "output_length": 12, "hash_ids": [0, 1]}
}
