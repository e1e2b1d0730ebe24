// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/moonloop/moonloop/internal/term"
)

// rule is what the value of a flag must fulfil beyond its type. Rules are checked before anything is read, written or sent.
type rule struct {
	want string // completes "want ..."
	// ok judges a value. Nil accepts every one.
	ok func(value string) error
	// words are all values that there are, for completion; nil where they cannot be listed.
	words []string
	// emptyMeans something: "" is a value like any other.
	emptyMeans bool
	// secret values are never repeated.
	secret bool
	// long values are accepted, up to 64 KiB; else 4 KiB, the longest path of most systems.
	long bool
}

// errWant is the verdict of a rule that has nothing to add to what it wants.
var errWant = errors.New("")

// Longest values, in bytes.
const (
	maxText     = 4 << 10
	maxLongText = 64 << 10
)

const century = 100 * 365 * 24 * time.Hour

// whole are the whole numbers from least to most.
func whole(least, most int64) rule {
	return rule{want: fmt.Sprintf("a whole number from %s to %s", term.Comma(least), term.Comma(most)), ok: func(value string) error {
		n, err := strconv.ParseInt(value, 10, 64)
		if err != nil || n < least || n > most {
			return errWant
		}
		return nil
	}}
}

// number are the numbers from least to most, and no NaN.
func number(least, most float64) rule {
	plain := func(f float64) string { return strconv.FormatFloat(f, 'f', -1, 64) }
	return rule{want: "a number from " + plain(least) + " to " + plain(most), ok: func(value string) error {
		f, err := strconv.ParseFloat(value, 64)
		if err != nil || !(f >= least && f <= most) {
			return errWant
		}
		return nil
	}}
}

// fraction is a part of a whole.
func fraction() rule {
	r := number(0, 1)
	r.want = "a share from 0 to 1"
	return r
}

// lasting are the durations from least to most.
func lasting(least, most time.Duration) rule {
	words := "0"
	if least > 0 {
		words = shortDuration(least)
	}
	return rule{
		want: fmt.Sprintf("a duration from %s to %s with its unit, such as 500ms, 90s or 5m", words, shortDuration(most)),
		ok: func(value string) error {
			d, err := time.ParseDuration(value)
			if err != nil || d < least || d > most {
				return errWant
			}
			return nil
		},
	}
}

// shortDuration writes a round duration as people do: 1h, not 1h0m0s.
func shortDuration(d time.Duration) string {
	if d == century {
		return "100 years"
	}
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

// oneOf are a few words.
func oneOf(words ...string) rule {
	last := len(words) - 1
	return rule{words: words, want: strings.Join(words[:last], ", ") + " or " + words[last], ok: func(value string) error {
		if !slices.Contains(words, value) {
			return errWant
		}
		return nil
	}}
}

// anyText is any text on one line.
func anyText(want string) rule { return rule{want: want} }

// that is a rule with a check of its own. An error of it says what is wrong beyond what is wanted.
func that(want string, ok func(value string) error) rule { return rule{want: want, ok: ok} }

// ruleOf returns the rule of a verb's flag: its own, the common one of its name, or that of its type.
func ruleOf(verb string, f *pflag.Flag) rule {
	if r, ok := verbRules[verb][f.Name]; ok {
		return r
	}
	if r, ok := commonRules[f.Name]; ok {
		return r
	}
	switch f.Value.Type() {
	case "bool":
		return rule{want: "true or false", ok: func(string) error { return nil }} // parsed already
	case "int", "int64":
		return whole(0, 1_000_000_000)
	case "uint64":
		return rule{want: "a whole number from 0 to 2^64-1"}
	case "float64":
		return number(0, math.MaxFloat64)
	case "duration":
		return lasting(0, century)
	}
	return anyText("a text of one line")
}

// completeFlags offers the words of rules to shells.
func completeFlags(verb *cobra.Command) {
	verb.Flags().VisitAll(func(f *pflag.Flag) {
		if words := ruleOf(verb.Name(), f).words; words != nil {
			// It fails only for a flag that does not exist or is completed already.
			_ = verb.RegisterFlagCompletionFunc(f.Name, cobra.FixedCompletions(words, cobra.ShellCompDirectiveNoFileComp))
		}
	})
}

// checkFlags says everything that is wrong with the flags of a command line, one by one.
func checkFlags(cmd *cobra.Command, typed []typedFlag) error {
	var errs []error
	before := make(map[*pflag.Flag]typedFlag)
	for _, t := range typed {
		first, again := before[t.flag]
		if _, many := t.flag.Value.(pflag.SliceValue); again && !many && first.value != t.value {
			errs = append(errs, givenTwice(first, t, ruleOf(cmd.Name(), t.flag)))
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

// givenTwice is the error of two values for a flag that has one.
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

// check judges the value of a flag by its rule.
func (t typedFlag) check(cmd *cobra.Command) error {
	r := ruleOf(cmd.Name(), t.flag)
	longest := maxText
	if r.long {
		longest = maxLongText
	}
	switch {
	case t.value == "" && r.emptyMeans:
		return nil
	case t.value == "":
		return fmt.Errorf("%s \"\": its value is empty; want %s, or leave the flag out", t.as, r.want)
	case isFlagOf(cmd, t.value):
		return fmt.Errorf("%s: its value is missing, for %s after it is a flag; want %s", t.as, flagName(t.value), r.want)
	case len(t.value) > longest:
		return t.wrong(r, fmt.Sprintf("its value has %s bytes; want %s, of at most %s bytes", term.Comma(int64(len(t.value))), r.want, term.Comma(int64(longest))))
	case !utf8.ValidString(t.value):
		return t.wrong(r, "its value is not valid UTF-8; want "+r.want)
	case strings.ContainsFunc(t.value, isControl) && !r.long:
		return t.wrong(r, "its value holds a line end or another control character; want "+r.want)
	case r.ok == nil:
		return nil
	}
	err := r.ok(t.value)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, errWant):
		return t.wrong(r, "want "+r.want)
	}
	return t.wrong(r, err.Error())
}

// wrong is the error of a value.
func (t typedFlag) wrong(r rule, why string) error {
	if r.secret {
		return fmt.Errorf("%s: %s", t.as, why)
	}
	return fmt.Errorf("%s %s: %s", t.as, quoted(t.value), why)
}

func isControl(r rune) bool { return r < ' ' || r >= 0x7f && r < 0xa0 }

// quoted repeats a value in a message: control characters escaped, what may be secret in a URL left out, and no more of it
// than fits on a line.
func quoted(value string) string {
	value = publicValue(value)
	const most = 60
	if len(value) > most {
		cut := most
		for cut > 0 && !utf8.RuneStart(value[cut]) {
			cut--
		}
		return strconv.Quote(value[:cut] + "…")
	}
	return strconv.Quote(value)
}

// isFlagOf reports whether a value is one of the verb's own flags: then the value was forgotten.
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
