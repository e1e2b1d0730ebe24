// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package docs

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// page is a document with the blocks that are run or checked.
type page struct {
	name   string // file name from the repository's root
	blocks []block
}

// block is a fenced block.
type block struct {
	kind string // the info string
	line int    // of the page, where its text begins
	text string
}

var (
	fence  = regexp.MustCompile("^ *```(.*)$")
	marker = regexp.MustCompile(`^<!-- ci: \w+ -->$`)
)

// kinds are the info strings that a block may have.
var kinds = map[string]bool{"": true, "sh": true, "sh acceptance": true, "text": true, "console": true, "yaml": true, "json": true}

// parse reads the blocks of a page. Blocks that belong to .ci/run are left out.
func parse(name, text string) (page, error) {
	p := page{name: name}
	var open *block
	above := "" // the last line that is not blank
	for i, line := range strings.Split(text, "\n") {
		match := fence.FindStringSubmatch(line)
		switch {
		case open != nil && match == nil:
			open.text += line + "\n"
		case open != nil:
			if open.kind != "ci" {
				p.blocks = append(p.blocks, *open)
			}
			open = nil
		case match != nil:
			open = &block{kind: match[1], line: i + 2}
			if !kinds[open.kind] {
				return p, fmt.Errorf("%s:%d: no block is called %q here; see the package's documentation", name, i+1, open.kind)
			}
			if marker.MatchString(above) {
				open.kind = "ci"
			}
		}
		if strings.TrimSpace(line) != "" {
			above = line
		}
	}
	if open != nil {
		return p, fmt.Errorf("%s:%d: the block has no end", name, open.line-1)
	}
	return p, p.check()
}

// check returns an error if a block shows the output of no command.
func (p page) check() error {
	runs := false
	for _, b := range p.blocks {
		switch b.kind {
		case "sh":
			runs = true
		case "text", "console":
			if !runs {
				return fmt.Errorf("%s:%d: no command before this block prints it", p.name, b.line)
			}
		}
	}
	return nil
}

// commands returns what the page runs.
func (p page) commands() string {
	var all strings.Builder
	for _, b := range p.blocks {
		if b.kind == "sh" {
			all.WriteString(b.text)
		}
	}
	return all.String()
}

func TestParse(t *testing.T) {
	got, err := parse("p.md", "Text.\n\n```sh\na\nb\n```\n\n```text\nout\n```\n<!-- ci: demo -->\n```sh\nmake demo\n```\n")
	want := []block{{"sh", 4, "a\nb\n"}, {"text", 9, "out\n"}}
	if err != nil || cmp.Diff(want, got.blocks, cmp.AllowUnexported(block{})) != "" {
		t.Errorf("blocks %v, %v; want %v", got.blocks, err, want)
	}
	for text, want := range map[string]string{
		"```bash\na\n```\n": `p.md:1: no block is called "bash" here; see the package's documentation`,
		"\n```sh\na\n":      "p.md:2: the block has no end",
		"```text\na\n```\n": "p.md:2: no command before this block prints it",
	} {
		if _, err := parse("p.md", text); err == nil || err.Error() != want {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
}
