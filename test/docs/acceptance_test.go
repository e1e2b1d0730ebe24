// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package docs

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"go.opentelemetry.io/collector/confmap"

	"github.com/moonloop/moonloop/internal/testprogram"
)

// check parses the commands of a block without running them, and fails for errors that can be found that way.
func (b block) check(t *testing.T, name string) {
	t.Helper()
	calls, err := parsed(t, b.text)
	if err != nil {
		t.Errorf("%s:%d: %v", name, b.line, err)
		return
	}
	for _, call := range calls {
		for _, problem := range problems(t, call) {
			t.Errorf("%s:%d: %s: %s", name, b.line, strings.Join(call, " "), problem)
		}
	}
}

// checkYAML does the same for the scripts in a YAML block, and checks that the files that the block names exist.
func (b block) checkYAML(t *testing.T, name string) {
	t.Helper()
	retrieved, err := confmap.NewRetrievedFromYAML([]byte(b.text))
	if err != nil {
		t.Errorf("%s:%d: %v", name, b.line, err)
		return
	}
	value, err := retrieved.AsRaw()
	if err != nil {
		t.Errorf("%s:%d: %v", name, b.line, err)
		return
	}
	eachScalar("", value, func(key, value string) {
		if key == "run" {
			block{"sh acceptance", b.line, value}.check(t, name)
			return
		}
		for _, missing := range missingFiles(t, []string{value}) {
			t.Errorf("%s:%d: %s", name, b.line, missing)
		}
	})
}

// eachScalar calls visit for every text in a YAML value, with its key.
func eachScalar(key string, value any, visit func(key, value string)) {
	switch value := value.(type) {
	case string:
		visit(key, value)
	case []any:
		for _, element := range value {
			eachScalar(key, element, visit)
		}
	case map[string]any:
		for key, element := range value {
			eachScalar(key, element, visit)
		}
	}
}

// recorder is the beginning of a script in which no command is found: bash expands each command, and its words are recorded instead.
const recorder = `PATH=/nonexistent
command_not_found_handle() { printf '%s\0' "$#" "$@" >>calls; }
`

// parsed returns the commands that a script would run, each with its arguments. Builtins of bash do run.
func parsed(t *testing.T, script string) ([][]string, error) {
	t.Helper()
	// The function does not see commands that are paths, so programs in bin are called by name.
	script = recorder + regexp.MustCompile(`\bbin/(otelcol-)?moonloop\b`).ReplaceAllString(script, "${1}moonloop")
	dir := t.TempDir()
	file := filepath.Join(dir, "script")
	if err := os.WriteFile(file, []byte(script), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(t.Context(), "bash", "-n", file).CombinedOutput(); err != nil {
		return nil, fmt.Errorf("%w: %s", err, out)
	}
	bash := exec.CommandContext(t.Context(), "bash", file)
	bash.Dir = dir
	out, _ := bash.CombinedOutput() // a builtin may fail, for example a test of a file
	content, err := os.ReadFile(filepath.Join(dir, "calls"))
	if err != nil {
		return nil, fmt.Errorf("no command: %s", out)
	}
	words := strings.Split(strings.TrimSuffix(string(content), "\x00"), "\x00")
	var calls [][]string
	for len(words) > 0 {
		n, err := strconv.Atoi(words[0])
		if err != nil || n >= len(words) {
			return nil, fmt.Errorf("commands are mixed: %q", words)
		}
		calls = append(calls, words[1:1+n])
		words = words[1+n:]
	}
	return calls, nil
}

// problems returns the errors in a command.
func problems(t *testing.T, call []string) []string {
	t.Helper()
	found := missingFiles(t, call[1:])
	if call[0] == "make" {
		found = append(found, missingTargets(t, call[1:])...)
	}
	if args := arguments(call); args != nil {
		help := exec.CommandContext(t.Context(), testprogram.File(t, "moonloop"), append(slices.Clone(args), "--help")...)
		if out, err := help.CombinedOutput(); err != nil {
			line, _, _ := bytes.Cut(out, []byte("\n"))
			found = append(found, string(line))
		}
	}
	return found
}

// arguments returns those of moonloop in a command that runs it, directly or in a container, else nil.
func arguments(call []string) []string {
	i := slices.Index(call, "moonloop")
	if run := slices.Index(call, "run"); i < 0 && run > 0 && call[0] == "docker" { // docker compose run [FLAG…] SERVICE [ARGUMENT…]
		i = run + 1
		for i < len(call) && strings.HasPrefix(call[i], "-") {
			i++
		}
	}
	if i < 0 || i+1 >= len(call) || i > 0 && !slices.Contains(call, "run") {
		return nil
	}
	return call[i+1:]
}

// missingFiles returns the files that words name as files of the repository, but that it does not have.
func missingFiles(t *testing.T, words []string) []string {
	t.Helper()
	var missing []string
	for _, word := range words {
		for _, part := range strings.FieldsFunc(word, func(r rune) bool { return strings.ContainsRune("=,:@ ", r) }) {
			part = strings.TrimPrefix(part, "./")
			if !ofRepository(part) {
				continue
			}
			if found, err := filepath.Glob(filepath.Join(root, part)); err != nil || len(found) == 0 {
				missing = append(missing, "the repository has no "+part)
			}
		}
	}
	return missing
}

// ofRepository reports whether a word can only be a file of the repository: it is in one of its folders, or a configuration.
func ofRepository(word string) bool {
	folder, _, below := strings.Cut(word, "/")
	if !below {
		return filepath.Ext(word) == ".yaml"
	}
	info, err := os.Stat(filepath.Join(root, folder))
	return err == nil && info.IsDir() && !slices.Contains([]string{"", ".", "..", "bin", "build"}, folder)
}

// missingTargets returns the targets among the arguments of make that the Makefile does not have.
func missingTargets(t *testing.T, args []string) []string {
	t.Helper()
	makefile, err := os.ReadFile(filepath.Join(root, "Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	var missing []string
	for _, arg := range args {
		if !strings.ContainsAny(arg, "-=") && !regexp.MustCompile(`(?m)^`+regexp.QuoteMeta(arg)+`:`).Match(makefile) {
			missing = append(missing, "make has no target "+arg)
		}
	}
	return missing
}

func TestProblems(t *testing.T) {
	t.Parallel()
	for script, want := range map[string]string{
		"moonloop replay t.jsonl --url http://e:1 --speedup 10 | tee log":           "",
		"moonloop replay t.jsonl --speed-up 10":                                     "moonloop: error: --speed-up: there is no such flag",
		"x=1; bin/moonloop inspect t.jsonl --nope":                                  "moonloop: error: --nope: there is no such flag",
		"docker run --rm moonloop inspect t.jsonl --nope":                           "moonloop: error: --nope: there is no such flag",
		"docker compose -f examples/compose/compose.yaml run --rm r inspect --nope": "moonloop: error: --nope: there is no such flag",
		"docker build -t moonloop .":                                                "",
		"kubectl apply -f examples/nothing.yaml":                                    "the repository has no examples/nothing.yaml",
		"kubectl create configmap m --from-file=a=examples/nothing.yaml":            "the repository has no examples/nothing.yaml",
		"otelcol-moonloop --config nothing.yaml":                                    "the repository has no nothing.yaml",
		"make build":                                                                "",
		"make nothing TRACE=a":                                                      "make has no target nothing",
		"for i in 1; do docker ps":                                                  "syntax error",
		"export A=1":                                                                "no command",
	} {
		calls, err := parsed(t, script)
		got := fmt.Sprint(err)
		if err == nil {
			var all []string
			for _, call := range calls {
				all = append(all, problems(t, call)...)
			}
			got = strings.Join(all, "\n")
		}
		if want == "" && got != "" || !strings.Contains(got, want) {
			t.Errorf("%s: %q, want %q", script, got, want)
		}
	}
}
