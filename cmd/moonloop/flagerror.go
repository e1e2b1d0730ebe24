// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/moonloop/moonloop/internal/term"
)

// printError writes an error as a line, and joined errors as a line each; then the hints, each once.
func printError(w io.Writer, err error) {
	var hints []string
	var each func(err error)
	each = func(err error) {
		switch e := err.(type) { //nolint:errorlint // the outermost one alone
		case hintError:
			hints = append(hints, e.hint)
			each(e.error)
			return
		case interface{ Unwrap() []error }:
			if err.Error() == errors.Join(e.Unwrap()...).Error() {
				for _, one := range e.Unwrap() {
					each(one)
				}
				return
			}
		}
		if inner, ok := errors.AsType[hintError](err); ok {
			hints = append(hints, inner.hint)
		}
		fmt.Fprintf(w, "moonloop: error: %s\n", term.Plain(err.Error()))
	}
	each(err)
	for i, hint := range hints {
		if !slices.Contains(hints[:i], hint) {
			fmt.Fprintf(w, "moonloop: hint: %s\n", term.Plain(hint))
		}
	}
}

// otherNames maps names in errors of configurations to the names of flags, where these differ.
var otherNames = map[string]string{
	"bytes of kept replies": "carry-memory",
	"system prompt of":      "system-prompt",
	"longest input of":      "max-input",
	"user tokens":           "user",
	"output tokens":         "output",
	"think time":            "think",
	"new block size":        "to-block-size",
	"conversations":         "first-conversations",
	"to-models":             "to-model",
}

// inFlags changes an error of a configuration that begins with the name of a field, so that it begins with the name of the flag:
// --first-token-timeout for "first-token timeout".
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
	text, flag, rest := err.Error(), "", ""
	for name, its := range otherNames {
		if after, found := strings.CutPrefix(text, name); found {
			flag, rest = its, after
		}
	}
	fs.VisitAll(func(f *pflag.Flag) {
		if after, found := cutName(text, f.Name); found && len(f.Name) > len(flag) {
			flag, rest = f.Name, after
		}
	})
	if flag == "" {
		return err
	}
	return errors.New("--" + flag + rest)
}

// cutName removes the name of a flag from the beginning of a text, whatever separates its words.
func cutName(text, name string) (rest string, found bool) {
	bare := strings.NewReplacer("-", "", " ", "")
	for i, r := range text {
		if (r == ' ' || r == ':') && strings.EqualFold(bare.Replace(text[:i]), bare.Replace(name)) {
			return text[i:], true
		}
	}
	return "", false
}
