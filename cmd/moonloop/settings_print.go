// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v3"

	"github.com/moonloop/moonloop/agent/report"
)

// effective returns the effective values, without secrets, in the order of the flags. Empty values are left out.
func (s *settings) effective(cmd *cobra.Command) (list []report.Setting) {
	for _, f := range s.known(cmd) {
		values := []string{f.Value.String()}
		many := listOf(f)
		if many != nil {
			values = slices.Clone(*many)
		}
		if len(values) == 0 || values[0] == "" {
			continue
		}
		for i, v := range values {
			if publicValue(v) != v || ruleOf(f).secret && !namesSource(f.Name, v) {
				values[i] = hidden // all of it, because a part of a value would be another setting
			}
		}
		set := report.Setting{Name: f.Name, Value: values, From: cmp.Or(s.from[f.Name].String(), "default")}
		if many == nil || len(values) == 1 {
			set.Value = valueOf(f, values[0])
		}
		list = append(list, set)
	}
	return list
}

// valueOf returns the value of a flag in JSON.
func valueOf(f *pflag.Flag, text string) any {
	switch jsonType(f) {
	case "boolean":
		return text == "true"
	case "integer", "number":
		if !json.Valid([]byte(text)) { // such as an infinite rate
			return strings.ToLower(strings.TrimPrefix(text, "+"))
		}
		return json.Number(text)
	}
	return text
}

// writeSettings writes settings as a file for --config, with their sources as comments.
func writeSettings(w io.Writer, list []report.Setting) error {
	root := &yaml.Node{Kind: yaml.MappingNode}
	for _, s := range list {
		key, value := &yaml.Node{Kind: yaml.ScalarNode, Value: s.Name}, new(yaml.Node)
		if err := value.Encode(s.Value); err != nil {
			return err
		}
		if n, is := s.Value.(json.Number); is { // else it would be quoted
			value = &yaml.Node{Kind: yaml.ScalarNode, Value: n.String()}
		}
		commented := value
		if value.Kind != yaml.ScalarNode {
			commented = key
		}
		commented.LineComment = s.From
		root.Content = append(root.Content, key, value)
	}
	encoder := yaml.NewEncoder(w)
	encoder.SetIndent(2)
	if err := encoder.Encode(root); err != nil {
		return fmt.Errorf("the settings cannot be written: %w", err)
	}
	return encoder.Close()
}
