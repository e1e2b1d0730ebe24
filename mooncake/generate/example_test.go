// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package generate

import (
	"bytes"
	"encoding/json"
	"os"
	"testing"

	"github.com/moonloop/moonloop/mooncake"
)

// TestExampleTrace checks the project's example trace against its sidecar: the parameters in the sidecar reproduce the bytes of the trace.
func TestExampleTrace(t *testing.T) {
	const name = "../../examples/demo.jsonl"
	meta, err := mooncake.LoadMeta(name)
	if err != nil || meta == nil {
		t.Fatalf("sidecar: %v", err)
	}
	parameters, err := json.Marshal(meta.Transformations[0].Parameters["config"])
	if err != nil {
		t.Fatal(err)
	}
	var cfg Config
	if err := json.Unmarshal(parameters, &cfg); err != nil {
		t.Fatal(err)
	}
	want, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if got := bytesOf(t, cfg); !bytes.Equal(got, want) {
		t.Errorf("%d bytes are not the %d of the file", len(got), len(want))
	}
	digester := mooncake.NewDigester(mooncake.CheckOptions{BlockSize: meta.BlockSize})
	for i, row := range rows(t, cfg) {
		digester.Add(row, int64(i+1))
	}
	if got := digester.Digests(); got != meta.Digests {
		t.Errorf("digests are %+v, the sidecar says %+v", got, meta.Digests)
	}
}
