// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"embed"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// helpTexts are the texts of --help. The folder help has a text with examples for each verb; the folder flags has a text for each flag.
//
//go:embed help flags
var helpTexts embed.FS

// helpWidth is the width of help texts, in columns.
const helpWidth = 80

// heading is the annotation of a flag with the heading under which --help lists it.
const heading = "heading"

// helpLists are the functions that write lists in help texts. A list's name in braces stands for the list.
var helpLists = map[string]func() string{"faults": faultHelp, "formats": formatHelp, "targets": targetHelp}

// describe sets the help of a command.
func describe(cmd *cobra.Command) {
	text, _ := helpTexts.ReadFile("help/" + cmd.Name() + ".txt") // TestHelp reads all files
	cmd.Long, cmd.Example, _ = strings.Cut(strings.TrimSuffix(string(text), "\n"), "\n\nExamples:\n")
	for name, list := range helpLists {
		if place := "{" + name + "}\n"; strings.Contains(cmd.Long, place) {
			cmd.Long = strings.ReplaceAll(cmd.Long, place, list())
		}
	}
	if cmd.HasParent() {
		cmd.Flags().SortFlags = false // --help lists them in the order in which they were added
		cmd.SetUsageFunc(usage)
		describeFlags(cmd)
	}
}

// describeFlags sets the texts of flags, and their headings. Lines that are indented further continue a text.
func describeFlags(cmd *cobra.Command) {
	texts, _ := helpTexts.ReadFile("flags/" + cmd.Name() + ".txt") // TestHelp checks that each flag has a text
	var f *pflag.Flag
	title := ""
	for line := range strings.SplitSeq(string(texts), "\n") {
		text := strings.TrimSpace(line)
		name, usage, _ := strings.Cut(text, ": ")
		switch {
		case strings.HasPrefix(line, "    "):
			f.Usage += " " + text
		case strings.HasPrefix(line, "  "):
			f = cmd.Flags().Lookup(name)
			f.Usage, f.Annotations = usage, map[string][]string{heading: {title}}
		default:
			title = strings.TrimSuffix(text, ":")
		}
	}
}

// usage writes what --help shows after the text: examples, flags under their headings, and their names in other tools.
func usage(cmd *cobra.Command) error {
	var b strings.Builder
	fmt.Fprintf(&b, "Usage:\n  %s\n\nExamples:\n%s\n", cmd.UseLine(), cmd.Example)
	var titles []string
	groups := map[string]*pflag.FlagSet{}
	cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
		title := "Flags"
		if titled := f.Annotations[heading]; titled != nil {
			title = titled[0]
		} else if len(titles) > 0 {
			title = titles[len(titles)-1] // --help
		}
		if groups[title] == nil {
			titles = append(titles, title)
			groups[title] = pflag.NewFlagSet("", pflag.ContinueOnError)
			groups[title].SortFlags = false
		}
		groups[title].AddFlag(f)
	})
	for _, title := range titles {
		fmt.Fprintf(&b, "\n%s:\n%s", title, groups[title].FlagUsagesWrapped(helpWidth))
	}
	if aliases := aliasesOf(cmd); len(aliases) > 0 {
		b.WriteString("\nNames in other tools:\n")
		cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
			ours := "--" + f.Name
			for _, alias := range slices.Sorted(maps.Keys(aliases)) {
				if aliases[alias] == f.Name {
					fmt.Fprintf(&b, "      %-20s --%s\n", ours, alias)
					ours = ""
				}
			}
		})
	}
	_, err := io.WriteString(cmd.OutOrStderr(), b.String())
	return err
}
