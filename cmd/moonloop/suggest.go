// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// nearest returns the known words that a mistyped one may mean: those that begin with it, and those with the fewest typing errors, at most
// one for every three letters. The library suggests commands, so the words are turned into commands.
func nearest(typed string, known []string) []string {
	words := &cobra.Command{}
	for _, word := range slices.Compact(slices.Sorted(slices.Values(known))) {
		words.AddCommand(&cobra.Command{Use: word, Run: func(*cobra.Command, []string) {}})
	}
	for slips := 1; slips <= min(3, (len(typed)+2)/3); slips++ {
		words.SuggestionsMinimumDistance = slips
		if near := words.SuggestionsFor(typed); len(near) > 0 {
			return near[:min(len(near), 4)]
		}
	}
	return nil
}

// flagNames returns the names of a verb's flags, including those of other tools.
func flagNames(cmd *cobra.Command) []string {
	var names []string
	if cmd.Name() == replayVerb {
		for _, a := range rows { // not the families, which have no meaning here
			names = append(names, a.name)
		}
	}
	cmd.Flags().VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
	return names
}

// didYouMean returns suggestions for the end of a message; "" if there are none.
func didYouMean(near []string, before string) string {
	if len(near) == 0 {
		return ""
	}
	return "; did you mean " + before + strings.Join(near, " or "+before) + "?"
}

// otherVerbs are other tools' words for our verbs.
var otherVerbs = map[string]string{
	"replay": "attack bench benchmark profile run load", "capture": "record listen collect", "convert": "import",
	"inspect":  "analyze analyse analyze-trace stats show check diff compare",
	"simulate": "serve mock server", "generate": "synthesize synth", "--version": "version",
}

// noSuchCommand returns the error for a verb that does not exist.
func noSuchCommand(parent *cobra.Command, name string) error {
	var near []string
	for ours, words := range otherVerbs {
		if !parent.HasParent() && slices.Contains(strings.Fields(words), name) {
			near = []string{ours}
		}
	}
	if near == nil {
		near = nearest(name, commandNames(parent))
	}
	return hintError{
		fmt.Errorf("%s: there is no such command%s", quoted(name), didYouMean(near, parent.CommandPath()+" ")),
		fmt.Sprintf("%q lists the commands", parent.CommandPath()+" --help"),
	}
}

func commandNames(parent *cobra.Command) (names []string) {
	for _, c := range parent.Commands() {
		names = append(names, c.Name())
	}
	return names
}

// findCommand returns the verb of a command line, and its arguments. The library's own error is hard to read.
func findCommand(root *cobra.Command, args []string) (*cobra.Command, []string, error) {
	if len(args) > 0 && strings.HasPrefix(args[0], cobra.ShellCompRequestCmd) {
		completeAliases(root)
		completeFlags(root)
	}
	verb, rest, err := root.Find(args)
	if err == nil || strings.HasPrefix(args[0], cobra.ShellCompRequestCmd) {
		return verb, rest, nil
	}
	// No flag of the root has a value, so the first word is the unknown command.
	i := slices.IndexFunc(args, func(word string) bool { return !strings.HasPrefix(word, "-") })
	return nil, nil, noSuchCommand(root, args[max(i, 0)])
}

// wordCompletion adds errors to the library's verb completion. Without a shell, or with an unknown one, it would show its help and succeed.
func wordCompletion(root *cobra.Command) {
	root.InitDefaultCompletionCmd()
	c, _, _ := root.Find([]string{"completion"})
	shells := commandNames(c)
	for _, shell := range c.Commands() {
		shell.Args = noInputs
	}
	hint := "name one: " + strings.Join(shells, ", ")
	c.Use, c.Short = "completion SHELL", "Write a shell's completion script: "+strings.Join(shells, ", ")
	c.Args = cobra.ArbitraryArgs
	c.RunE = func(_ *cobra.Command, args []string) error {
		if len(args) == 0 {
			return hintError{errors.New("completion needs the name of a shell, but none was given"), hint}
		}
		return hintError{fmt.Errorf("%s: there is no completion for this shell%s", quoted(args[0]), didYouMean(nearest(args[0], shells), "")), hint}
	}
}

// wordHelp adds topics and an error to the library's verb help: an unknown topic is an error.
func wordHelp(root *cobra.Command) {
	root.InitDefaultHelpCmd()
	help, _, _ := root.Find([]string{"help"})
	help.Use, help.Long = "help [COMMAND]", `Help shows the help of a command, as "moonloop COMMAND --help" does.

"moonloop help aliases" shows which flags of other replay tools "moonloop
replay" understands. "moonloop help schema row" prints the JSON Schema of a row
of a trace; "moonloop help schema sidecar" and "moonloop help schema summary"
print those of the metadata file (prod.meta.json) and of summary.json.`
	help.ValidArgs = []string{aliasTopic, schemaTopic}
	ofCommand := help.Run
	help.Run = func(cmd *cobra.Command, args []string) {
		if slices.Equal(args, []string{aliasTopic}) {
			_ = writeAliases(cmd.OutOrStdout()) // the library, too, ignores errors of writing a text
			return
		}
		if len(args) > 0 && args[0] == schemaTopic {
			schema, _ := schemaNamed(args[1:]) // Args has checked that there is one
			_, _ = io.WriteString(cmd.OutOrStdout(), schema)
			return
		}
		ofCommand(cmd, args)
	}
	help.Args = func(_ *cobra.Command, args []string) error {
		if slices.Equal(args, []string{aliasTopic}) {
			return nil
		}
		if len(args) > 0 && args[0] == schemaTopic {
			_, err := schemaNamed(args[1:])
			return err
		}
		if topic, rest, _ := root.Find(args); len(rest) > 0 {
			return noSuchCommand(topic, rest[0])
		}
		return nil
	}
}
