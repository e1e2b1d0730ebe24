// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"bytes"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/moonloop/moonloop/agent/measure"
	"github.com/moonloop/moonloop/agent/send"
)

// TestServingTable: the table has the names, the units and the order of TraceReplay's. Each number is that of the figure with the same
// meaning (the sample's time to first event is a millisecond below its time to first token). Percentiles that the user chooses replace the
// table's defaults.
func TestServingTable(t *testing.T) {
	r := sample(t)
	r.Layout = LayoutTraceReplay
	table := func() string {
		t.Helper()
		var b bytes.Buffer
		if err := r.Table(&b, Width, false); err != nil {
			t.Fatal(err)
		}
		table, rest, found := strings.Cut(b.String(), "\n\n")
		if !found || !strings.HasPrefix(rest, "Rows ") {
			t.Errorf("no blocks below the table:\n%s", &b)
		}
		return table + "\n"
	}
	golden(t, "tracereplay.txt", []byte(table()))
	uncounted := records()[0]
	uncounted.Exchange.Whole, uncounted.Exchange.Usage.Completion = true, send.Unknown
	a := measure.NewAggregate(measure.Options{})
	a.Add(uncounted)
	r.figures = a.Figures()
	if text := table(); strings.Contains(text, "generated tokens") || strings.Contains(text, "oken throughput") || !strings.Contains(text, "Total input tokens") {
		t.Errorf("the table has output tokens, although their number is not known:\n%s", text)
	}
	r = sample(t)
	r.Layout = LayoutTraceReplay
	r.Percentiles = Percentiles{"99.9"}
	var names []string
	for line := range strings.Lines(table()) {
		if name, _, found := strings.Cut(line, " ITL (ms):"); found {
			names = append(names, name)
		}
	}
	if diff := cmp.Diff([]string{"Mean", "Median", "Std", "P99.9"}, names); diff != "" {
		t.Error(diff)
	}
}
