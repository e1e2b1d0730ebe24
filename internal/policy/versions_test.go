// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// collectorOffset ties the Collector core's two families: beta v0.n is released with stable v1.(n-94).
const collectorOffset = 94

// families names, by import path prefix and major version, the modules that are released together. A mix of their releases may build, but
// nobody upstream has tested it. Order matters: the first match counts.
var families = []struct{ prefix, major string }{
	{"go.opentelemetry.io/collector", "v1."},
	{"go.opentelemetry.io/collector", "v0."},
	{"github.com/open-telemetry/opentelemetry-collector-contrib", "v0."},
	{"go.opentelemetry.io/otel", "v1."},
}

// heldBack are modules of an older release than their family's, each at the newest version for which all sources are available: there are
// no sources for pkg/kafka/configkafka v0.161.0, and none for pkg/batchperresourceattr v0.158.0 and later. `make acceptance-fleet` shows
// that they work with the others. A module must leave this list as soon as possible.
var heldBack = map[string]string{
	contrib + "exporter/awss3exporter":   "v0.158.0",
	contrib + "pkg/batchperresourceattr": "v0.156.0", // of awss3

	contrib + "exporter/kafkaexporter": "v0.160.0",
	contrib + "receiver/kafkareceiver": "v0.160.0",
	contrib + "internal/kafka":         "v0.160.0",
	contrib + "pkg/batchpersignal":     "v0.160.0",
	contrib + "pkg/core/xidutils":      "v0.160.0",
	contrib + "pkg/kafka/configkafka":  "v0.160.0",
	contrib + "pkg/kafka/topic":        "v0.160.0",
	contrib + "pkg/translator/azure":   "v0.160.0",
	contrib + "pkg/translator/jaeger":  "v0.160.0",
	contrib + "pkg/translator/zipkin":  "v0.160.0",
}

const contrib = "github.com/open-telemetry/opentelemetry-collector-contrib/"

// modules are the folders of the modules in go.work, the root first.
var modules = []string{".", "bench", distribution}

const distribution = "cmd/otelcol-moonloop"

// TestOneVersionPerFamily reads each go.mod, indirect requirements included: a forgotten one raises the others silently.
func TestOneVersionPerFamily(t *testing.T) {
	for _, folder := range modules {
		for _, problem := range mixedFamilies(required(t, folder)) {
			t.Errorf("%s/go.mod: %s", folder, problem)
		}
	}
}

// TestModulesAgree requires that all modules of ours name the same version of a module: a workspace builds with the highest version, but a
// module of ours that is built separately would be a different program.
func TestModulesAgree(t *testing.T) {
	versions := map[string]string{}
	for _, folder := range modules {
		for _, line := range required(t, folder) {
			path, version, _ := strings.Cut(line, " ")
			if before, ok := versions[path]; ok && before != version {
				t.Errorf("%s/go.mod requires %s %s, another module of ours requires %s; make them equal with: go work sync", folder, path, version, before)
			}
			versions[path] = version
		}
	}
}

// TestRootIsLight keeps the dependencies of the distribution out of what others import.
func TestRootIsLight(t *testing.T) {
	for _, line := range required(t, ".") {
		for _, heavy := range []string{"go.opentelemetry.io/collector/otelcol ", "go.opentelemetry.io/collector/service ", "github.com/aws/", "k8s.io/"} {
			if strings.HasPrefix(line, heavy) {
				t.Errorf("go.mod requires %s: importers of our packages would get a Collector's distribution", line)
			}
		}
	}
}

// TestPackagesAreLight keeps the client of object stores out of all packages but the command: go.mod names its module, but the go tool
// fetches that only for importers of a package that needs it.
func TestPackagesAreLight(t *testing.T) {
	list := exec.CommandContext(t.Context(), "go", "list", "-deps", "-f", "{{.ImportPath}}", "./agent/...", "./capture/...", "./collect/...", "./connector/...", "./convert/...",
		"./encoding/...", "./exporter/...", "./mooncake/...", "./processor/...", "./receiver/...", "./shadow/...", "./study/...")
	list.Dir = repositoryRoot(t)
	output, err := list.Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	for path := range strings.FieldsSeq(string(output)) {
		if within(path, "github.com/minio") || path == module+"/internal/objects" {
			t.Errorf("a package of ours that others import needs %s, which belongs to cmd/moonloop", path)
		}
	}
}

// TestWitnessVersions requires that the modules of the acceptance runs' Collector are of one release, too. The builder's own version decides
// the version of the core, so the two must be equal.
func TestWitnessVersions(t *testing.T) {
	for _, problem := range mixedFamilies(named(t, "Makefile", "test/acceptance/collector/builder.yaml")) {
		t.Error(problem)
	}
}

// TestDistributionVersions requires that the versions in doc.go (the builder's) and builder.yaml (those of components) agree with go.mod,
// which decides what is compiled: the binary prints the versions of builder.yaml.
func TestDistributionVersions(t *testing.T) {
	compiled := required(t, distribution)
	names := named(t, distribution+"/builder.yaml", distribution+"/doc.go")
	for _, problem := range mixedFamilies(slices.Concat(compiled, names)) {
		t.Error(problem)
	}
	for _, name := range names {
		path, _, _ := strings.Cut(name, " ")
		if path != module && !strings.HasSuffix(path, "/cmd/builder") && !slices.Contains(compiled, name) {
			t.Errorf("the distribution's builder.yaml or doc.go names %s, but go.mod has another version or none", name)
		}
	}
}

// required returns "path version" of each module that the go.mod in a folder requires.
func required(t *testing.T, folder string) []string {
	t.Helper()
	root := filepath.Join(repositoryRoot(t), filepath.FromSlash(folder))
	// The tool reads go.mod itself; reading it here, too, tells the test cache on what the result depends.
	if _, err := os.ReadFile(filepath.Join(root, "go.mod")); err != nil {
		t.Fatal(err)
	}
	edit := exec.CommandContext(t.Context(), "go", "mod", "edit", "-json")
	edit.Dir = root
	output, err := edit.Output()
	if err != nil {
		t.Fatalf("go mod edit: %v", err)
	}
	var mod struct {
		Require []struct{ Path, Version string }
	}
	if err := json.Unmarshal(output, &mod); err != nil {
		t.Fatal(err)
	}
	lines := make([]string, 0, len(mod.Require))
	for _, r := range mod.Require {
		lines = append(lines, r.Path+" "+r.Version)
	}
	return lines
}

var moduleVersion = regexp.MustCompile(`(\S+\.\S+/\S+)[@ ](v\d+\.\d+\.\d+)`)

// named returns "path version" of each module that the files name with its version.
func named(t *testing.T, files ...string) []string {
	t.Helper()
	var lines []string
	for _, name := range files {
		content, err := os.ReadFile(filepath.Join(repositoryRoot(t), filepath.FromSlash(name)))
		if err != nil {
			t.Fatal(err)
		}
		found := moduleVersion.FindAllStringSubmatch(string(content), -1)
		if len(found) == 0 {
			t.Errorf("%s names no module with its version", name)
		}
		for _, match := range found {
			lines = append(lines, match[1]+" "+match[2])
		}
	}
	return lines
}

// mixedFamilies returns the errors in a list of "path version".
func mixedFamilies(required []string) []string {
	versions := make([]map[string]string, len(families)) // by family: version to a module that has it
	for _, line := range required {
		path, version, _ := strings.Cut(line, " ")
		if held, ok := heldBack[path]; ok && held == version {
			continue
		}
		for i, family := range families {
			if within(path, family.prefix) && strings.HasPrefix(version, family.major) {
				if versions[i] == nil {
					versions[i] = map[string]string{}
				}
				versions[i][version] = path
				break
			}
		}
	}
	var problems []string
	for i, family := range families {
		if len(versions[i]) > 1 {
			problems = append(problems, fmt.Sprintf("%s %sx at more than one version: %v", family.prefix, family.major, versions[i]))
		}
	}
	if len(problems) > 0 || len(versions[0]) == 0 || len(versions[1]) == 0 {
		return problems
	}
	stable, beta := minor(slices.Collect(maps.Keys(versions[0]))[0]), minor(slices.Collect(maps.Keys(versions[1]))[0])
	if beta-collectorOffset != stable {
		problems = append(problems, fmt.Sprintf("Collector v1.%d and v0.%d are not of one release: v0.n goes with v1.(n-%d)",
			stable, beta, collectorOffset))
	}
	return problems
}

// minor returns the second number of a version such as v0.162.0.
func minor(version string) int {
	var major, n, patch int
	if _, err := fmt.Sscanf(version, "v%d.%d.%d", &major, &n, &patch); err != nil {
		return -1
	}
	return n
}

func TestMixedFamilies(t *testing.T) {
	for _, c := range []struct {
		reason   string
		required []string
		want     []string
	}{
		{"one release", []string{
			"go.opentelemetry.io/collector/pdata v1.68.0", "go.opentelemetry.io/collector/featuregate v1.68.0",
			"go.opentelemetry.io/collector/receiver/otlpreceiver v0.162.0", "go.opentelemetry.io/otel v1.47.0",
			"go.opentelemetry.io/otel/exporters/prometheus v0.69.0", "github.com/google/go-cmp v0.7.0",
		}, nil},
		{"modules that are held back", []string{
			"go.opentelemetry.io/collector/pdata v1.68.0", contrib + "exporter/fileexporter v0.161.0", contrib + "exporter/awss3exporter v0.158.0",
		}, nil},
		{"an indirect line left behind", []string{
			"go.opentelemetry.io/collector/pdata v1.68.0", "go.opentelemetry.io/collector/featuregate v1.70.0",
		}, []string{
			"go.opentelemetry.io/collector v1.x at more than one version: " +
				"map[v1.68.0:go.opentelemetry.io/collector/pdata v1.70.0:go.opentelemetry.io/collector/featuregate]",
		}},
		{"stable and beta of two releases", []string{
			"go.opentelemetry.io/collector/pdata v1.68.0", "go.opentelemetry.io/collector/service v0.164.0",
		}, []string{"Collector v1.68 and v0.164 are not of one release: v0.n goes with v1.(n-94)"}},
		{"a module whose name only begins like that of a family", []string{
			"go.opentelemetry.io/otel v1.47.0", "go.opentelemetry.io/otelother v1.2.0",
		}, nil},
	} {
		if diff := cmp.Diff(c.want, mixedFamilies(c.required)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.reason, diff)
		}
	}
}
