// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"bytes"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write cmd/moonloop/dependencies.txt anew")

const dependenciesHeader = `# Modules that the moonloop binary is made of (linux/amd64). Written by: make generate
# A new line here is a new dependency: say in the change why it is worth it.
`

// TestDependencies compares the modules of the binary with the committed list.
func TestDependencies(t *testing.T) {
	root := repositoryRoot(t)
	list := exec.CommandContext(t.Context(), "go", "list", "-deps", "-f", "{{with .Module}}{{.Path}}{{end}}", "./cmd/moonloop")
	list.Dir = root
	// One platform, so that every machine finds the same list.
	list.Env = append(os.Environ(), "GOOS=linux", "GOARCH=amd64", "CGO_ENABLED=0")
	var problems bytes.Buffer
	list.Stderr = &problems
	output, err := list.Output()
	if err != nil {
		t.Fatalf("go list: %v\n%s", err, &problems)
	}
	modules := slices.DeleteFunc(strings.Fields(string(output)), func(path string) bool { return path == module })
	slices.Sort(modules)
	got := dependenciesHeader + strings.Join(slices.Compact(modules), "\n") + "\n"

	name := filepath.Join(root, "cmd", "moonloop", "dependencies.txt")
	if *update {
		if err := os.WriteFile(name, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(name)
	if err != nil {
		t.Fatalf("%v; write it with: make generate", err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("the binary's modules are not those of dependencies.txt (-committed +actual); if they should be, run: make generate\n%s", diff)
	}
}
