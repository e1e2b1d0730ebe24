// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package study

import (
	"bufio"
	"compress/gzip"
	"errors"
	"flag"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// The tests of a decision use the noise of a real machine, since generated noise has only the dependence that its author thought of. This
// file records it and reads it.

var recordNoise = flag.Duration("record-noise", 0, "record the noise of this machine for this long, into testdata; put the machine under load, or there is little noise")

const (
	noiseFile = "testdata/noise.csv.gz"
	noiseTick = 10 * time.Millisecond
)

// noise is what a machine did to a process every noiseTick: how late a timer woke it, in µs, and how long a fixed piece
// of work took, as a multiple of its usual time.
type noise struct{ late, work []float64 }

// TestRecordNoise records the file again, with -record-noise.
func TestRecordNoise(t *testing.T) {
	if *recordNoise == 0 {
		t.Skip("records only with -record-noise 200s")
	}
	n := int(*recordNoise / noiseTick)
	type sample struct{ late, work time.Duration }
	samples := make([]sample, 0, n)
	block := make([]byte, 1<<20) // of work: some 50 µs to 100 µs
	var sum uint32
	start := time.Now()
	for i := 1; len(samples) < n; i++ {
		due := start.Add(time.Duration(i) * noiseTick)
		if time.Now().After(due) {
			continue // still affected by the previous sample
		}
		time.Sleep(time.Until(due))
		woken := time.Now()
		sum += crc32.ChecksumIEEE(block)
		samples = append(samples, sample{woken.Sub(due), time.Since(woken)})
	}
	t.Logf("%d samples in %v, checksum %d", len(samples), time.Since(start), sum)
	f, err := os.Create(filepath.FromSlash(noiseFile))
	if err != nil {
		t.Fatal(err)
	}
	z, _ := gzip.NewWriterLevel(f, gzip.BestCompression)
	w := bufio.NewWriter(z)
	for _, s := range samples {
		fmt.Fprintf(w, "%d,%d\n", s.late.Microseconds(), s.work.Microseconds())
	}
	for _, err := range []error{w.Flush(), z.Close(), f.Close()} {
		if err != nil {
			t.Fatal(err)
		}
	}
}

// readNoise reads the file.
func readNoise(t *testing.T) noise {
	t.Helper()
	f, err := os.Open(filepath.FromSlash(noiseFile))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	var n noise
	for lines := bufio.NewScanner(z); lines.Scan(); {
		first, second, _ := strings.Cut(lines.Text(), ",")
		late, err := strconv.ParseFloat(first, 64)
		work, err2 := strconv.ParseFloat(second, 64)
		if err := errors.Join(err, err2); err != nil {
			t.Fatal(err)
		}
		n.late, n.work = append(n.late, late), append(n.work, work)
	}
	if len(n.late) < 1000 {
		t.Fatalf("%s has %d samples only", noiseFile, len(n.late))
	}
	usual := slices.Sorted(slices.Values(n.work))[len(n.work)/2]
	for i := range n.work {
		n.work[i] /= usual // times what it usually takes
	}
	return n
}
