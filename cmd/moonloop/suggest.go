// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// nearest returns the known words that a mistyped one may stand for: those that it begins, and those within the fewest
// slips of the keys, at most one for each three letters.
func nearest(typed string, known []string) (near []string) {
	typed = strings.ToLower(typed)
	best := min(3, (len(typed)+2)/3)
	for _, word := range slices.Sorted(slices.Values(known)) {
		switch d := slips(typed, strings.ToLower(word)); {
		case d < best:
			best, near = d, []string{word}
		case d == best:
			near = append(near, word)
		}
	}
	for _, word := range slices.Sorted(slices.Values(known)) {
		if len(typed) > 2 && strings.HasPrefix(word, typed) && !slices.Contains(near, word) {
			near = append(near, word)
		}
	}
	return near[:min(len(near), 4)]
}

// slips counts the letters to insert, leave out or replace, and the neighbours to swap, to make one word of another
// (optimal string alignment).
func slips(a, b string) int {
	var rows [3][]int
	for i := range rows {
		rows[i] = make([]int, len(b)+1)
	}
	for j := range rows[0] {
		rows[0][j] = j
	}
	for i := 1; i <= len(a); i++ {
		row, above, before := rows[i%3], rows[(i+2)%3], rows[(i+1)%3]
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			row[j] = min(above[j]+1, row[j-1]+1, above[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
	}
	return rows[len(a)%3][len(b)]
}

// flagNames returns the names that a verb's flags have, its other tools' ones included.
func flagNames(cmd *cobra.Command) []string {
	names := slices.Collect(maps.Keys(aliasesOf(cmd)))
	cmd.Flags().VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
	return names
}

// didYouMean completes a message with what may have been meant; "" where nothing is near.
func didYouMean(near []string, before string) string {
	if len(near) == 0 {
		return ""
	}
	return "; did you mean " + before + strings.Join(near, " or "+before) + "?"
}

// otherVerbs are words of other tools for our verbs.
var otherVerbs = map[string]string{
	"attack": "replay", "bench": "replay", "benchmark": "replay", "profile": "replay", "run": "replay", "load": "replay",
	"record": "capture", "listen": "capture", "collect": "capture", "import": "convert", "analyze": "inspect",
	"analyse": "inspect", "analyze-trace": "inspect", "stats": "inspect", "show": "inspect", "check": "inspect",
	"diff": "inspect", "compare": "inspect", "serve": "simulate", "mock": "simulate", "server": "simulate",
	"synthesize": "generate", "synth": "generate", "version": "--version",
}

// noSuchCommand is the error of a verb that does not exist.
func noSuchCommand(parent *cobra.Command, name string) error {
	var near []string
	if ours, known := otherVerbs[name]; known && !parent.HasParent() {
		near = []string{ours}
	} else {
		var verbs []string
		for _, c := range parent.Commands() {
			verbs = append(verbs, c.Name())
		}
		near = nearest(name, verbs)
	}
	return hintError{
		fmt.Errorf("%s: there is no such command%s", quoted(name), didYouMean(near, parent.CommandPath()+" ")),
		fmt.Sprintf("%q lists the commands", parent.CommandPath()+" --help"),
	}
}

// findCommand returns the verb that a command line names. The library's own error is not fit to be read.
func findCommand(root *cobra.Command, args []string) (*cobra.Command, error) {
	root.InitDefaultHelpCmd()
	verb, _, err := root.Find(args)
	if err == nil || strings.HasPrefix(args[0], cobra.ShellCompRequestCmd) {
		return verb, nil
	}
	for _, a := range args {
		if !strings.HasPrefix(a, "-") { // no flag of the root has a value
			return nil, noSuchCommand(root, a)
		}
	}
	return verb, nil
}

// wordCompletion completes the library's own verb: without a shell, or with one that it does not know, it would show its
// help and succeed.
func wordCompletion(root *cobra.Command) {
	root.InitDefaultCompletionCmd()
	for _, c := range root.Commands() {
		if c.Name() != "completion" {
			continue
		}
		var shells []string
		for _, shell := range c.Commands() {
			shells = append(shells, shell.Name())
			shell.Args = noInputs
		}
		c.Use, c.Short = "completion SHELL", "Write a shell's completion script: "+strings.Join(shells, ", ")
		c.Args = cobra.ArbitraryArgs
		c.RunE = func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return hintError{errors.New("completion takes a shell, and none was given"), "name one: " + strings.Join(shells, ", ")}
			}
			return hintError{
				fmt.Errorf("%s: there is no completion for this shell%s", quoted(args[0]), didYouMean(nearest(args[0], shells), "")),
				"name one: " + strings.Join(shells, ", "),
			}
		}
	}
}

// newHelpCommand is the library's own, but for a topic that does not exist: that is an error.
func newHelpCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "help [COMMAND]",
		Short: "Help about any command",
		Long:  `Help shows the help of a command, like "moonloop COMMAND --help".`,
		ValidArgsFunction: func(cmd *cobra.Command, args []string, _ string) (names []string, _ cobra.ShellCompDirective) {
			if topic, rest, err := cmd.Root().Find(args); err == nil && len(rest) == 0 {
				for _, c := range topic.Commands() {
					names = append(names, c.Name())
				}
			}
			return names, cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			topic := cmd.Root()
			for _, name := range args {
				i := slices.IndexFunc(topic.Commands(), func(c *cobra.Command) bool { return c.Name() == name })
				if i < 0 {
					return noSuchCommand(topic, name)
				}
				topic = topic.Commands()[i]
			}
			topic.InitDefaultHelpFlag()
			topic.InitDefaultVersionFlag()
			return topic.Help()
		},
	}
}
