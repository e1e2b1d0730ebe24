// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package collector

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.opentelemetry.io/collector/confmap"
)

// testKey is a hash key of 32 bytes.
const testKey = "MOONLOOP_HASH_KEY=5eed5eed5eed5eed5eed5eed5eed5eed5eed5eed5eed5eed5eed5eed5eed5eed"

// configurations returns the Collector configurations that the project ships, by name.
func configurations(t *testing.T) []string {
	t.Helper()
	names := []string{filepath.Join(root, "otelcol-config.yaml")}
	for _, folder := range []string{"examples", "examples/capture"} {
		found, err := filepath.Glob(filepath.Join(root, folder, "*.yaml"))
		if err != nil || len(found) == 0 {
			t.Fatalf("no configurations in %s: %v", folder, err)
		}
		names = append(names, found...)
	}
	return append(names, operatorConfig(t))
}

// operatorConfig writes the configuration inside of the Operator's resource into a file, and returns its name.
func operatorConfig(t *testing.T) string {
	t.Helper()
	resource := manifests(t, filepath.Join(root, "examples/kubernetes/operator.yaml"))[0]
	spec, _ := resource["spec"].(map[string]any)
	config, ok := spec["config"].(map[string]any)
	if !ok {
		t.Fatal("operator.yaml has no spec.config")
	}
	content, err := json.Marshal(config) // JSON is YAML
	if err != nil {
		t.Fatal(err)
	}
	return write(t, t.TempDir(), "operator.yaml", string(content))
}

// TestConfigurations has the distribution validate each of them, as a user would before a roll-out: with the key and
// without a file where the data will be.
func TestConfigurations(t *testing.T) {
	for _, config := range configurations(t) {
		t.Run(filepath.Base(config), func(t *testing.T) {
			config, err := filepath.Abs(config)
			if err != nil {
				t.Fatal(err)
			}
			validate := exec.CommandContext(t.Context(), distribution.file(t), "validate", "--config", config)
			validate.Dir = t.TempDir()
			validate.Env = append(os.Environ(), testKey, "MOONLOOP_TOKEN=of-a-test")
			if out, err := validate.CombinedOutput(); err != nil {
				t.Errorf("%v\n%s", err, out)
			}
			if left, err := os.ReadDir(validate.Dir); err != nil || len(left) > 0 {
				t.Errorf("validating left %v behind (%v)", left, err)
			}
		})
	}
}

// TestValidateRefuses shows that validating finds something: a misspelt setting of each of our components.
func TestValidateRefuses(t *testing.T) {
	laptop, err := os.ReadFile(filepath.Join(root, "examples/capture/laptop.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	for _, setting := range []string{"hash_key:", "directory:"} {
		if !bytes.Contains(laptop, []byte(setting)) {
			t.Fatalf("laptop.yaml has no %s", setting)
		}
		config := write(t, t.TempDir(), "config.yaml", strings.Replace(string(laptop), setting, "x"+setting, 1))
		out, err := exec.CommandContext(t.Context(), distribution.file(t), "validate", "--config", config).CombinedOutput()
		if err == nil || !bytes.Contains(out, []byte("invalid keys: x"+strings.TrimSuffix(setting, ":"))) {
			t.Errorf("x%s: %v\n%s", setting, err, out)
		}
	}
}

// TestManifests holds the Kubernetes manifests to the configurations that they run: the file exists, and each variable
// of ours that is set is one that the file reads.
func TestManifests(t *testing.T) {
	names, err := filepath.Glob(filepath.Join(root, "examples/kubernetes/*.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	configFile := regexp.MustCompile(`/etc/moonloop/([a-z]+\.yaml)`)
	ours := regexp.MustCompile(`\bMOONLOOP_[A-Z_]+\b`)
	runs := 0
	for _, name := range names {
		for _, manifest := range manifests(t, name) {
			for _, field := range []string{"apiVersion", "kind", "metadata"} {
				if manifest[field] == nil {
					t.Errorf("%s: a manifest without %s", name, field)
				}
			}
			content, err := json.Marshal(manifest)
			if err != nil {
				t.Fatal(err)
			}
			read := content // the Operator's resource holds its configuration
			if match := configFile.FindSubmatch(content); match != nil {
				if read, err = os.ReadFile(filepath.Join(root, "examples/capture", string(match[1]))); err != nil {
					t.Fatal(err)
				}
				runs++
			}
			for _, variable := range ours.FindAllString(string(content), -1) {
				if !bytes.Contains(read, []byte("${env:"+variable)) {
					t.Errorf("%s sets %s, which its configuration does not read", name, variable)
				}
			}
		}
	}
	if runs != 2 {
		t.Errorf("%d manifests run a configuration of examples/capture, want the sidecar and the gateway", runs)
	}
}

// manifests reads the YAML documents of a file.
func manifests(t *testing.T, name string) []map[string]any {
	t.Helper()
	content, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	var documents []map[string]any
	for document := range bytes.SplitSeq(content, []byte("\n---\n")) {
		retrieved, err := confmap.NewRetrievedFromYAML(document)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		raw, err := retrieved.AsRaw()
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		fields, ok := raw.(map[string]any)
		if !ok {
			t.Fatalf("%s is no YAML object", name)
		}
		documents = append(documents, fields)
	}
	return documents
}

// TestComponents wants the distribution to have what its documentation names.
func TestComponents(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), distribution.file(t), "components").Output()
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, match := range regexp.MustCompile(`(?m)^    - name: (\S+)$`).FindAllSubmatch(out, -1) {
		got = append(got, string(match[1]))
	}
	slices.Sort(got)
	want := []string{
		"bearertokenauth", "debug", "file", "file_storage", "health_check", "memory_limiter", "mooncake", "mooncake", "nop", "otlp",
		"otlp_grpc", "otlp_http", "pprof", "prometheus", "zpages",
	}
	if !slices.Equal(got, want) {
		t.Errorf("components %v\nwant       %v", got, want)
	}
}
