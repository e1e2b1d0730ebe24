// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package deploy

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	core "k8s.io/api/core/v1"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
)

// TestKustomization builds the kustomization: the gateway with its policies, and the config map that its pods mount.
func TestKustomization(t *testing.T) {
	resources, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), examples)
	if err != nil {
		t.Fatal(err)
	}
	content, err := resources.AsYaml()
	if err != nil {
		t.Fatal(err)
	}
	objects := decode(t, content)
	want := []string{
		"ConfigMap/moonloop", "NetworkPolicy/moonloop-gateway", "PodDisruptionBudget/moonloop-gateway", "Service/moonloop-gateway",
		"StatefulSet/moonloop-gateway",
	}
	if got := ids(objects); !slices.Equal(got, want) {
		t.Errorf("the kustomization has %v, want %v", got, want)
	}
	checkConfigurations(t, find[*core.ConfigMap](t, objects, "ConfigMap/moonloop"))
}

// checkConfigurations requires that a config map contains the two examples of a chain, unchanged.
func checkConfigurations(t *testing.T, held *core.ConfigMap) {
	t.Helper()
	if len(held.Data) != 2 {
		t.Errorf("the config map holds %d files, want 2", len(held.Data))
	}
	for _, name := range []string{"gateway.yaml", "sidecar.yaml"} {
		content, err := os.ReadFile(filepath.Join(examples, "capture", name))
		if err != nil {
			t.Fatal(err)
		}
		if held.Data[name] != string(content) {
			t.Errorf("%s of the config map is not examples/capture/%s", name, name)
		}
	}
}
