// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package stats

import (
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/moonloop/moonloop/mooncake"
)

// FuzzAnalyze analyses whatever a reader accepts: each row is counted once, and no cache has more tokens of a prompt than the prompt has.
func FuzzAnalyze(f *testing.F) {
	for _, seed := range []string{
		"{\"timestamp\": 3000, \"input_length\": 12000, \"output_length\": 1, \"hash_ids\": [0, 5]}\n{\"timestamp\": 2999.5, \"input_length\": 513, \"hash_ids\": [0, 5]}\n",
		"{\"session_id\":\"a\",\"input_length\":600,\"hash_ids\":[1,2]}\n{\"session_id\":\"a\",\"delay\":100,\"input_length\":1700,\"hash_ids\":[1,2,3,4]}",
		`{"input_length": 1030, "hash_ids": [0, 1, 2], "hash_ranges": [[0, 65]]}` + "\n" +
			`{"input_length": 1030, "hash_ids": [0, 3, 4], "hash_ranges": [[0, 40], [65, 25]], "replies": [[1, 600, 100], [1, 701, 1]]}`,
		`{"input_length": 600, "hash_ids": [7, 9], "hash_ranges": [[18446744073709551600, 16], [5, 22]]}` + "\n\n{}\n" +
			`{"input_length": 600, "hash_ids": [7, 8], "hash_ranges": [[18446744073709551600, 15], [4, 23]], "replies": [[1, 1, 1], [2, 2, 597]]}`,
		`{"input_length": 1099511627776, "hash_ids": [], "hash_ranges": [[0, 1099511627776]], "observed": {"finish_reason": "stop"}}`,
		`{"text_input":"x","session_id":"s"}` + "\n" + `{"input_length": 33, "hash_ids": [1], "hash_ranges": [[2, 1], [1, 1], [0, 1]]}`,
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, in string) {
		r := mooncake.NewReader(strings.NewReader(in), mooncake.ReaderOptions{MaxLine: 1 << 20, FineBlockSize: 16})
		a := NewAnalyzer(AnalyzeOptions{FineBlockSize: 16, Capacities: []int{2}})
		p := NewPredictor(PredictorOptions{FineBlockSize: 16, MaxIDs: 4})
		rows := int64(0)
		for {
			row, err := r.Read()
			if _, refused := errors.AsType[*mooncake.RowError](err); refused {
				continue
			}
			if err != nil {
				if !errors.Is(err, io.EOF) {
					t.Fatal(err)
				}
				break
			}
			rows++
			a.Add(row, r.Line())
			if n, ok := p.Predict(row); ok && (n.Whole < 0 || n.Whole > n.Finest || n.Finest > row.InputLength.V) {
				t.Fatalf("%+v tokens of %d are predicted to be cached", n, row.InputLength.V)
			}
		}
		if n := a.Analysis().Rows; n != rows {
			t.Fatalf("%d rows, %d analysed", rows, n)
		}
	})
}
