// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"testing"
)

// The peak is that of this process, not of the process that started it.
func TestPeakMemory(t *testing.T) {
	const child = "MOONLOOP_TEST_PEAK"
	if os.Getenv(child) != "" {
		fmt.Fprintf(os.Stderr, "peak %d\n", peakMemory(0))
		return
	}
	const size = 256 << 20
	large := make([]byte, size)
	for i := 0; i < size; i += 4096 {
		large[i] = 1
	}
	own := peakMemory(0)
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestPeakMemory$")
	cmd.Env = append(os.Environ(), child+"=1")
	out, err := cmd.CombinedOutput()
	runtime.KeepAlive(large)
	var peak int64
	if _, scan := fmt.Sscanf(string(out), "peak %d", &peak); err != nil || scan != nil {
		t.Fatalf("%v, %v: %s", err, scan, out)
	}
	if own < size || peak <= 0 || peak > size/2 {
		t.Errorf("this process: %d MiB; a small process that it started: %d MiB", own>>20, peak>>20)
	}
}
