// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// settings are the sources of the values of a verb's flags: the command line, else the environment, else the file of --config, else the
// default. A value from another source must follow the rule of its flag, and counts as given unless it equals the default.
//
// The variable of a flag contains the name of the verb, such as MOONLOOP_REPLAY_OUT for replay's --out. So a value for one verb is not set
// for others, and MOONLOOP_HASH_KEY and similar variables are not settings.
type settings struct {
	file  string // --config
	print bool   // --print-config

	stored storedSettings // of a resumed run; most of them override the environment

	args *pflag.FlagSet    // the arguments of the verb, as flags
	from map[string]source // of the values that are not defaults
}

// source is where a value comes from.
type source struct {
	kind string // fromFlag, fromEnvironment or fromFile
	at   string // the variable, or the file and the line
}

const (
	fromFlag        = "flag"
	fromEnvironment = "environment"
	fromFile        = "file"
)

func (s source) String() string { return strings.TrimSpace(s.kind + " " + s.at) }

// given is a value from a different source than the command line.
type given struct {
	from   source
	as     string // how errors name it
	values []string
}

// commandLineOnly are the flags that no other source can set.
const commandLineOnly = "config print-config as resume help"

// register adds the flags. Those of args are the verb's arguments.
func (s *settings) register(fs, args *pflag.FlagSet) {
	add(fs, &s.file, "config", "", aFile)
	add(fs, &s.print, "print-config", false)
	s.args, s.from = args, map[string]source{}
}

// apply sets the flags that the command line does not have. It returns all errors in the environment and the file.
func (s *settings) apply(cmd *cobra.Command) error {
	known := s.known(cmd)
	prefix := variableOf(cmd, "")
	found, errs := variables(known, prefix)
	if s.file == "" {
		s.file = os.Getenv(prefix + "CONFIG")
	}
	switch {
	case s.stored.content != "":
		stored, err := s.stored.values(known)
		errs = append(errs, err)
		maps.DeleteFunc(found, func(name string, _ given) bool { return !mayGoOn(name) })
		maps.Copy(stored, found)
		found = stored
	case s.file != "":
		inFile, err := readSettings(cmd.Context(), s.file, known)
		errs = append(errs, err)
		maps.Copy(inFile, found)
		found = inFile
	}
	for _, f := range known {
		if g, is := found[f.Name]; f.Changed {
			s.from[f.Name] = source{kind: fromFlag}
		} else if is {
			errs = append(errs, s.set(cmd, f, g))
		}
	}
	return errors.Join(errs...)
}

// known returns the flags that can be set by other sources.
func (s *settings) known(cmd *cobra.Command) (known []*pflag.Flag) {
	for _, fs := range []*pflag.FlagSet{s.args, cmd.Flags()} {
		fs.VisitAll(func(f *pflag.Flag) {
			if !slices.Contains(strings.Fields(commandLineOnly), f.Name) {
				known = append(known, f)
			}
		})
	}
	return known
}

// set sets a flag to a value from another source.
func (s *settings) set(cmd *cobra.Command, f *pflag.Flag, g given) error {
	if listOf(f) == nil && g.values[0] == f.Value.String() {
		return nil // else a default that was written down would cause "--grace has no effect"
	}
	for _, v := range g.values {
		if v == hidden {
			return fmt.Errorf("%s: its value was left out of this file, since it may be secret; give it on the command line or by %s", g.as, variableOf(cmd, f.Name))
		}
		if err := (typedFlag{f, g.as, v}).check(cmd); err != nil {
			return err
		}
	}
	owner := cmd.Flags()
	if s.args.Lookup(f.Name) != nil {
		owner = s.args
	}
	for _, v := range g.values {
		if owner.Set(f.Name, v) != nil {
			return fmt.Errorf("%s: want %s", g.as, ruleOf(f).want)
		}
	}
	s.from[f.Name] = g.from
	return nil
}

// variableOf returns the environment variable of a flag.
func variableOf(cmd *cobra.Command, flag string) string {
	return strings.ToUpper("moonloop_" + cmd.Name() + "_" + strings.ReplaceAll(flag, "-", "_"))
}

// serviceVariable matches the variables that Kubernetes sets for a service whose name begins like ours.
var serviceVariable = regexp.MustCompile(`^(.*_)?(SERVICE_HOST|SERVICE_PORT(_.*)?|PORT(_[0-9]+_(TCP|UDP|SCTP).*)?)$`)

// variables returns the settings in the environment. An empty variable is ignored. For a repeatable flag, each line is a value.
func variables(known []*pflag.Flag, prefix string) (found map[string]given, errs []error) {
	found = map[string]given{}
	for _, pair := range slices.Sorted(slices.Values(os.Environ())) {
		variable, value, _ := strings.Cut(pair, "=")
		rest, ours := strings.CutPrefix(variable, prefix)
		if !ours || value == "" || rest == "CONFIG" || serviceVariable.MatchString(rest) {
			continue
		}
		name := strings.ReplaceAll(strings.ToLower(rest), "_", "-")
		i := slices.IndexFunc(known, func(f *pflag.Flag) bool { return f.Name == name })
		if i < 0 {
			near := nearest(name, namesOf(known))
			for i, n := range near {
				near[i] = prefix + strings.ToUpper(strings.ReplaceAll(n, "-", "_"))
			}
			errs = append(errs, fmt.Errorf("%s: there is no such setting%s", visibleName(variable), didYouMean(near, "")))
			continue
		}
		values := []string{value}
		if listOf(known[i]) != nil {
			values = strings.Split(strings.Trim(value, "\n"), "\n")
		}
		found[name] = given{source{fromEnvironment, variable}, variable, values}
	}
	return found, errs
}

func namesOf(flags []*pflag.Flag) (names []string) {
	for _, f := range flags {
		names = append(names, f.Name)
	}
	return names
}
