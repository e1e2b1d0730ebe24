// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package mooncake

import (
	"errors"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestPrivacy: the sidecar of a file says which information its rows contain, whatever the caller said, and keeps the caller's hash
// algorithm.
func TestPrivacy(t *testing.T) {
	length := Row{InputLength: Some[int64](5)}
	hashed := Row{InputLength: Some[int64](5), HashIDs: []uint64{1}}
	text := Row{TextInput: Some("hello")}
	for name, c := range map[string]struct {
		rows []Row
		said *Privacy
		want Privacy
	}{
		"lengths": {[]Row{length}, nil, Privacy{Mode: PrivacyPerfOnly}},
		"ids":     {[]Row{length, hashed}, &Privacy{Mode: PrivacyPerfOnly, HashAlgorithm: "x"}, Privacy{Mode: PrivacyBlockHash, HashedRows: 1, HashAlgorithm: "x"}},
		"text":    {[]Row{hashed, text, length}, nil, Privacy{Mode: PrivacyContent, ContentRows: 1, HashedRows: 1}},
	} {
		file := filepath.Join(t.TempDir(), "x.jsonl")
		f, err := Create(file)
		if err != nil {
			t.Fatal(err)
		}
		for i := range c.rows {
			err = errors.Join(err, f.Write(&c.rows[i]))
		}
		if err := errors.Join(err, f.Commit(&Meta{Privacy: c.said}), f.Close()); err != nil {
			t.Fatal(err)
		}
		m, err := LoadMeta(file)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(&c.want, m.Privacy); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}
