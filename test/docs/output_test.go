// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package docs

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
)

// measured matches what may differ: a number with a decimal point, or an omission.
var measured = regexp.MustCompile(`-?\d[\d,]*\.\d+|…`)

// promise returns a pattern for the lines that keep the promise of a line of a page. The package's documentation has the rules.
func promise(line string) *regexp.Regexp {
	fields := strings.Fields(line)
	for i, field := range fields {
		pattern, rest := "", field
		for _, at := range measured.FindAllStringIndex(field, -1) {
			pattern += regexp.QuoteMeta(field[len(field)-len(rest) : at[0]])
			if field[at[0]:at[1]] == "…" {
				pattern += `.*`
			} else {
				pattern += `-?[\d,]+(\.\d+)?`
			}
			rest = field[at[1]:]
		}
		fields[i] = pattern + regexp.QuoteMeta(rest)
	}
	if len(fields) > 1 && fields[0] == "Verdict" {
		fields = []string{"Verdict", "(valid|too few to judge|degraded|invalid)"}
	}
	return regexp.MustCompile(`^\s*` + strings.Join(fields, `\s+`) + `\s*$`)
}

// kept returns an error that names the first shown line that the output does not have after the shown lines before it.
func kept(shown, output string) error {
	lines := strings.Split(output, "\n")
	for line := range strings.Lines(shown) {
		line = strings.TrimSpace(line)
		if line == "" || line == "…" {
			continue
		}
		want, found := promise(line), false
		for !found && len(lines) > 0 {
			found = want.MatchString(lines[0])
			lines = lines[1:]
		}
		if !found {
			return fmt.Errorf("not printed, or not after the lines before it: %s", line)
		}
	}
	return nil
}

func TestKept(t *testing.T) {
	const output = `moonloop: started
Rows        300 served, 0 failed
            27.92 s, 1,381.37 on average
Schedule    lateness p99 5.86, max 7 ms; over 1 ms 96
Verdict     degraded
            degraded: hiccup_share 18.32 % > 10 %
results in run1
`
	for shown, want := range map[string]bool{
		"Rows 300 served, 0 failed":                            true, // white space
		"Rows 300 served, 1 failed":                            false,
		"Rows 301 served, 0 failed":                            false,
		"Rows 300 served":                                      false, // a line must match completely
		"Rows 300 …":                                           true,
		"3.1 s, 4.1 on average":                                true, // measured
		"3.1 s, 4 on average":                                  false,
		"Schedule lateness p99 1.5, max 2.5 ms; …":             true, // a measured number may be whole
		"Verdict valid":                                        true,
		"Verdict fine":                                         true, // any class
		"results in run1\nRows 300 served, 0 failed":           false,
		"Rows 300 served, 0 failed\n…\n\nresults in run1":      true,
		"Rows 300 served, 0 failed\nRows 300 served, 0 failed": false, // each line once
		"results in run.":                                      false, // no pattern
	} {
		if err := kept(shown, output); (err == nil) != want {
			t.Errorf("%q: %v, want it kept: %v", shown, err, want)
		}
	}
	if kept("Verdict valid", "Rows 300") == nil {
		t.Error("a verdict is found where none is")
	}
}
