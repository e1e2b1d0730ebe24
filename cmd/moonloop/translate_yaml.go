// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v3"
)

// This file translates AIPerf's settings files to the flags of AIPerf's command line, as far as they are about the replay of a trace. As in
// AIPerf, flags on the command line override the file.

//go:embed aiperf_settings.txt
var yamlTable string

// yamlSettings are the settings of AIPerf's files, by their names with dots, and what the table says of them.
var yamlSettings = func() map[string][]string {
	all := map[string][]string{}
	for _, line := range tableLines(yamlTable) {
		words := strings.Fields(line)
		all[words[0]] = words[1:]
	}
	return all
}()

// yamlFlag returns the flag that gets the value of a setting, or "".
func yamlFlag(setting string) string {
	if words := yamlSettings[setting]; len(words) == 1 {
		return words[0]
	}
	return ""
}

// yamlNothing reports whether a setting, or one that it is part of, has no effect.
func yamlNothing(setting string) bool {
	for {
		if words, known := yamlSettings[setting]; known && len(words) == 0 {
			return true
		}
		at := strings.LastIndexByte(setting, '.')
		if at < 0 {
			return false
		}
		setting = setting[:at]
	}
}

// yamlConfig returns AIPerf's flags for one of its files; is reports whether it is such a file.
func yamlConfig(name string) (args []string, is bool, err error) {
	if info, err := os.Stat(name); err != nil || !info.Mode().IsRegular() { // only a regular file can be read again
		return nil, false, nil //nolint:nilerr // the reader of our own settings files reports it
	}
	content, err := readSmallFile(context.Background(), name, maxSettingsFile)
	if err != nil {
		return nil, false, nil //nolint:nilerr // likewise
	}
	var root map[string]any
	if yaml.Unmarshal([]byte(content), &root) != nil || root["benchmark"] == nil {
		return nil, false, nil
	}
	content, err = substituted(content)
	root = nil
	if err == nil {
		err = yaml.Unmarshal([]byte(content), &root)
	}
	if err != nil {
		return nil, true, fmt.Errorf("%s: %w", quoted(name), err)
	}
	y := new(yamlReader)
	for _, key := range slices.Sorted(maps.Keys(root)) {
		if body, isMap := root[key].(map[string]any); isMap && key == "benchmark" {
			y.benchmark(body)
		} else {
			y.walk(snake(key), root[key])
		}
	}
	for i, one := range y.errs {
		y.errs[i] = fmt.Errorf("%s: %w", quoted(name), one)
	}
	return y.args, true, errors.Join(y.errs...)
}

// substitution matches a reference to an environment variable, with an optional default after a colon.
var substitution = regexp.MustCompile(`\$\{([A-Za-z_][A-Za-z0-9_]*)(:[^}]*)?\}`)

func substituted(content string) (string, error) {
	var missing []string
	content = substitution.ReplaceAllStringFunc(content, func(text string) string {
		parts := substitution.FindStringSubmatch(text)
		value, set := os.LookupEnv(parts[1])
		switch {
		case set:
			return value
		case parts[2] == "":
			missing = append(missing, parts[1])
		}
		return strings.TrimPrefix(parts[2], ":")
	})
	if missing != nil {
		return "", fmt.Errorf("the environment does not have %s", strings.Join(missing, ", "))
	}
	return content, nil
}

// snake converts a name from camel case to snake case. AIPerf accepts both.
func snake(name string) string {
	var b strings.Builder
	for _, r := range name {
		if r >= 'A' && r <= 'Z' {
			b.WriteByte('_')
			r += 'a' - 'A'
		}
		b.WriteRune(r)
	}
	return b.String()
}

// aTimeOf matches the flags with a time.
var aTimeOf = regexp.MustCompile(`duration$|grace-period$|seconds$|timeout$`)

// yamlReader converts settings to flags.
type yamlReader struct {
	args []string
	errs []error
}

func (y *yamlReader) fail(format string, args ...any) {
	y.errs = append(y.errs, fmt.Errorf(format, args...))
}

func (y *yamlReader) flag(name string, value any) {
	text := fmt.Sprint(value)
	_, isMap := value.(map[string]any)
	_, isList := value.([]any)
	switch {
	case isMap || isList:
		y.fail("%s: want one value", name)
		return
	case strings.Contains(text, "{{"):
		y.fail("%s: expressions are not evaluated here: write the value", name)
		return
	}
	if aTimeOf.MatchString(name) { // seconds on the command line
		if d, err := time.ParseDuration(text); err == nil {
			text = strconv.FormatFloat(d.Seconds(), 'f', -1, 64)
		}
	}
	y.args = append(y.args, "--"+name+"="+text)
}

// benchmark reads one workload.
func (y *yamlReader) benchmark(body map[string]any) {
	for _, key := range slices.Sorted(maps.Keys(body)) {
		switch name, value := snake(key), body[key]; name {
		case "dataset", "datasets":
			y.dataset(value)
		case "phases":
			y.phases(value)
		case "warmup", "profiling":
			y.phase(name, value)
		case "slos":
			if limits, is := value.(map[string]any); is {
				var all []string
				for _, metric := range slices.Sorted(maps.Keys(limits)) {
					all = append(all, snake(metric)+":"+fmt.Sprint(limits[metric]))
				}
				y.args = append(y.args, "--goodput="+strings.Join(all, " "))
			}
		default:
			y.walk(name, value)
		}
	}
}

func (y *yamlReader) dataset(value any) {
	if list, is := value.([]any); is && len(list) == 1 {
		value = list[0]
	}
	set, is := value.(map[string]any)
	switch {
	case !is:
		y.fail("dataset: want one dataset, with its settings")
	case set["path"] == nil:
		y.fail("dataset: it names no file: a replay sends a trace: moonloop generate makes one with lengths of your choice")
	default:
		y.walk("dataset", set)
	}
}

func (y *yamlReader) phases(value any) {
	switch is := value.(type) {
	case map[string]any:
		y.phase("profiling", is)
	case []any:
		runs := 0
		for _, one := range is {
			phase, _ := one.(map[string]any)
			kind := fmt.Sprint(phase["name"])
			if phase["kind"] != nil {
				kind = fmt.Sprint(phase["kind"])
			}
			if kind != "warmup" {
				runs++
			}
			y.phase(kind, one)
		}
		if runs != 1 {
			y.fail("phases: %d that are not warm-ups: a replay has one load", runs)
		}
	default:
		y.fail("phases: want a list of them")
	}
}

func (y *yamlReader) phase(kind string, value any) {
	phase, is := value.(map[string]any)
	if !is {
		y.fail("%s: want the settings of a phase", kind)
		return
	}
	pattern := snake(fmt.Sprint(phase["type"]))
	if kind == "warmup" {
		y.warmup(pattern, phase)
		return
	}
	switch pattern {
	case "fixed_schedule":
		y.args = append(y.args, "--fixed-schedule")
	case "constant", "poisson", "gamma":
		y.args = append(y.args, "--no-fixed-schedule", "--arrival-pattern="+pattern)
	case "concurrency":
		y.args = append(y.args, "--no-fixed-schedule")
	case "user_centric":
		y.flag("user-centric-rate", phase["rate"])
		phase = maps.Clone(phase)
		delete(phase, "rate")
	default:
		y.fail("%s: type %s: want fixed_schedule, concurrency, constant, poisson, gamma or user_centric", kind, quoted(pattern))
	}
	y.walk("phase", phase)
}

// warmup reads the warm-up. Like each phase of a file, it has only the settings that are written for it, so the limits on its requests in
// flight do not depend on those of the run.
func (y *yamlReader) warmup(pattern string, phase map[string]any) {
	atOnce := 1 // AIPerf's default
	switch pattern {
	case "concurrency":
	case "constant", "poisson", "gamma":
		if pattern == "gamma" { // without a smoothness of its own, which is refused below; ours has that of the run
			pattern = "poisson"
		}
		y.flag("warmup-arrival-pattern", pattern)
		atOnce = mostWarmup
	default:
		y.fail("warmup: type %s: want concurrency, constant, poisson or gamma", quoted(pattern))
	}
	if phase["concurrency"] == nil {
		y.flag("warmup-concurrency", atOnce)
	}
	for _, key := range slices.Sorted(maps.Keys(phase)) {
		switch name := snake(key); {
		case phase[key] == nil:
		case yamlFlag("warmup."+name) != "":
			y.flag(yamlFlag("warmup."+name), phase[key])
		case !yamlNothing("phase." + name):
			y.fail("warmup: %s: a warm-up has nothing of this kind; leave it out", name)
		}
	}
}

// walk converts a setting, and all nested ones, to flags.
func (y *yamlReader) walk(path string, value any) {
	on, isSwitch := value.(bool)
	within, isMap := value.(map[string]any)
	list, isList := value.([]any)
	flag, words := yamlFlag(path), yamlSettings[path]
	switch {
	case value == nil:
	case path == "sweep":
		y.fail("sweep: %s", reasons["oneByOne"])
	case isSwitch && len(words) > 1: // ? ON [OFF]
		if on {
			y.args = append(y.args, "--"+words[1])
		} else if len(words) > 2 {
			y.args = append(y.args, "--"+words[2])
		}
	case path == "endpoint.headers" && isMap:
		for _, name := range slices.Sorted(maps.Keys(within)) {
			y.args = append(y.args, "--header="+name+": "+fmt.Sprint(within[name]))
		}
	case path == "endpoint.extra" && isMap:
		object, err := json.Marshal(within)
		if err != nil {
			y.fail("%s: %w", path, err)
		}
		y.args = append(y.args, "--extra-inputs="+string(object))
	case flag != "" && isList:
		for _, one := range list {
			y.flag(flag, one)
		}
	case flag != "" && !isMap:
		y.flag(flag, value)
	case isMap && (!yamlNothing(path) || path == "artifacts" || path == "multi_run"):
		for _, name := range slices.Sorted(maps.Keys(within)) {
			y.walk(path+"."+snake(name), within[name])
		}
	case yamlNothing(path):
	default:
		y.fail("%s: a replay has nothing of this kind; leave it out", strings.Replace(path, "phase.", "phases.", 1))
	}
}

// maximumOf is what rises in a ramp of a phase. Without it, a ramp in AIPerf's settings file has no effect there, and is an error here.
var maximumOf = map[string]string{
	"concurrency-ramp-up": "concurrency", "prefill-concurrency-ramp-up": "prefill-concurrency", "warmup-prefill-ramp-up": "warmup-prefill-concurrency",
}

// withConfig inserts the flags of AIPerf's settings file before the others, unless these set the same. inFile has the flags of ours that the
// file sets, and for each whether it counts; it is nil if there is no such file.
func withConfig(fs *pflag.FlagSet, words []flagWord, args []string) (all []string, inFile map[string]bool, err error) {
	at := slices.IndexFunc(words, func(w flagWord) bool { return w.name == "config" && len(w.values) == 1 })
	if at < 0 {
		return nil, nil, nil
	}
	theirs, is, err := yamlConfig(words[at].values[0])
	if !is || err != nil {
		return nil, nil, err
	}
	inFile = map[string]bool{}
	name := func(arg string) string {
		name, _, _ := strings.Cut(strings.TrimPrefix(arg, "--"), "=")
		return meaningOf(fs, name)
	}
	typed := map[string]bool{}
	for i, w := range words {
		if i != at {
			typed[meaningOf(fs, w.name)] = true
		}
	}
	for _, arg := range theirs {
		inFile[name(arg)] = !typed[name(arg)]
	}
	for _, arg := range theirs {
		most := maximumOf[name(arg)]
		if _, given := inFile[most]; inFile[name(arg)] && (most == "" || given || typed[most]) {
			all = append(all, arg)
		}
	}
	for i, w := range words {
		if i != at {
			all = append(all, w.typed...)
		}
	}
	if !typed["as"] {
		all = append(all, "--as="+aiperf)
	}
	return append(all, args...), inFile, nil
}

// meaningOf returns what the names of one AIPerf flag have in common: the flag of ours that it becomes, if there is one.
func meaningOf(fs *pflag.FlagSet, name string) string {
	if name == "fixed-schedule" {
		name = "no-fixed-schedule" // the opposite of it
	}
	if f := fs.Lookup(name); f != nil {
		return f.Name
	}
	for _, a := range rows {
		if a.name == name && a.of(aiperf) && strings.HasPrefix(a.ours, "--") && a.ours != "--transform" {
			return strings.TrimPrefix(a.ours, "--")
		}
	}
	return name
}
