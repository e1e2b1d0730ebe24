// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package mooncake

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestImages: the images of a row are read, checked and written, and change no digest.
func TestImages(t *testing.T) {
	for _, line := range []string{
		`{"timestamp": 0, "input_length": 50, "output_length": 6, "images": [[18446744073709551615, 1024, 768], [7, 0, 0]]}`,
		`{"images": [[1, 4096, 4096]], "text_input": "what is this?"}`,
	} {
		row, err := ParseRow([]byte(line))
		if err != nil {
			t.Fatal(err)
		}
		again, err := ParseRow(AppendRow(nil, row))
		if diff := cmp.Diff(row, again); err != nil || diff != "" || len(row.Images) == 0 {
			t.Errorf("%v, %s", err, diff)
		}
	}
	largest := strings.Repeat("[1,4096,4096],", 15) + "[1,4096,4096]"
	if row, err := ParseRow([]byte(`{"input_length": 5, "images": [[1,0,0],` + largest + `]}`)); err != nil || len(row.Images) != 17 {
		t.Errorf("the most pixels of a row: %v", err)
	}
	if row, err := ParseRow([]byte(`{"input_length": 5, "images": []}`)); err != nil || row.Images != nil {
		t.Errorf("%v, %+v", err, row)
	}
	for line, want := range map[string]string{
		`{"input_length": 5, "images": [[1, 8193, 1]]}`:                                         "too large",
		`{"input_length": 5, "images": [[1, 8192, 8192]]}`:                                      "too large",
		`{"input_length": 5, "images": [[1, 99999999999999999999, 1]]}`:                         "images",
		`{"input_length": 5, "images": [[1, 4294967297, 1]]}`:                                   "images",
		`{"input_length": 5, "images": [[1, 0, 5]]}`:                                            "no pixels",
		`{"input_length": 5, "images": [[1, 2]]}`:                                               "[id, width, height]",
		`{"input_length": 5, "images": [[2, 1, 1], ` + largest + `]}`:                           "has 268435457 pixels in all; at most 268435456",
		`{"input_length": 5, "images": 3}`:                                                      "images",
		`{"messages": [{"role": "user", "content": "x"}], "images": [[1, 2, 3]]}`:               "needs input_length or text_input",
		`{"input_length": 5, "images": [` + strings.Repeat("[1,0,0],", MaxImages) + `[1,0,0]]}`: "at most 256",
	} {
		if _, err := ParseRow([]byte(line)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.80s: %v, want %q", line, err, want)
		}
	}
}
