// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/net/http/httpguts"

	"github.com/moonloop/moonloop/internal/term"
)

// typedFlag is a flag as typed on a command line. The flag library keeps neither the typed name nor earlier values; messages need the
// former, and the check for contradictions the latter.
type typedFlag struct {
	flag  *pflag.Flag
	as    string // such as --extra-body or -H
	value string
}

// typedFlags returns the flags of a command line in order, up to the first one that does not exist or lacks its value. The flag library
// parses the command line once more, without setting anything. The library normalizes the names of flags, but not their short forms.
func typedFlags(fs *pflag.FlagSet, args []string) (typed []typedFlag) {
	normalize, name := fs.GetNormalizeFunc(), ""
	fs.SetNormalizeFunc(func(fs *pflag.FlagSet, typed string) pflag.NormalizedName {
		name = typed
		return normalize(fs, typed)
	})
	defer fs.SetNormalizeFunc(normalize)
	name = ""
	_ = fs.ParseAll(args, func(f *pflag.Flag, value string) error { // the parse before has reported errors
		as := "--" + name
		if name == "" {
			as = "-" + f.Shorthand
		}
		typed, name = append(typed, typedFlag{f, as, value}), ""
		return nil
	})
	return typed
}

// aliasesOf returns the alternative names of a verb's flags.
func aliasesOf(cmd *cobra.Command) map[string]string {
	if cmd.Name() == replayVerb {
		return peers
	}
	return nil
}

// checkFlags returns all errors in the flags of a command line, one by one.
func checkFlags(cmd *cobra.Command, typed []typedFlag) error {
	var errs []error
	before := make(map[*pflag.Flag]typedFlag)
	for _, t := range typed {
		first, again := before[t.flag]
		if again && listOf(t.flag) == nil && first.value != t.value {
			errs = append(errs, givenTwice(first, t, ruleOf(t.flag)))
			continue
		}
		before[t.flag] = t
		if err := t.check(cmd); err != nil {
			errs = append(errs, err)
		}
	}
	if len(errs) == 0 {
		return nil
	}
	return hintError{errors.Join(errs...), listsFlags(cmd)}
}

// givenTwice returns the error for two values of a flag that accepts only one.
func givenTwice(first, second typedFlag, r rule) error {
	as := first.as
	if second.as != first.as {
		as += " and " + second.as + " are one flag, which"
	}
	values := "two values"
	if !r.secret {
		values = fmt.Sprintf("%s and %s", quoted(first.value), quoted(second.value))
	}
	return fmt.Errorf("%s is given twice, with %s: it has one value; give it once", as, values)
}

// check checks the value of a flag by its rule.
func (t typedFlag) check(cmd *cobra.Command) error {
	r := ruleOf(t.flag)
	longest := maxText
	if r.long {
		longest = maxLongText
	}
	switch {
	case t.value == "" && r.emptyMeans:
		return nil
	case t.value == "":
		return fmt.Errorf("%s \"\": its value is empty; want %s, or leave the flag out", t.as, r.want)
	case isFlagOf(cmd, t.value) && !r.flags:
		return fmt.Errorf("%s: its value is missing, because %s after it is a flag; want %s", t.as, flagName(t.value), r.want)
	case len(t.value) > longest:
		return t.wrong(r, fmt.Sprintf("its value has %s bytes; want %s, of at most %s bytes", term.Comma(int64(len(t.value))), r.want, term.Comma(int64(longest))))
	case !utf8.ValidString(t.value):
		return t.wrong(r, "its value is not valid UTF-8; want "+r.want)
	case strings.ContainsFunc(t.value, isControl) && !r.long:
		return t.wrong(r, "its value holds a line end or another control character; want "+r.want)
	}
	err := r.ok(t.value)
	if told, ok := errors.AsType[advice](err); ok {
		return t.wrong(r, told.Error())
	}
	if err != nil {
		return t.wrong(r, "want "+r.want)
	}
	return nil
}

// wrong returns the error for a value of the flag.
func (t typedFlag) wrong(r rule, why string) error {
	if r.secret {
		return fmt.Errorf("%s: %s", t.as, why)
	}
	return fmt.Errorf("%s %s: %s", t.as, quoted(t.value), why)
}

// flagError words the error of a command line for its author: which flag, which value, and what is valid. The flag library's own text
// mentions Go functions, and repeats values that may be secret.
func flagError(cmd *cobra.Command, typed []typedFlag, err error) error {
	if _, ok := errors.AsType[*pflag.InvalidValueError](err); ok {
		if wrong := checkFlags(cmd, typed); wrong != nil {
			return wrong
		}
	} else if missing, ok := errors.AsType[*pflag.ValueRequiredError](err); ok {
		as := "--" + missing.GetSpecifiedName()
		if missing.GetSpecifiedShortnames() != "" {
			as = "-" + missing.GetSpecifiedName()[:1]
		}
		err = fmt.Errorf("%s: its value is missing; want %s", as, ruleOf(missing.GetFlag()).want)
	} else if unknown, ok := errors.AsType[*pflag.NotExistError](err); ok {
		as, name := "--"+unknown.GetSpecifiedName(), unknown.GetSpecifiedName()
		if letters := unknown.GetSpecifiedShortnames(); letters != "" {
			first, _ := utf8.DecodeRuneInString(letters)
			as, name = "-"+string(first), ""
		}
		err = fmt.Errorf("%s: there is no such flag%s", visibleName(as), didYouMean(nearest(name, flagNames(cmd)), "--"))
	} else if bad, ok := errors.AsType[*pflag.InvalidSyntaxError](err); ok {
		err = fmt.Errorf("%s: it is not a flag; want --name, --name=value or --name value", visibleName(flagName(bad.GetSpecifiedFlag())))
	}
	return hintError{err, listsFlags(cmd)}
}

// visibleName shows the name of a flag that does not exist; a text that cannot be a name is quoted.
func visibleName(name string) string {
	if !httpguts.ValidHeaderFieldName(name) || len(name) > 40 {
		return quoted(name)
	}
	return name
}

func isControl(r rune) bool { return r < ' ' || r >= 0x7f && r < 0xa0 }

// quoted repeats a value in a message: with control characters escaped, without the secret parts of a URL, and cut to the length of a line.
func quoted(value string) string {
	value = publicValue(value)
	const most = 60
	if len(value) > most {
		cut := most
		for cut > 0 && !utf8.RuneStart(value[cut]) {
			cut--
		}
		value = value[:cut] + "…"
	}
	return strconv.Quote(value)
}

// isFlagOf reports whether a value is one of the verb's own flags: then the flag before it was given without its value.
func isFlagOf(cmd *cobra.Command, value string) bool {
	name := flagName(value)
	switch {
	case strings.HasPrefix(name, "--") && len(name) > 2:
		return cmd.Flags().Lookup(name[2:]) != nil
	case len(value) == 2 && value[0] == '-':
		return cmd.Flags().ShorthandLookup(value[1:]) != nil
	}
	return false
}

func flagName(value string) string {
	name, _, _ := strings.Cut(value, "=")
	return name
}

func listsFlags(cmd *cobra.Command) string {
	return fmt.Sprintf("%q lists the flags", cmd.CommandPath()+" --help")
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
			return hintError{fmt.Errorf("%s takes %s, but none was given", cmd.Name(), what), hint}
		}
		return nil
	}
}
