// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"fmt"
	"math"
	"os"
	"testing"

	"github.com/moonloop/moonloop/mooncake"
)

// A sidecar may claim any number of rows. So many that their passes cannot be counted are no fewer than one pass.
func TestHorizonOfHugeClaims(t *testing.T) {
	name := traceFile(t, `{"timestamp": 0, "input_length": 10, "output_length": 4}`)
	if err := os.WriteFile(mooncake.MetaName(name), fmt.Appendf(nil, `{"schema": 1, "rows": %d}`, math.MaxInt64/2), 0o600); err != nil {
		t.Fatal(err)
	}
	trace, err := mooncake.Open(t.Context(), name, mooncake.OpenOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = trace.Close() }()
	in := &input{trace: trace}
	if n := in.rowsToSend(Trace{Loop: 1000}); n != math.MaxInt64 {
		t.Errorf("%d rows to send", n)
	}
	if n, atLeast := in.notReached(5, 1000); n != math.MaxInt64-5 || atLeast {
		t.Errorf("%d rows not reached, at least: %v", n, atLeast)
	}
}
