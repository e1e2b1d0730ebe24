// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v3"
)

// A settings file is YAML with the names of flags as keys. JSON is YAML, too, so the summary.json of a run, which has the run's settings,
// can be used unchanged. The parser's nodes have line numbers; libraries that read any format into a map do not.

// maxSettingsFile bounds a file of settings or of rates, in bytes. A summary has some ten thousand bytes.
const maxSettingsFile = 4 << 20

// readSettings returns the settings in a file, by flag. It returns all errors in the file.
func readSettings(ctx context.Context, name string, known []*pflag.Flag) (map[string]given, error) {
	found := map[string]given{}
	content, err := readSmallFile(ctx, name, maxSettingsFile)
	if err != nil {
		return found, fmt.Errorf("--config %s: %s; name a file of YAML, or the summary.json of a run", quoted(name), reason(err))
	}
	return parsedSettings(name, content, known)
}

// parsedSettings returns the settings in the content of a file, like readSettings.
func parsedSettings(name, content string, known []*pflag.Flag) (map[string]given, error) {
	found := map[string]given{}
	pairs, err := parseSettings(content)
	if err != nil {
		return found, fmt.Errorf("%s:%w", name, err)
	}
	var errs []error
	for i := 0; i+1 < len(pairs); i += 2 {
		key, value := pairs[i], pairs[i+1]
		at := fmt.Sprintf("%s:%d", name, key.Line)
		as := at + ": " + visibleName(key.Value)
		f := slices.IndexFunc(known, func(f *pflag.Flag) bool { return f.Name == key.Value })
		before, twice := found[key.Value]
		switch {
		case f < 0:
			errs = append(errs, fmt.Errorf("%s: there is no such setting%s", as, meant(key.Value, known)))
			continue
		case twice:
			errs = append(errs, fmt.Errorf("%s: it is set at %s already; set it once", as, before.from.at))
			continue
		}
		values, err := valuesOf(known[f], value)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", as, err))
			continue
		}
		found[key.Value] = given{source{fromFile, at}, as, values}
	}
	return found, errors.Join(errs...)
}

// meant suggests what an unknown key may mean.
func meant(key string, known []*pflag.Flag) string {
	if slices.Contains(strings.Fields(commandLineOnly), key) {
		return "; it belongs on the command line"
	}
	if ours := peers[key]; ours != "" {
		return "; it is called " + ours
	}
	return didYouMean(nearest(strings.ReplaceAll(strings.ToLower(key), "_", "-"), namesOf(known)), "")
}

// yamlLine matches the beginning of the parser's errors.
var yamlLine = regexp.MustCompile(`^(?:yaml: )?(?:unmarshal errors:\s*)?line (\d+): `)

// parseSettings returns the keys and values of a file, alternately. Its errors begin with the line; the caller prepends the name of the
// file.
func parseSettings(content string) ([]*yaml.Node, error) {
	var file, more yaml.Node
	decoder := yaml.NewDecoder(strings.NewReader(content))
	switch err := decoder.Decode(&file); {
	case errors.Is(err, io.EOF):
		return nil, nil // only comments
	case err != nil:
		text := strings.TrimPrefix(err.Error(), "yaml: ")
		if !yamlLine.MatchString(text) {
			text = " " + text // after the name of the file, where others have the line
		}
		return nil, errors.New(yamlLine.ReplaceAllString(text, "$1: ") + "; want YAML with a line \"setting: value\" for each setting")
	}
	if !errors.Is(decoder.Decode(&more), io.EOF) {
		return nil, fmt.Errorf("%d: a second document begins; want one", max(more.Line, 1))
	}
	pairs, err := pairsOf(file.Content[0])
	if err != nil {
		return nil, err
	}
	member := func(name string) int {
		for i := 0; i < len(pairs); i += 2 {
			if pairs[i].Value == name {
				return i
			}
		}
		return -1
	}
	if version := member("schema_version"); version >= 0 {
		stored := member("config")
		if stored < 0 {
			return nil, fmt.Errorf("%d: the summary of a run that stored no settings", pairs[version].Line)
		}
		return pairsOf(pairs[stored+1])
	}
	return pairs, nil
}

func pairsOf(n *yaml.Node) ([]*yaml.Node, error) {
	if n.Kind != yaml.MappingNode {
		return nil, fmt.Errorf("%d: want a line \"setting: value\" for each setting", n.Line)
	}
	return n.Content, nil
}

// valuesOf returns a value in the form of the command line: one text, or several for a repeatable flag.
func valuesOf(f *pflag.Flag, n *yaml.Node) ([]string, error) {
	switch {
	case n.Kind == yaml.ScalarNode && n.Tag != "!!null":
		return []string{n.Value}, nil
	case n.Kind == yaml.SequenceNode && listOf(f) != nil && len(n.Content) > 0:
		var values []string
		for _, item := range n.Content {
			if item.Kind != yaml.ScalarNode {
				return nil, fmt.Errorf("want a list of texts, each %s", ruleOf(f).want)
			}
			values = append(values, item.Value)
		}
		return values, nil
	case n.Kind == yaml.MappingNode && jsonType(f) == "object":
		var object map[string]any
		if n.Decode(&object) == nil {
			if text, err := json.Marshal(object); err == nil {
				return []string{string(text)}, nil
			}
		}
	}
	return nil, fmt.Errorf("want %s", ruleOf(f).want)
}
