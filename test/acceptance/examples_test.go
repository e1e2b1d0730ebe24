// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package acceptance

import (
	"os/exec"
	"path/filepath"
	"testing"
)

// TestAcceptanceExamples lets a stock Collector validate every Collector configuration of the project.
func TestAcceptanceExamples(t *testing.T) {
	collector := setting(t, "MOONLOOP_COLLECTOR")
	configs, err := filepath.Glob("../../examples/*.yaml")
	if err != nil || len(configs) == 0 {
		t.Fatalf("no configurations: %v", err)
	}
	for _, config := range configs {
		if filepath.Base(config) == "kustomization.yaml" {
			continue // Kubernetes reads it: TestAcceptanceKubernetes
		}
		if out, err := exec.CommandContext(t.Context(), collector, "validate", "--config", config).CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", config, err, out)
		}
	}
}
