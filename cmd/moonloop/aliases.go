// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	_ "embed"
	"slices"
	"strings"
)

// This file reads the tables of other replay tools' flags and their meaning here: aliases.txt and families.txt. The help, the completion of
// shells, the page docs/from-other-tools.md and its test are generated from them. translate.go applies them.

//go:embed aliases.txt
var aliasTable string

//go:embed families.txt
var familyTable string

// The tools whose command lines are accepted.
const (
	aiperf      = "aiperf"
	vllm        = "vllm"
	guidellm    = "guidellm"
	traceReplay = "tracereplay"
	vllms       = vllm + " " + traceReplay
)

// anyTool marks alternative spellings of our own flags, which any command line may have.
const anyTool = "moonloop"

var toolNames = map[string]string{aiperf: "AIPerf", vllm: "vLLM bench serve", guidellm: "GuideLLM", traceReplay: "UCM TraceReplay"}

// What a flag becomes, apart from "yes" and "partly":
const (
	ignored = "no effect"
	refused = "refused"
)

// alias is a flag of other tools: a line of aliases.txt, which describes the columns.
type alias struct {
	tools, name, takes, ours, state, note, try, sees string

	do action
}

// of reports whether a tool's command lines have the flag with this meaning.
func (a alias) of(tool string) bool {
	return a.tools == anyTool || slices.Contains(strings.Fields(a.tools), tool)
}

// renames reports whether the flag only has another name here.
func (a alias) renames() bool { return a.do == nil && strings.HasPrefix(a.ours, "--") }

// family is a group of other tools' flags that have no equivalent here, for one reason: an entry of families.txt.
type family struct{ tools, about, state, note, flags string }

var (
	reasons = readReasons()
	// rows are the flags that have a meaning of their own; aliases are all flags, with those of the families.
	rows     = readAliases()
	families = readFamilies()
	aliases  = append(slices.Clip(rows), familyFlags()...)
	peers    = plainNames()
)

// tableLines returns the lines of a table that are neither empty nor comments.
func tableLines(table string) (lines []string) {
	for line := range strings.SplitSeq(table, "\n") {
		if line != "" && line[0] != '#' {
			lines = append(lines, line)
		}
	}
	return lines
}

func cellsIn(line string) []string {
	cells := strings.Split(line, "|")
	for i, cell := range cells {
		cells[i] = strings.TrimSpace(cell)
	}
	return cells
}

// readReasons returns the reasons that several notes share.
func readReasons() map[string]string {
	all := map[string]string{}
	for _, line := range tableLines(aliasTable) {
		if line[0] == '@' {
			name, text, _ := strings.Cut(line[1:], " ")
			all[name] = text
		}
	}
	return all
}

// note returns a note with the shared reason that it refers to, if any.
func note(text string) string {
	before, rest, _ := strings.Cut(text, "{")
	name, after, shared := strings.Cut(rest, "}")
	if !shared {
		return text
	}
	return before + reasons[name] + after
}

func readAliases() (all []alias) {
	for _, line := range tableLines(aliasTable) {
		if line[0] == '@' {
			continue
		}
		c := cellsIn(line)
		a := alias{tools: c[0], name: c[1], takes: c[2], ours: c[3], state: c[4], note: note(c[5]), try: c[6], sees: c[7]}
		if how, about, _ := strings.Cut(c[8], " "); how != "" {
			a.do = actions[how](about)
		}
		all = append(all, a)
	}
	return all
}

func readFamilies() (all []family) {
	for _, line := range tableLines(familyTable) {
		if line[0] == ' ' {
			all[len(all)-1].flags += line
			continue
		}
		c := cellsIn(line)
		all = append(all, family{tools: c[0], about: c[1], state: c[2], note: note(c[3])})
	}
	return all
}

// familyFlags returns the flags of all families.
func familyFlags() (flags []alias) {
	for _, f := range families {
		for word := range strings.FieldsSeq(f.flags) {
			name, many, valued := strings.Cut(word, "=")
			takes := ""
			if valued {
				takes = "V" + many
			}
			flags = append(flags, alias{tools: f.tools, name: name, takes: takes, state: f.state, note: f.note})
		}
	}
	return flags
}

// plainNames returns the flags that only have another name here, each with our name.
func plainNames() map[string]string {
	names := make(map[string]string)
	for _, a := range aliases {
		if a.renames() && a.ours != "--"+a.name {
			first, _, _ := strings.Cut(a.ours, ",")
			names[a.name] = strings.TrimPrefix(first, "--")
		}
	}
	return names
}
