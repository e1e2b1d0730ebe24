// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"embed"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// helpTexts holds what --help says before the flags: a file for each verb, its examples last.
//
//go:embed help
var helpTexts embed.FS

// helpWidth is the width of help texts, in columns.
const helpWidth = 80

// heading is the annotation of a flag that has the heading under which --help lists it.
const heading = "heading"

// under puts the flags that were added since the last call under a heading.
func under(fs *pflag.FlagSet, title string) {
	fs.VisitAll(func(f *pflag.Flag) {
		if f.Annotations[heading] == nil {
			_ = fs.SetAnnotation(f.Name, heading, []string{title}) // the flag is there
		}
	})
}

// describe gives a command its help.
func describe(cmd *cobra.Command) {
	text, _ := helpTexts.ReadFile("help/" + cmd.Name() + ".txt") // TestHelp reads all of them
	cmd.Long, cmd.Example, _ = strings.Cut(strings.TrimSuffix(string(text), "\n"), "\n\nExamples:\n")
	cmd.Long = strings.ReplaceAll(cmd.Long, "{faults}\n", faultHelp())
	if cmd.HasParent() {
		cmd.SetUsageFunc(usage)
	}
}

// usage writes what --help says after the text: examples, flags under their headings, and their names in other tools.
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
			var names []string
			for alias, name := range aliases {
				if name == f.Name {
					names = append(names, "--"+alias)
				}
			}
			slices.Sort(names)
			for i, name := range names {
				ours := "--" + f.Name
				if i > 0 {
					ours = ""
				}
				fmt.Fprintf(&b, "      %-20s %s\n", ours, name)
			}
		})
	}
	_, err := io.WriteString(cmd.OutOrStderr(), b.String())
	return err
}
