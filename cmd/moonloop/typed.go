// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"io"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// typedFlag is a flag as it stands on a command line. The flag library keeps neither the name that was typed nor earlier
// values; messages need the one, and the check for contradictions the other.
type typedFlag struct {
	flag  *pflag.Flag
	as    string // such as --extra-body or -H
	value string
}

// typedFlags returns the flags of a command line in their order, up to the first one that does not exist or lacks its value.
// The flag library reads it itself, into flags of the same names that accept every value.
func typedFlags(fs *pflag.FlagSet, aliases map[string]string, args []string) (typed []typedFlag) {
	recording := pflag.NewFlagSet("", pflag.ContinueOnError)
	recording.SetOutput(io.Discard)
	recording.Usage = func() {}
	record := func(name, shorthand, as string, flag *pflag.Flag) {
		r := recording.VarPF(recorder{&typed, typedFlag{flag: flag, as: as}}, name, shorthand, "")
		r.NoOptDefVal = flag.NoOptDefVal
	}
	fs.VisitAll(func(f *pflag.Flag) {
		record(f.Name, "", "--"+f.Name, f)
		if f.Shorthand != "" {
			record("-"+f.Shorthand, f.Shorthand, "-"+f.Shorthand, f) // nobody can type ---H
		}
	})
	for alias, name := range aliases {
		record(alias, "", "--"+alias, fs.Lookup(name))
	}
	_ = recording.Parse(args) // what is wrong, the parse of the real flags says
	return typed
}

// recorder is the value of a flag that accepts everything.
type recorder struct {
	to  *[]typedFlag
	one typedFlag
}

func (recorder) String() string { return "" }
func (recorder) Type() string   { return "" }
func (r recorder) Set(value string) error {
	r.one.value = value
	*r.to = append(*r.to, r.one)
	return nil
}

// aliasesOf returns the other names of a verb's flags.
func aliasesOf(cmd *cobra.Command) map[string]string {
	if cmd.Name() == replayVerb {
		return peers
	}
	return nil
}
