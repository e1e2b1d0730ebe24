// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package main

// The options of a run that is requested by HTTP are the flags of "moonloop replay", with the same rules and the same texts.

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/moonloop/moonloop/agent"
	"github.com/moonloop/moonloop/internal/service"
)

// runRequest is the replay's command line for a request.
type runRequest struct {
	replayFlags
	cmd *cobra.Command
}

// newRunRequest returns a replay with the service's own settings.
func newRunRequest(f *agentFlags) *runRequest {
	r := &runRequest{cmd: &cobra.Command{Use: replayVerb}}
	r.register(r.cmd.Flags())
	describeFlags(r.cmd)
	if f != nil {
		r.engineSecrets = f.engine
		t := &r.cfg.Telemetry
		t.Endpoint, t.Protocol, t.ExplicitHistograms = f.telemetry.Endpoint, f.telemetry.Protocol, f.telemetry.ExplicitHistograms
		r.cfg.TraceURL = f.traceURL
	}
	return r
}

// runOptions describes the options of a request.
func runOptions() (list []service.Option) {
	newRunRequest(nil).cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if !isRunOption(f) {
			return
		}
		r := ruleOf(f)
		_, usage := pflag.UnquoteUsage(f)
		o := service.Option{Name: f.Name, About: repeatable.Replace(withoutDashes(usage)), Type: jsonType(f), Words: r.words}
		if o.Type == "string" {
			if f.DefValue != "" {
				o.Default = f.DefValue
			}
			if o.Words == nil {
				o.About += "; " + r.want
			}
		} else if o.Type != "object" {
			o.Default = json.RawMessage(f.DefValue)
		}
		list = append(list, o)
	})
	return list
}

// A value of JSON is given once: what a command line repeats is one text there.
var repeatable = strings.NewReplacer(" (repeatable)", "", "(repeatable, or several", "(several")

var quotedOrDashes = regexp.MustCompile(`"[^"]*"|--`)

// withoutDashes turns the flags in a text into options: --model becomes model. Quoted text is a value, such as the flags of a
// transformation, and is not changed.
func withoutDashes(text string) string {
	return quotedOrDashes.ReplaceAllStringFunc(text, func(part string) string {
		if part == "--" {
			return ""
		}
		return part
	})
}

// jsonType returns the type that a flag's value has in JSON.
func jsonType(f *pflag.Flag) string {
	switch f.Value.Type() {
	case "bool":
		return "boolean"
	case "int", "int64", "uint64":
		return "integer"
	case "float64":
		return "number"
	}
	if f.Name == "extra-inputs" {
		return "object"
	}
	return "string"
}

// optionText converts the value of an option to the text of its flag.
func optionText(f *pflag.Flag, value json.RawMessage) (string, error) {
	kind := jsonType(f)
	value = bytes.TrimSpace(value)
	wrong := fmt.Errorf("%s: want %s", f.Name, map[string]string{
		"boolean": "true or false", "integer": "a whole number", "number": "a number", "object": "a JSON object", "string": "a text",
	}[kind])
	var content any
	decoder := json.NewDecoder(bytes.NewReader(value))
	decoder.UseNumber()
	if decoder.Decode(&content) != nil {
		return "", wrong
	}
	switch v := content.(type) {
	case bool:
		if kind == "boolean" {
			return strconv.FormatBool(v), nil
		}
	case json.Number:
		if kind == "integer" || kind == "number" {
			return v.String(), nil
		}
	case string:
		if kind == "string" {
			return v, nil
		}
	case map[string]any:
		if kind == "object" {
			return string(value), nil
		}
	}
	return "", wrong
}

// instead says what to do instead of giving an option that a client may expect a run to have.
var instead = map[string]string{
	"from":      "the agent replays a trace as it is; make the trace with moonloop convert first, and name or send that",
	"transform": "the agent replays a trace as it is; make the trace with moonloop transform first, and name or send that",
	"shard":     "each run of the agent has its own id, and moonloop merge joins only shards of one id; start the shards with moonloop replay",

	"clock-reference": "the agent sends only to the engines of --allow-target; only shards need the reference, and moonloop replay starts those",
}

// prepare makes the configuration of a run from its options.
func (f *agentFlags) prepare(ctx context.Context, base agent.Config, options map[string]json.RawMessage) (service.Prepared, error) {
	r := newRunRequest(f)
	fs := r.cmd.Flags()
	var known []string
	fs.VisitAll(func(f *pflag.Flag) {
		if isRunOption(f) {
			known = append(known, f.Name)
		}
	})
	p := service.Prepared{Options: make(map[string]any)}
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(options)) {
		flag := fs.Lookup(name)
		if flag == nil || !isRunOption(flag) {
			hint := didYouMean(nearest(name, known), "")
			if text := instead[name]; text != "" {
				hint = ": " + text
			}
			errs = append(errs, fmt.Errorf("%s: a run has no such option%s", visibleName(name), hint))
			continue
		}
		text, err := optionText(flag, options[name])
		// A client may fill in the defaults of the description. Some are no values of their flags, or refused without another flag.
		if isDefault := err == nil && text != "" && text == flag.DefValue; !isDefault {
			if err == nil {
				err = typedFlag{flag, name, text}.check(r.cmd)
			}
			if err == nil {
				err = fs.Set(name, text)
			}
		}
		if err != nil {
			errs = append(errs, err)
			continue
		}
		p.Options[name] = options[name]
		if ruleOf(flag).secret {
			p.Options[name] = hidden
		}
	}
	if err := errors.Join(errs...); err != nil {
		return p, err
	}
	c := &r.cfg
	c.Trace.Name, c.Target.URL, c.Out, c.RunID = base.Trace.Name, base.Target.URL, base.Out, base.RunID
	if err := r.resolve(ctx, fs); err != nil {
		return p, errors.New(withoutDashes(err.Error()))
	}
	c.Tool, c.Command = version(), publicCommand(r.cmd, []string{c.Trace.Name})
	p.Config, p.Warnings = *c, r.warnings
	return p, nil
}
