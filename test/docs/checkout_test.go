// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package docs

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/moonloop/moonloop/internal/testport"
	"github.com/moonloop/moonloop/internal/testprogram"
)

const root = "../.." // of the repository, from this package

// checkout is a folder in which the commands of a page run.
type checkout struct {
	dir   string
	ports map[string]string // by the port that the page names
}

// named matches the ports that pages and configurations name: of engines, of Collectors, and of their destinations.
var named = regexp.MustCompile(`(:|port: )(8000|8090|4317|4318|14317|14318|24317|13133|23133|8888|28888|2880[1-3]|9090|9464)\b`)

// wrapper runs moonloop as pages do, on ports of the checkout instead of standard ports. A machine that is too busy makes a replay's
// measurement invalid, which is not the page's fault: the replay ends with the status that it has on an idle machine.
const wrapper = `#!/bin/sh
verb=$1
case $verb in
capture) shift; exec 'MOONLOOP' capture --grpc 127.0.0.1:4317 --http 127.0.0.1:4318 "$@" ;;
agent) shift; exec 'MOONLOOP' agent --listen 127.0.0.1:8090 "$@" ;;
simulate)
	shift
	case " $* " in *' --listen '*) ;; *) set -- --listen 127.0.0.1:8000 "$@" ;; esac
	exec 'MOONLOOP' simulate "$@"
	;;
replay) ;;
*) exec 'MOONLOOP' "$@" ;;
esac
output=$(mktemp .replay.XXXXXX)
'MOONLOOP' "$@" >"$output" 2>&1
status=$?
cat "$output"
if [ $status = 3 ]; then
	status=0
	if grep -q '^Missed ' "$output"; then status=1; fi
fi
exit $status
`

// newCheckout returns a checkout with the programs that the commands use.
func newCheckout(t *testing.T, commands string) *checkout {
	t.Helper()
	c := &checkout{dir: t.TempDir(), ports: map[string]string{}}
	entries, err := os.ReadDir(root)
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		switch name := entry.Name(); name {
		case ".git", "bin", "build", "examples", "otelcol-config.yaml":
		default:
			target, err := filepath.Abs(filepath.Join(root, name))
			if err != nil {
				t.Fatal(err)
			}
			if err := os.Symlink(target, filepath.Join(c.dir, name)); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := os.CopyFS(filepath.Join(c.dir, "examples"), os.DirFS(filepath.Join(root, "examples"))); err != nil {
		t.Fatal(err)
	}
	configs, err := filepath.Glob(filepath.Join(root, "examples/capture/*.yaml"))
	if err != nil || len(configs) == 0 {
		t.Fatalf("no configurations: %v", err)
	}
	for _, config := range append(configs, filepath.Join(root, "examples/collector.yaml"), filepath.Join(root, "otelcol-config.yaml")) {
		content, err := os.ReadFile(config)
		if err != nil {
			t.Fatal(err)
		}
		name, err := filepath.Rel(root, config)
		if err != nil {
			t.Fatal(err)
		}
		c.write(t, name, c.withPorts(t, string(content)), 0o600)
	}
	c.write(t, "bin/moonloop", c.withPorts(t, strings.ReplaceAll(wrapper, "MOONLOOP", testprogram.File(t, "moonloop"))), 0o700)
	if strings.Contains(commands, "otelcol-moonloop") {
		if err := os.Symlink(testprogram.File(t, "otelcol-moonloop"), filepath.Join(c.dir, "bin", "otelcol-moonloop")); err != nil {
			t.Fatal(err)
		}
	}
	return c
}

// write writes a file of the checkout.
func (c *checkout) write(t *testing.T, name, content string, mode os.FileMode) {
	t.Helper()
	name = filepath.Join(c.dir, name)
	if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(content), mode); err != nil {
		t.Fatal(err)
	}
}

// withPorts replaces the ports in a text by free ones. New ones are in the order of those that they replace, as tables of engines are
// sorted by address.
func (c *checkout) withPorts(t *testing.T, text string) string {
	t.Helper()
	var names, ports []string
	for _, match := range named.FindAllStringSubmatch(text, -1) {
		if name := match[2]; c.ports[name] == "" && !slices.Contains(names, name) {
			names, ports = append(names, name), append(ports, testport.Port(t))
		}
	}
	slices.Sort(names)
	slices.Sort(ports)
	for i, name := range names {
		c.ports[name] = ports[i]
	}
	return named.ReplaceAllStringFunc(text, func(match string) string {
		prefix := match[:strings.LastIndexAny(match, ": ")+1]
		return prefix + c.port(t, strings.TrimPrefix(match, prefix))
	})
}

// port returns the free port that replaces another.
func (c *checkout) port(t *testing.T, name string) string {
	t.Helper()
	if c.ports[name] == "" {
		c.ports[name] = testport.Port(t)
	}
	return c.ports[name]
}
