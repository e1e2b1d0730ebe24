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

// flagError words the error of a command line for its writer: which flag, which value, and what would do. The flag
// library's own text speaks of functions of Go, and repeats what may be a secret.
func flagError(cmd *cobra.Command, typed []typedFlag, err error) error {
	return hintError{wordFlagError(cmd, typed, err), listsFlags(cmd)}
}

func wordFlagError(cmd *cobra.Command, typed []typedFlag, err error) error {
	if bad, ok := errors.AsType[*pflag.InvalidValueError](err); ok {
		t := typedFlag{bad.GetFlag(), "--" + bad.GetFlag().Name, bad.GetValue()}
		for _, as := range typed {
			if as.flag == t.flag && as.value == t.value {
				t.as = as.as
			}
		}
		if err := t.check(cmd); err != nil {
			return err
		}
		return t.wrong(ruleOf(cmd.Name(), t.flag), "want "+ruleOf(cmd.Name(), t.flag).want)
	}
	if missing, ok := errors.AsType[*pflag.ValueRequiredError](err); ok {
		as := "--" + missing.GetSpecifiedName()
		if missing.GetSpecifiedShortnames() != "" {
			as = "-" + missing.GetSpecifiedName()[:1]
		}
		return fmt.Errorf("%s: its value is missing; want %s", as, ruleOf(cmd.Name(), missing.GetFlag()).want)
	}
	if unknown, ok := errors.AsType[*pflag.NotExistError](err); ok {
		if unknown.GetSpecifiedShortnames() != "" {
			return fmt.Errorf("%s: there is no such flag", visibleName("-"+firstRune(unknown.GetSpecifiedShortnames())))
		}
		name := unknown.GetSpecifiedName()
		return fmt.Errorf("%s: there is no such flag%s", visibleName("--"+name), didYouMean(nearest(name, flagNames(cmd)), "--"))
	}
	if bad, ok := errors.AsType[*pflag.InvalidSyntaxError](err); ok {
		return fmt.Errorf("%s: it is no flag; want --name, --name=value or --name value", visibleName(flagName(bad.GetSpecifiedFlag())))
	}
	return err
}

// visibleName shows a name of a flag that does not exist; what cannot be one is quoted.
func visibleName(name string) string {
	if strings.ContainsFunc(name, notToken) || len(name) > 40 {
		return quoted(name)
	}
	return name
}

func firstRune(s string) string {
	for _, r := range s {
		return string(r)
	}
	return s
}

// noInputs refuses arguments of a verb that has none.
func noInputs(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	return hintError{fmt.Errorf("%s takes no argument, and %s was given: leave it out, or write the flag that it belongs to before it", cmd.Name(), quoted(args[0])), listsFlags(cmd)}
}

// someInputs demands one argument or more.
func someInputs(what, hint string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return hintError{fmt.Errorf("%s takes %s, and none was given", cmd.Name(), what), hint}
		}
		return nil
	}
}

// printError writes an error as a line, and errors that were joined as a line each; then the hints, each once.
func printError(w io.Writer, err error) {
	var hints []string
	var each func(err error)
	each = func(err error) {
		if hint, ok := errors.AsType[hintError](err); ok && !slices.Contains(hints, hint.hint) {
			hints = append(hints, hint.hint)
		}
		if hint, ok := err.(hintError); ok { //nolint:errorlint // the outermost one alone
			each(hint.error)
			return
		}
		if joined, ok := err.(interface{ Unwrap() []error }); ok && err.Error() == errors.Join(joined.Unwrap()...).Error() {
			for _, one := range joined.Unwrap() {
				each(one)
			}
			return
		}
		fmt.Fprintf(w, "moonloop: error: %s\n", onOneTerminal(err.Error()))
	}
	each(err)
	for _, hint := range hints {
		fmt.Fprintf(w, "moonloop: hint: %s\n", onOneTerminal(hint))
	}
}

// onOneTerminal escapes control characters but line ends: a name of a file must not move the cursor.
func onOneTerminal(text string) string {
	var b strings.Builder
	for _, r := range text {
		if isControl(r) && r != '\n' && r != '\t' {
			fmt.Fprintf(&b, `\x%02x`, r)
			continue
		}
		b.WriteRune(r)
	}
	return b.String()
}

// otherNames are names that configurations have for what flags set, where they are not the flags' own.
var otherNames = map[string]string{
	"bytes of kept replies": "carry-memory",
	"system prompt of":      "system-prompt",
	"longest input of":      "max-input",
	"user tokens":           "user",
	"output tokens":         "output",
	"think time":            "think",
}

// inFlags puts flags into the place of the configuration's names at the beginning of its errors: --first-token-timeout
// for "first-token timeout".
func inFlags(err error, fs *pflag.FlagSet) error {
	if err == nil {
		return nil
	}
	var errs []error
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		for _, one := range joined.Unwrap() {
			errs = append(errs, inFlags(one, fs))
		}
		return errors.Join(errs...)
	}
	for name, flag := range otherNames {
		if rest, found := strings.CutPrefix(err.Error(), name); found {
			return errors.New("--" + flag + rest)
		}
	}
	flag, rest := "", ""
	fs.VisitAll(func(f *pflag.Flag) {
		if r, found := cutName(err.Error(), f.Name); found && len(f.Name) > len(flag) {
			flag, rest = f.Name, r
		}
	})
	if flag == "" {
		return err
	}
	return errors.New("--" + flag + rest)
}

// cutName cuts the name of a flag off a text that begins with it, whatever stands between its words.
func cutName(text, name string) (rest string, found bool) {
	bare := strings.NewReplacer("-", "", " ", "")
	for i, r := range text {
		if (r == ' ' || r == ':') && strings.EqualFold(bare.Replace(text[:i]), bare.Replace(name)) {
			return text[i:], true
		}
	}
	return "", false
}
