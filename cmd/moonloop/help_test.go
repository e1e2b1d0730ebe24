// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"io"
	"io/fs"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"

	"github.com/moonloop/moonloop/internal/simulator"
)

// helpOf returns what --help of a verb prints.
func helpOf(t *testing.T, verb string) string {
	t.Helper()
	var out bytes.Buffer
	if status := run(t.Context(), []string{verb, "--help"}, strings.NewReader(""), &out, io.Discard); status != exitOK {
		t.Fatalf("%s --help: exit status %d", verb, status)
	}
	return out.String()
}

// optional matches the parts of a usage line that are not required of every call, and the flags of replay after "--".
var optional = regexp.MustCompile(`\[[^]]*\]|\{[^}]*\}| -- .*`)

// TestHelp: each verb has a text, examples and a line for each of its flags, the usage line shows exactly the required ones, and everything
// fits 80 columns.
func TestHelp(t *testing.T) {
	alone(t)
	texts := map[string]bool{"moonloop": true}
	for _, verb := range newRootCommand().Commands() {
		if verb.Name() == "help" {
			continue
		}
		texts[verb.Name()] = true
		help := helpOf(t, verb.Name())
		if verb.Long == "" || !strings.HasPrefix(help, verb.Long) || verb.Example == "" || !strings.Contains(help, verb.Example) {
			t.Errorf("%s: the help lacks its text (%d bytes) or its examples (%d)", verb.Name(), len(verb.Long), len(verb.Example))
		}
		for line := range strings.Lines(help) {
			if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > helpWidth {
				t.Errorf("%s: a line of %d columns: %s", verb.Name(), n, line)
			}
		}
		verb.Flags().VisitAll(func(f *pflag.Flag) {
			if f.Usage == "" {
				t.Errorf("%s: no text for --%s in flags/%s.txt", verb.Name(), f.Name, verb.Name())
			}
			shown := slices.Contains(strings.Fields(optional.ReplaceAllString(verb.Use, "")), "--"+f.Name)
			if required := strings.Contains(f.Usage, "(required"); shown != required {
				t.Errorf("%s: --%s is required: by its text %t, by the usage line %t", verb.Name(), f.Name, required, shown)
			}
			if title := f.Annotations[heading]; len(title) == 1 && title[0] == "" {
				t.Errorf("%s: no heading for --%s in flags/%s.txt", verb.Name(), f.Name, verb.Name())
			}
			if lines := regexp.MustCompile(`(?m)^  (-., |    )--`+f.Name+` `).FindAllString(listed(help), -1); len(lines) != 1 {
				t.Errorf("%s: %d lines for --%s, want 1", verb.Name(), len(lines), f.Name)
			}
		})
	}
	files, err := fs.Glob(helpTexts, "help/*")
	if err != nil || len(files) != len(texts) {
		t.Errorf("texts %v (%v), want those of %v", files, err, texts)
	}
	for verb, name := range map[string]string{"capture": "$" + hashKeyEnv, "compile": "$" + hashKeyEnv, "convert": "$" + hashKeyEnv, "simulate": simulator.HeaderFault} {
		if !strings.Contains(helpOf(t, verb), name) {
			t.Errorf("%s: the help does not name %s", verb, name)
		}
	}
}

// listed returns a help text without the names that flags have in other tools.
func listed(help string) string {
	help, _, _ = strings.Cut(help, "\nNames in other tools:")
	return help
}

// TestConvertHelp: the block size, which is that of the trace that is written, is under Output.
func TestConvertHelp(t *testing.T) {
	_, output, _ := strings.Cut(helpOf(t, "convert"), "\nOutput:\n")
	if output, _, _ = strings.Cut(output, "\n\n"); !strings.Contains(output, "--block-size") {
		t.Errorf("--block-size is not under Output:\n%s", output)
	}
}

// TestReplayHelp: the flags of a replay are under headings, and the names that they have in other tools at the end.
func TestReplayHelp(t *testing.T) {
	help := helpOf(t, replayVerb)
	_, flags, _ := strings.Cut(help, "\nExamples:\n")
	var titles []string
	for _, m := range regexp.MustCompile(`(?m)^(\w[\w ]*):$`).FindAllStringSubmatch(flags, -1) {
		titles = append(titles, m[1])
	}
	want := []string{
		"Engine", "Load", "Trace", "Prompts and replies", "Keys and certificates", "Connections", "Goals", "Telemetry", "Output", "Names in other tools",
	}
	if diff := cmp.Diff(want, titles); diff != "" {
		t.Errorf("headings (-want +got):\n%s", diff)
	}
	section := strings.Join(strings.Fields(strings.TrimPrefix(help, listed(help))), " ") + " "
	for alias, name := range peers {
		if !strings.Contains(section, "--"+alias+" ") || !strings.Contains(section, " --"+name+" --") {
			t.Errorf("--%s, another tool's name of --%s, is not listed", alias, name)
		}
	}
}
