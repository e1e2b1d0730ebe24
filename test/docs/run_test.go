// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package docs

import (
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/moonloop/moonloop/internal/testprogram"
)

// tools are programs that pages use besides our own.
var tools = []string{"bash", "curl", "jq", "openssl"}

// TestPages runs every page.
func TestPages(t *testing.T) {
	names, err := fs.Glob(os.DirFS(root), "docs/*.md")
	if err != nil || len(names) < 5 {
		t.Fatalf("%d pages: %v", len(names), err)
	}
	for _, name := range append(names, "README.md") {
		content, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			t.Fatal(err)
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, err := parse(name, string(content))
			if err != nil {
				t.Fatal(err)
			}
			for _, b := range p.blocks {
				switch b.kind {
				case "sh acceptance":
					b.check(t, p.name)
				case "yaml":
					b.checkYAML(t, p.name)
				case "json":
					if !json.Valid([]byte(b.text)) {
						t.Errorf("%s:%d: this is not JSON", p.name, b.line)
					}
				}
			}
			if p.commands() != "" {
				p.run(t, string(content))
			}
		})
	}
}

// run runs the page's commands, and fails if one fails or does not print what the page shows.
func (p page) run(t *testing.T, text string) {
	t.Helper()
	for _, tool := range tools {
		if _, err := exec.LookPath(tool); err != nil && strings.Contains(p.commands(), tool) {
			t.Skipf("%s is not installed", tool)
		}
	}
	if output, err := p.transcript(t, text); err != nil {
		t.Fatalf("%v\n%s", err, output)
	}
}

// transcript runs the page's commands and returns their output, and an error if that is not what the page shows.
func (p page) transcript(t *testing.T, text string) (string, error) {
	t.Helper()
	c := newCheckout(t, p.commands())
	p, err := parse(p.name, c.withPorts(t, text))
	if err != nil {
		return "", err
	}
	if engine := "localhost:" + c.port(t, "8000"); strings.Contains(p.commands(), engine) && !strings.Contains(p.commands(), "moonloop simulate") {
		c.start(t, engine)
	}

	var script strings.Builder
	script.WriteString("set -Eeuo pipefail\ntrap 'echo \"exit status $?: $BASH_COMMAND\"' ERR\n")
	for i, b := range p.blocks {
		if b.kind == "sh" {
			fmt.Fprintf(&script, "%s\nprintf '\\n%s\\n'\n", b.text, end(i))
		}
	}
	c.write(t, ".page.sh", script.String(), 0o600)
	output, failed := c.bash(t, ".page.sh")

	printed := "" // by the last block that ran
	rest := output
	for i, b := range p.blocks {
		switch b.kind {
		case "sh":
			var ended bool
			if printed, rest, ended = strings.Cut(rest, end(i)); !ended {
				return output, fmt.Errorf("%s:%d: %w: a command of this block failed, see the last line", p.name, b.line, failed)
			}
		case "text", "console":
			if err := kept(b.text, printed); err != nil {
				return output, fmt.Errorf("%s:%d: %w", p.name, b.line, err)
			}
		}
	}
	return output, failed
}

// end returns the line that is printed after a block.
func end(i int) string { return fmt.Sprintf("======== end of block %d", i) }

// bash runs a script of the checkout, and returns what it and the programs that it started have printed by its end.
func (c *checkout) bash(t *testing.T, script string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	log, err := os.Create(filepath.Join(c.dir, ".page.log"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = log.Close() }()
	shell := exec.CommandContext(ctx, "bash", script)
	shell.Dir = c.dir
	shell.Env = []string{"PATH=" + filepath.Join(c.dir, "bin") + ":" + os.Getenv("PATH"), "HOME=" + c.dir, "LANG=C.UTF-8", "TERM=dumb"}
	shell.Stdout, shell.Stderr = log, log
	shell.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // programs in the background end with the shell
	shell.Cancel = func() error { return syscall.Kill(-shell.Process.Pid, syscall.SIGKILL) }
	failed := shell.Run()
	if shell.Process != nil {
		_ = syscall.Kill(-shell.Process.Pid, syscall.SIGKILL)
	}
	output, err := os.ReadFile(log.Name())
	if err != nil {
		t.Fatal(err)
	}
	return string(output), failed
}

// start starts an engine that ends with the test, and waits until it listens.
func (c *checkout) start(t *testing.T, address string) {
	t.Helper()
	engine := exec.CommandContext(t.Context(), testprogram.File(t, "moonloop"), "simulate", "--listen", address)
	if err := engine.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = engine.Process.Kill()
		_ = engine.Wait()
	})
	for deadline := time.Now().Add(2 * time.Minute); ; time.Sleep(5 * time.Millisecond) {
		connection, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", address)
		if err == nil {
			_ = connection.Close()
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("the engine does not listen after two minutes: %v", err)
		}
	}
}
