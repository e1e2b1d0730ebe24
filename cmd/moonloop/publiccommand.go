// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"net/url"
	"regexp"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// hidden stands for a value that may be secret.
const hidden = "…"

// publicCommand returns the command line of a verb without secrets. It is built from the values of the flags, by their own names, not from
// what was typed, so that no secret remains because of how its flag was spelled.
func publicCommand(cmd *cobra.Command, args []string) []string {
	words := append([]string{}, strings.Fields(cmd.CommandPath())...)
	for _, a := range args {
		a = urlOf(cmd, a)
		words = append(words, shellWord(publicValue(a)))
	}
	cmd.Flags().Visit(func(f *pflag.Flag) {
		values := []string{f.Value.String()}
		if many := listOf(f); many != nil {
			values = *many
		}
		for _, v := range values {
			switch v = urlOf(cmd, v); {
			case f.Value.Type() == "bool" && v == "true":
				words = append(words, "--"+f.Name)
			case f.Value.Type() == "bool":
				words = append(words, "--"+f.Name+"="+v)
			case ruleOf(f).secret && !namesSource(f.Name, v):
				words = append(words, "--"+f.Name, hidden)
			default:
				words = append(words, "--"+f.Name, shellWord(publicValue(v)))
			}
		}
	})
	return words
}

// namesSource reports whether a value of a secret flag only says where the secret is, so that it may be shown.
func namesSource(flag, value string) bool {
	switch flag {
	case "header":
		return strings.HasPrefix(value, "@")
	case "header-env":
		_, variable, _ := strings.Cut(value, "=")
		return publicVariable(variable) == variable
	case "api-key-env", "key-env":
		return publicVariable(value) == value
	}
	return false
}

// publicValue returns a value without the parts of a URL that may be secret: user, password, query and fragment.
func publicValue(value string) string {
	scheme, rest, found := strings.Cut(value, "://")
	if !found {
		if user, after, _ := strings.Cut(value, "@"); user != "" && looksLikeHost.MatchString(after) { // user:password@host without a scheme
			value, _, _ = strings.Cut(hidden+"@"+after, "?")
		}
		return value
	}
	u, err := url.Parse(value)
	if err != nil || strings.Contains(rest, "://") {
		return scheme + "://" + hidden
	}
	return (&url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path}).String()
}

var looksLikeHost = regexp.MustCompile(`^[A-Za-z0-9.\[\]:-]+(:[0-9]+)?([/?#].*)?$`)

// plainWord matches what a shell reads literally.
var plainWord = regexp.MustCompile(`^[A-Za-z0-9_@%+=:,./^-]+$`)

// shellWord quotes a word for a POSIX shell if necessary.
func shellWord(word string) string {
	if plainWord.MatchString(word) || word == hidden {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}
