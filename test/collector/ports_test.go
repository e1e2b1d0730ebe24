// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package collector

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestPortsOfTheirOwn: configurations that are meant to run together can do so on one machine.
func TestPortsOfTheirOwn(t *testing.T) {
	gateway := ports(t, "examples/capture/gateway.yaml")
	for _, beside := range []string{
		"examples/capture/sidecar.yaml", "examples/capture/existing.yaml", "otelcol-config.yaml", "examples/capture/laptop.yaml",
		"examples/capture/processor.yaml",
	} {
		for _, port := range ports(t, beside) {
			if slices.Contains(gateway, port) {
				t.Errorf("%s and the gateway both listen on port %s", beside, port)
			}
		}
	}
}

// ports returns the ports on which a configuration listens, including those that it does not name.
func ports(t *testing.T, name string) []string {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(root, name))
	if err != nil {
		t.Fatal(err)
	}
	text, _, _ := strings.Cut(string(content), "\nservice:")
	listeners := regexp.MustCompile(`(?ms)^exporters:\n.*?^(\S|\z)`).ReplaceAllString(text, "$1")
	var found []string
	for _, match := range regexp.MustCompile(`endpoint: \S*:(\d+)`).FindAllStringSubmatch(listeners, -1) {
		found = append(found, match[1])
	}
	if strings.Contains(listeners, "grpc:\n") && !strings.Contains(listeners, "endpoint: ") {
		found = append(found, "4317", "4318")
	}
	if strings.Contains(listeners, "health_check:") && !regexp.MustCompile(`health_check:\n\s+endpoint`).MatchString(listeners) {
		found = append(found, "13133")
	}
	if match := regexp.MustCompile(`port: (\d+)`).FindSubmatch(content); match != nil {
		found = append(found, string(match[1]))
	} else {
		found = append(found, "8888") // the Collector's own metrics
	}
	if len(found) < 2 {
		t.Fatalf("%s: ports %v: this test cannot read it", name, found)
	}
	return found
}
