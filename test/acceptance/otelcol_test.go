// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package acceptance

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/moonloop/moonloop/internal/testport"
)

// distribution is our Collector, which receives, annotates and writes journals.
type distribution struct {
	*process
	address, journals string
}

// distributionConfig acknowledges a span when its record is on disk: no queue, and the sender retries.
const distributionConfig = `receivers:
  mooncake:
    protocols:
      grpc:
        endpoint: %s
    hash_key: ${env:MOONLOOP_HASH_KEY}
exporters:
  mooncake:
    directory: %s
    compile: false
    sending_queue:
      enabled: false
    retry_on_failure:
      enabled: false
service:
  telemetry:
    metrics:
      level: none
  pipelines:
    traces:
      receivers: [mooncake]
      exporters: [mooncake]
`

// startDistribution starts the Collector and waits until it accepts connections.
func startDistribution(t *testing.T, dir string) *distribution {
	t.Helper()
	d := &distribution{address: testport.Address(t), journals: filepath.Join(dir, "journals")}
	config := filepath.Join(dir, "otelcol.yaml")
	if err := os.WriteFile(config, fmt.Appendf(nil, distributionConfig, d.address, d.journals), 0o644); err != nil {
		t.Fatal(err)
	}
	d.process = start(t, dir, "otelcol", []string{"MOONLOOP_HASH_KEY=" + strings.Repeat("5eed", 16)},
		setting(t, "MOONLOOP_OTELCOL"), "--config", config)
	d.awaitConnections(t, d.address)
	return d
}

// compile stops the Collector and compiles its journals to the named file. The journals are kept only if the test fails.
func (d *distribution) compile(t *testing.T, dir, out string, flags ...string) {
	t.Helper()
	d.stop(t)
	equal(t, "exit status of the Collector", d.code, 0)
	note(t, "peak memory of the Collector, MiB", fmt.Sprintf("%.0f", d.peakMiB()))
	p := start(t, dir, "compile", nil, setting(t, "MOONLOOP_BIN"), append([]string{"compile", d.journals, "-o", out}, flags...)...)
	if code := p.wait(t, 10*time.Minute); code != 0 {
		t.Fatalf("compile: exit status %d\n%s", code, p.tail())
	}
	note(t, "compiled in, s", fmt.Sprintf("%.1f", p.lasted.Seconds()))
	note(t, "peak memory of compile, MiB", fmt.Sprintf("%.0f", p.peakMiB()))
	t.Cleanup(func() {
		if !t.Failed() {
			_ = os.RemoveAll(d.journals)
		}
	})
}
