// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/moonloop/moonloop/mooncake"
)

// flagValue is the value of a flag, with its rule.
type flagValue struct {
	rule
	kind string // as the flag library calls its types
	set  func(string) error
	text func() string // of its current value
	list *[]string     // for a repeatable flag
}

func (v *flagValue) Set(text string) error { return v.set(text) }
func (v *flagValue) String() string        { return v.text() }
func (v *flagValue) Type() string          { return v.kind }

// add adds a flag that sets a value of this type, with its default and its rule. flags/VERB.txt has the description. A name may include a
// letter, after a comma.
func add[T any](fs *pflag.FlagSet, to *T, name string, value T, rules ...rule) {
	*to = value
	v := &flagValue{text: func() string { return fmt.Sprint(*to) }}
	switch to := any(to).(type) {
	case *string:
		v.kind, v.rule, v.set = "string", anyText("a text of one line"), into(to, func(text string) (string, error) { return text, nil })
	case *bool:
		v.kind, v.rule, v.set = "bool", anyBool, into(to, strconv.ParseBool)
	case *int:
		v.kind, v.rule, v.set = "int", manyOrNone, into(to, func(text string) (int, error) {
			n, err := strconv.ParseInt(text, 0, 0)
			return int(n), err
		})
	case *int64:
		v.kind, v.rule, v.set = "int64", manyOrNone, into(to, func(text string) (int64, error) { return strconv.ParseInt(text, 0, 64) })
	case *uint64:
		v.kind, v.rule, v.set = "uint64", any64Bits, into(to, func(text string) (uint64, error) { return strconv.ParseUint(text, 0, 64) })
	case *float64:
		v.kind, v.rule, v.set = "float64", anyNumber, into(to, parseFloat)
	case *time.Duration:
		v.kind, v.rule, v.set = "duration", anyDuration, into(to, time.ParseDuration)
	case *traceTime:
		v.kind, v.rule, v.set = "time", traceTimes, into((*time.Duration)(to), parseTraceTime)
	}
	if rules != nil {
		v.rule = rules[0]
	}
	v.register(fs, name)
}

// into returns a function that parses a text with read and stores the result.
func into[T any](to *T, read func(text string) (T, error)) func(string) error {
	return func(text string) (err error) {
		*to, err = read(text)
		return err
	}
}

func (v *flagValue) register(fs *pflag.FlagSet, name string) {
	name, letter, _ := strings.Cut(name, ",")
	f := fs.VarPF(v, name, letter, "")
	if v.kind == "bool" {
		f.NoOptDefVal = "true"
	}
	if f.DefValue == "0s" { // a duration that help should not call a default
		f.DefValue = ""
	}
}

// textVar adds a flag whose text a function parses. text describes the value that *to has without the flag.
func textVar[T any](fs *pflag.FlagSet, to *T, name, text, want string, read func(string) (T, error)) *flagValue {
	v := &flagValue{kind: "string", rule: reads(want, read), text: func() string { return text }}
	v.set = func(typed string) error {
		text = typed
		return into(to, read)(typed)
	}
	v.register(fs, name)
	return v
}

// wordVar adds a flag whose value is one of a few words.
func wordVar[T ~string](fs *pflag.FlagSet, to *T, name string, value T, words ...T) {
	*to = value
	v := textVar(fs, to, name, string(value), "", func(text string) (T, error) { return T(text), nil })
	v.rule = oneOf(words...)
}

// eitherVar adds a flag whose value is one of two words. The second word, other, sets *to to true.
func eitherVar(fs *pflag.FlagSet, to *bool, name, word, other string) {
	v := textVar(fs, to, name, word, "", func(text string) (bool, error) { return text == other, nil })
	v.rule = oneOf(word, other)
}

// bytesVar adds a number of bytes, such as 256MiB, from least on; words describe least.
func bytesVar[T int | int64](fs *pflag.FlagSet, to *T, name string, value T, least uint64, words string) {
	*to = value
	rule := bytesFrom(least, words)
	textVar(fs, to, name, humanize.IBytes(uint64(value)), rule.want, func(text string) (T, error) {
		n, _ := humanize.ParseBytes(text)
		return T(n), rule.ok(text)
	})
}

// listVar adds a repeatable flag. The first value replaces the default.
func listVar(fs *pflag.FlagSet, to *[]string, name string, r rule, values ...string) {
	*to = values
	given := false
	(&flagValue{kind: "stringSlice", rule: r, list: to, set: func(text string) error {
		if !given {
			*to, given = nil, true
		}
		*to = append(*to, text)
		return nil
	}, text: func() string {
		if len(*to) == 0 {
			return ""
		}
		return "[" + strings.Join(*to, ",") + "]"
	}}).register(fs, name)
}

// mapVar adds the flag that maps fields of a trace's rows to other keys.
func mapVar(fs *pflag.FlagSet, to *mooncake.Mapping) {
	pairsVar(fs, to, "map", "field=key pairs, such as input_length=prompt_tokens", mooncake.ParseMapping)
}

// pairsVar adds a repeatable flag whose texts a function parses together.
func pairsVar[T any](fs *pflag.FlagSet, to *T, name, want string, parse func(...string) (T, error)) {
	var texts []string
	read := func(texts ...string) (T, error) {
		v, err := parse(texts...)
		return v, advised(err)
	}
	(&flagValue{
		kind: "stringSlice", list: &texts, text: func() string { return strings.Join(texts, ",") },
		rule: reads(want, func(text string) (T, error) { return read(text) }),
		set: func(text string) (err error) {
			texts = append(texts, text)
			*to, err = read(texts...)
			return err
		},
	}).register(fs, name)
}

// ruleOf returns the rule of a flag. Flags that the library adds are switches.
func ruleOf(f *pflag.Flag) rule {
	if v, ok := f.Value.(*flagValue); ok {
		return v.rule
	}
	return anyBool
}

// listOf returns the values of a flag that may be given several times; nil for one that may not.
func listOf(f *pflag.Flag) *[]string {
	if v, ok := f.Value.(*flagValue); ok {
		return v.list
	}
	return nil
}

// completeFlags offers the words of rules to shell completion. The library keeps each flag with a completion for the lifetime of the
// process, so completeFlags is only called if the command line asks for completion.
func completeFlags(root *cobra.Command) {
	for _, verb := range root.Commands() {
		verb.Flags().VisitAll(func(f *pflag.Flag) {
			if words := ruleOf(f).words; words != nil {
				// It fails only for a flag that does not exist or has a completion already.
				_ = verb.RegisterFlagCompletionFunc(f.Name, cobra.FixedCompletions(words, cobra.ShellCompDirectiveNoFileComp))
			}
		})
	}
}

// labelVar adds a flag of KEY=VALUE pairs. A text without a key has the key "label", as in vLLM's bench.
func labelVar(fs *pflag.FlagSet, to *map[string]string) {
	var texts []string
	(&flagValue{
		kind: "stringSlice", list: &texts, text: func() string { return strings.Join(texts, ",") }, rule: anyText("KEY=VALUE, such as commit=1f3a9"),
		set: func(text string) error {
			texts = append(texts, text)
			*to = make(map[string]string, len(texts))
			for _, pair := range texts {
				if !strings.Contains(pair, "=") {
					pair = "label=" + pair
				}
				key, value, _ := strings.Cut(pair, "=")
				(*to)[key] = value
			}
			return nil
		},
	}).register(fs, "label")
}
