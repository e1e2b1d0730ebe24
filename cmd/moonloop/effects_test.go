// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	_ "embed"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

// effectsTable says of each flag of replay what it does: see its first lines.
//
//go:embed testdata/effects/flags.txt
var effectsTable string

// effect is a line of the table.
type effect struct{ flag, args, how, sees string }

func effects(t *testing.T) (list []effect) {
	t.Helper()
	for line := range strings.Lines(effectsTable) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		cells := strings.SplitN(line, " | ", 4)
		if len(cells) != 4 {
			t.Fatalf("%q does not have four columns", line)
		}
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		list = append(list, effect{cells[0], cells[1], cells[2], cells[3]})
	}
	return list
}

// TestEveryFlagHasAnEffect: each flag of replay is in the table of effects, or in that of aliases with a claim about more than the run's own
// settings. So a new flag cannot be added without saying what it changes.
func TestEveryFlagHasAnEffect(t *testing.T) {
	known := map[string]bool{}
	for _, e := range effects(t) {
		known[e.flag] = true
	}
	for _, a := range aliases {
		claims := slices.DeleteFunc(strings.Split(a.sees, "; "), func(claim string) bool {
			return claim == "" || claim == "requests 4" || strings.HasPrefix(claim, "summary config.")
		})
		if (a.state == yes || a.state == partly) && len(claims) > 0 {
			for _, name := range regexp.MustCompile(`--([a-z0-9-]+)`).FindAllStringSubmatch(a.ours, -1) {
				known[name[1]] = true
			}
		}
	}
	fs := newReplayCommand().Flags()
	fs.VisitAll(func(f *pflag.Flag) {
		if !known[f.Name] && f.Name != "help" {
			t.Errorf("--%s: no line of testdata/effects/flags.txt says what it does", f.Name)
		}
	})
	for name := range known {
		if fs.Lookup(name) == nil {
			t.Errorf("--%s is in the table, and is no flag of replay", name)
		}
	}
}

// TestEveryFlagOfAgentAndTwin: each flag of these verbs has a test of what it does. The options of the service's runs are flags of replay, which
// the table has.
func TestEveryFlagOfAgentAndTwin(t *testing.T) {
	const serves, refuses = "cmd/moonloop.TestAgentServes", "cmd/moonloop.TestAgentRefuses"
	for verb, by := range map[string]map[string]string{
		"agent": {
			"listen": refuses, "token-env": refuses, "token-file": serves, "no-auth": refuses, "tls-cert": serves, "tls-key": serves,
			"allow-target": serves, "traces": serves, "out": serves, "api-key-file": serves, "api-key-env": refuses, "ca-file": refuses,
			"max-runs": "internal/service.TestOneAtATime", "keep-runs": "internal/service.TestRoom", "max-upload": "internal/service.TestUpload", "max-disk": "internal/service.TestRoom",
			"header": "agent.TestOptionHeadersAndKey", "header-env": "cmd/moonloop.TestEffects", "cert-file": "agent.TestOptionTLSAndHTTP2", "key-file": "agent.TestOptionTLSAndHTTP2",
			"insecure-skip-verify": "agent.TestOptionTLSAndHTTP2", "otlp-endpoint": "cmd/moonloop.TestEffects", "otlp-protocol": serves,
			"histograms": "agent/telemetry.TestExponentialHistograms", "trace-url": "agent/report/page.TestPageOfARun",
		},
		"twin": {
			"tolerance": "cmd/moonloop.TestTwinVerb", "json": "cmd/moonloop.TestTwinOfAnApplication", "markdown": "cmd/moonloop.TestTwinVerb", "html": "cmd/moonloop.TestTwinOfAnApplication",
		},
	} {
		found, _, err := newRootCommand().Find([]string{verb})
		if err != nil {
			t.Fatal(err)
		}
		found.Flags().VisitAll(func(f *pflag.Flag) {
			if f.Name != "help" && !testExists(t, by[f.Name]) {
				t.Errorf("%s --%s: no test shows what it does (%q)", verb, f.Name, by[f.Name])
			}
			delete(by, f.Name)
		})
		for name := range by {
			t.Errorf("%s has no flag --%s", verb, name)
		}
	}
}

// TestEffects runs each line of the table.
func TestEffects(t *testing.T) {
	t.Parallel()
	for _, e := range effects(t) {
		t.Run(e.flag+" "+e.how, func(t *testing.T) {
			if e.how == "tested" {
				if !testExists(t, e.sees) {
					t.Errorf("--%s: there is no test %s", e.flag, e.sees)
				}
				return
			}
			t.Parallel()
			args := append([]string{replayVerb, "TRACE", "--url", "ENGINE", "--model", "sim", "--progress", "none"}, strings.Fields(e.args)...)
			r := begin(t, traceFor(e.sees), args, map[string]string{"key": "key-0123456789", "run.yaml": "seed: 5\n"})()
			said := strings.Join(strings.Fields(r.said), " ")
			switch e.how {
			case "acts":
				if r.status == exitUsage || strings.Contains(said, "no effect") {
					t.Fatalf("exit status %d: %s", r.status, said)
				}
				r.see(t, e.sees, r.out+r.said)
			case "warns":
				if r.status == exitUsage || !strings.Contains(said+" "+strings.Join(strings.Fields(r.out), " "), e.sees) {
					t.Errorf("exit status %d, without the warning %q: %s", r.status, e.sees, said)
				}
			case "refused":
				if r.status != exitUsage || len(r.seen) > 0 || !strings.Contains(said, e.sees) {
					t.Errorf("exit status %d, %d requests, not refused with %q: %s", r.status, len(r.seen), e.sees, said)
				}
			default:
				t.Errorf("%q: want acts, warns, refused or tested", e.how)
			}
		})
	}
}

// testExists reports whether a package of the module has a test of this name: PACKAGE.NAME, the package by its folder.
func testExists(t *testing.T, name string) bool {
	t.Helper()
	folder, test, named := strings.Cut(name, ".")
	found := false
	if !named {
		return false
	}
	err := filepath.WalkDir(filepath.Join("..", "..", filepath.FromSlash(folder)), func(path string, d fs.DirEntry, err error) error {
		if err != nil || found || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		found = found || strings.Contains(string(text), "\nfunc "+test+"(t *testing.T)")
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}
