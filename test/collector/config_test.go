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

	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/collector/confmap"

	"github.com/moonloop/moonloop/internal/testprogram"
)

// testKey is a hash key of 32 bytes.
const testKey = "MOONLOOP_HASH_KEY=5eed5eed5eed5eed5eed5eed5eed5eed5eed5eed5eed5eed5eed5eed5eed5eed"

// ofOthers are the files next to the configurations that are not for a Collector.
var ofOthers = []string{"kustomization.yaml", "compose.yaml", "prometheus.yaml"}

// configurations returns the Collector configurations of the project, by name.
func configurations(t *testing.T) []string {
	t.Helper()
	names := []string{filepath.Join(root, "otelcol-config.yaml")}
	for _, folder := range []string{"examples", "examples/capture", "examples/compose"} {
		found, err := filepath.Glob(filepath.Join(root, folder, "*.yaml"))
		if err != nil {
			t.Fatal(err)
		}
		found = slices.DeleteFunc(found, func(name string) bool { return slices.Contains(ofOthers, filepath.Base(name)) })
		if len(found) == 0 {
			t.Fatalf("no configurations in %s", folder)
		}
		names = append(names, found...)
	}
	return append(names, operatorConfig(t))
}

// operatorConfig writes the configuration in the Operator's resource into a file, and returns its name.
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

// TestConfigurations lets the distribution validate each configuration, as a user would before a roll-out: with the key, and with an empty data
// folder.
func TestConfigurations(t *testing.T) {
	t.Parallel()
	for _, config := range configurations(t) {
		t.Run(filepath.Base(config), func(t *testing.T) {
			t.Parallel()
			config, err := filepath.Abs(config)
			if err != nil {
				t.Fatal(err)
			}
			validate := exec.CommandContext(t.Context(), testprogram.File(t, "otelcol-moonloop"), "validate", "--config", config)
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

// TestOperatorIsTheSidecar: the sidecar that the Operator injects has the configuration of sidecar.yaml, limits of memory included. Only the
// gateway's address differs.
func TestOperatorIsTheSidecar(t *testing.T) {
	var text [2]string
	for i, name := range []string{filepath.Join(root, "examples/capture/sidecar.yaml"), operatorConfig(t)} {
		config := readConfiguration(t, name)
		config.Delete("exporters::otlp_grpc/gateway::endpoint")
		content, err := json.MarshalIndent(config.ToStringMap(), "", " ")
		if err != nil {
			t.Fatal(err)
		}
		text[i] = string(content)
	}
	if diff := cmp.Diff(text[0], text[1]); diff != "" {
		t.Errorf("operator.yaml (-sidecar.yaml +operator.yaml):\n%s", diff)
	}
}

// TestReaderPauses: a reader that cannot write retries with growing pauses, at any rate of messages. The receiver has no default for the
// multiplier, and without one the second pause and all later ones are 0.
func TestReaderPauses(t *testing.T) {
	pauses, err := readConfiguration(t, filepath.Join(root, "examples/capture/from-kafka.yaml")).Sub("receivers::kafka::error_backoff")
	if err != nil {
		t.Fatal(err)
	}
	if multiplier, ok := pauses.Get("multiplier").(float64); !ok || multiplier <= 1 {
		t.Errorf("the pauses do not grow: %v", pauses.ToStringMap())
	}
}

// TestValidateRefuses shows that validation finds a misspelt setting of each of our components.
func TestValidateRefuses(t *testing.T) {
	for _, c := range []struct{ config, setting string }{
		{"examples/capture/laptop.yaml", "hash_key:"},
		{"examples/capture/laptop.yaml", "directory:"},
		{"examples/capture/processor.yaml", "hash_key:"},
	} {
		content, err := os.ReadFile(filepath.Join(root, c.config))
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Contains(content, []byte(c.setting)) {
			t.Fatalf("%s has no %s", c.config, c.setting)
		}
		config := write(t, t.TempDir(), "config.yaml", strings.Replace(string(content), c.setting, "x"+c.setting, 1))
		out, err := exec.CommandContext(t.Context(), testprogram.File(t, "otelcol-moonloop"), "validate", "--config", config).CombinedOutput()
		if err == nil || !bytes.Contains(out, []byte("invalid keys: x"+strings.TrimSuffix(c.setting, ":"))) {
			t.Errorf("%s, x%s: %v\n%s", c.config, c.setting, err, out)
		}
	}
}

// TestManifests compares the Kubernetes manifests with the configurations that they run: the file exists, and the file reads each variable
// of ours that is set.
func TestManifests(t *testing.T) {
	names, err := filepath.Glob(filepath.Join(root, "examples/kubernetes/*.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	configFile := regexp.MustCompile(`/etc/moonloop/([a-z0-9]+\.yaml)`)
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
			read := content // the Operator's resource contains its configuration
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
	if runs != 3 {
		t.Errorf("%d manifests run a configuration of examples/capture, want the sidecar, the gateway and the fleet's", runs)
	}
}

// TestVariables: each variable of ours that a service of the compose file or a machine's service sets is one that its
// configuration reads.
func TestVariables(t *testing.T) {
	for service, config := range map[string]string{
		"examples/compose/compose.yaml":             "examples/compose/collector.yaml",
		"examples/systemd/otelcol-moonloop.service": "otelcol-config.yaml",
	} {
		content, err := os.ReadFile(filepath.Join(root, service))
		if err != nil {
			t.Fatal(err)
		}
		read, err := os.ReadFile(filepath.Join(root, config))
		if err != nil {
			t.Fatal(err)
		}
		set := regexp.MustCompile(`\b(MOONLOOP_[A-Z_]+)(=|: )`).FindAllSubmatch(content, -1)
		if len(set) == 0 {
			t.Errorf("%s sets no variable of ours", service)
		}
		for _, match := range set {
			if !bytes.Contains(read, []byte("${env:"+string(match[1]))) {
				t.Errorf("%s sets %s, which %s does not read", service, match[1], config)
			}
		}
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
			t.Fatalf("%s is not a YAML object", name)
		}
		documents = append(documents, fields)
	}
	return documents
}

// TestComponents requires that the distribution has the documented components.
func TestComponents(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), testprogram.File(t, "otelcol-moonloop"), "components").Output()
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, match := range regexp.MustCompile(`(?m)^    - name: (\S+)$`).FindAllSubmatch(out, -1) {
		got = append(got, string(match[1]))
	}
	slices.Sort(got)
	want := []string{
		"attributes", "awss3", "batch", "bearertokenauth", "debug", "file", "file_storage", "filter", "health_check", "kafka", "kafka", "memory_limiter", "mooncake",
		"mooncake", "mooncake", "mooncake_cache", "mooncake_encoding", "nop", "otlp", "otlp_grpc", "otlp_http", "pprof", "prometheus", "transform", "zpages",
	}
	if !slices.Equal(got, want) {
		t.Errorf("components %v\nwant       %v", got, want)
	}
}
