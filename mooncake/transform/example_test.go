// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package transform_test

import (
	"fmt"
	"strings"

	"github.com/moonloop/moonloop/mooncake"
	"github.com/moonloop/moonloop/mooncake/transform"
)

func Example() {
	const trace = `{"timestamp": 0, "input_length": 600, "output_length": 9, "hash_ids": [0, 1]}
{"timestamp": 4000, "input_length": 700, "output_length": 5, "hash_ids": [0, 2]}`
	stream, err := transform.Open(transform.Config{TimeScale: 0.5}, transform.Source{
		Name: "trace.jsonl",
		Open: func() (transform.Rows, error) {
			return mooncake.NewReader(strings.NewReader(trace), mooncake.ReaderOptions{}), nil
		},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	for row, err := stream.Next(); err == nil; row, err = stream.Next() {
		fmt.Println(string(mooncake.AppendRow(nil, row)))
	}
	fmt.Println(stream.Report().Steps[0].Effect)
	// Output:
	// {"timestamp": 0, "input_length": 600, "output_length": 9, "hash_ids": [0, 1]}
	// {"timestamp": 2000, "input_length": 700, "output_length": 5, "hash_ids": [0, 2]}
	// 2 times as fast: span 4000 ms → 2000 ms
}
