// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/moonloop/moonloop/convert"
	"github.com/moonloop/moonloop/mooncake/transform"
)

// This file holds what AIPerf's flags for recorded sessions of agents mean here.

// theScenario is the one that AIPerf has.
const theScenario = "inferencex-agentx-mvp"

func (t *translator) scenario(value string) error {
	if value != theScenario {
		return fmt.Errorf("%s: want %s", quoted(value), theScenario)
	}
	t.kept["scenario"] = value
	return nil
}

func (t *translator) graphFormat(value string) error {
	switch value {
	case "dynamo_trace":
		return t.datasetFormat(convert.Dynamo)
	case "weka_trace":
		return t.datasetFormat(convert.Format(aiperfFormats["weka_trace"]))
	case "native", "dag_jsonl":
		return fmt.Errorf("%s: such a file says how requests are made of replies, and a replay sends requests that are known: record a run with moonloop capture, and replay that", value)
	}
	return fmt.Errorf("%s: want dynamo_trace or weka_trace", quoted(value))
}

func (t *translator) datasetFormat(is convert.Format) error {
	t.kept["type"], t.kept["from"] = string(is), string(is)
	return t.add("from", string(is))
}

// recorded is what says which sessions there are: data sets of a hub, several models, and prompts that no run had before.
func (t *translator) recorded() (errs []error) {
	if name, given := t.kept["public"]; given || t.kept["hub"] != "" {
		repository := hubOf(name, t.kept["hub"])
		flag := "--public-dataset " + quoted(name)
		if !given {
			flag = "--hf-weka-dataset " + quoted(t.kept["hub"])
		}
		switch file := t.kept["input"] + t.kept["trace"]; {
		case file != "":
			t.said = append(t.said, flag+": nothing is downloaded; "+publicValue(file)+" is read in its place")
		case repository == "":
			errs = append(errs, errors.New(flag+": nothing is downloaded: download it, and name its file by --input-file; --dataset FILE makes prompts of texts for a trace"))
		default:
			errs = append(errs, fmt.Errorf("%s: nothing is downloaded: get it, such as with \"hf download %s --repo-type dataset --local-dir traces\", and add --input-file traces", flag, repository))
		}
	}
	var models []string
	for i, arg := range t.args {
		switch name, value, has := strings.Cut(arg, "="); {
		case name != "--model" && name != "--model-names" && name != "-m":
		case has:
			models = append(models, value)
		case i+1 < len(t.args):
			models = append(models, t.args[i+1])
		}
	}
	if len(slices.Compact(slices.Clone(models))) > 1 {
		for _, name := range []string{"model", "model-names"} {
			t.args = withoutFlag(t.args, name)
		}
		t.models = models
		t.said = append(t.said, "--model: the models of each conversation become "+strings.Join(models, ", ")+", in order of appearance")
	}
	if bust, given := t.kept["bust"]; given && bust != "none" {
		if !slices.Contains([]string{"system_prefix", "system_suffix", "first_turn_prefix", "first_turn_suffix"}, bust) {
			errs = append(errs, fmt.Errorf("--cache-bust %s: want system_prefix, system_suffix, first_turn_prefix, first_turn_suffix or none", quoted(bust)))
		}
		t.freshPrompts("--cache-bust")
	}
	return errs
}

// freshPrompts makes prompts that no other run, and no pass before, has sent.
func (t *translator) freshPrompts(why string) {
	if t.typed("seed", "random-seed") == "" {
		seed := strconv.FormatUint(uint64(rand.Uint32()), 10) //nolint:gosec // no secret
		t.said = append(t.said, why+": the prompts of this run are its own, by --seed "+seed+"; --random-seed keeps them the same")
		_ = t.add("seed", seed)
	}
	for _, flag := range []string{"loop", "runs"} {
		if t.typed(flag, map[string]string{"runs": "num-profile-runs"}[flag]) != "" && !slices.Contains(t.args, "--"+flag+"-fresh") {
			t.args = append(t.args, "--"+flag+"-fresh")
		}
	}
}

// hubOf returns the repository of a data set that AIPerf names, or "".
func hubOf(name, hub string) string {
	dated := regexp.MustCompile(`^semianalysis_cc_traces_weka_(\d{6}(_256k)?)$`).FindStringSubmatch(name)
	switch {
	case hub != "":
		return hub
	case dated != nil:
		return "semianalysisai/cc-traces-weka-" + strings.ReplaceAll(dated[1], "_", "-")
	case name == "semianalysis_cc_traces_weka" || name == "semianalysis_cc_traces_weka_no_subagents":
		return "semianalysisai/cc-traces-weka-no-subagents-051826"
	case strings.HasPrefix(name, "semianalysis_cc_traces_weka_with_subagents"):
		return "semianalysisai/cc-traces-weka-061326"
	}
	return ""
}

// turns is how later turns of a session follow the one before.
func (t *translator) turns() (errs []error) {
	has := func(name string) bool { _, given := t.kept[name]; return given }
	untimed := slices.ContainsFunc(t.args, func(arg string) bool {
		return arg == "--no-fixed-schedule" || arg == "--no-fixed-schedule=true"
	}) || t.typed("request-rate") != "" && !has("timed")
	limit, given := t.kept["delay cap"]
	flag := "--inter-turn-delay-cap-seconds"
	if idle, idles := t.kept["idle of one"]; idles && !given && (untimed || has("scenario")) {
		limit, given, flag = idle, true, "--trace-idle-gap-cap-seconds"
	} else if idles {
		if _, twice := t.kept["idle"]; !twice {
			t.kept["idle"] = idle
		}
	}
	if has("scenario") {
		for _, wrong := range []string{"request-rate", "start", "fixed-schedule-start-offset", "loop"} {
			if t.typed(wrong) != "" {
				errs = append(errs, fmt.Errorf("--scenario %s: it says when requests go, and --%s does, too: leave one of the two out", theScenario, wrong))
			}
		}
		if has("timed") || has("no delays") {
			errs = append(errs, fmt.Errorf("--scenario %s: it says when requests go, and --fixed-schedule and --ignore-trace-delays do, too: leave one of the two out", theScenario))
		}
		if !given {
			limit, given = "10", true
		}
		lasts := t.typed("max-duration")
		if lasts == "" {
			lasts = (30 * time.Minute).String()
			_ = t.add("max-duration", lasts)
		}
		_ = t.add("loop", lasts)
		if !untimed {
			_ = t.add("no-fixed-schedule", "true")
		}
		t.freshPrompts("--scenario")
		t.said = append(t.said, "--scenario "+theScenario+": "+agentX+"; the result is no submission: sessions begin with their first turn, and --concurrency counts requests")
	}
	how := transform.TurnsAsTimed
	switch {
	case has("no delays") && (has("think") || has("turns")):
		return append(errs, errors.New("--ignore-trace-delays: turns follow each other at once, and --use-think-time-only or --no-open-loop-replay has them wait: leave one of the two out"))
	case has("no delays") && has("timed"):
		return append(errs, errors.New("--ignore-trace-delays: turns follow each other at once, and --fixed-schedule follows the timestamps: leave one of the two out"))
	case has("no delays"):
		how = transform.TurnsAtOnce
		if !untimed {
			_ = t.add("no-fixed-schedule", "true")
		}
	case has("think") || has("turns") || has("scenario"):
		how = transform.TurnsFromEnd
	case given:
		how = transform.TurnsFromStart
	}
	if how == transform.TurnsAsTimed {
		return errs
	}
	if how != transform.TurnsAtOnce && !untimed && !has("turns") && !has("scenario") {
		for name, flag := range map[string]string{"delay cap": "--inter-turn-delay-cap-seconds", "think": "--use-think-time-only"} {
			if has(name) {
				t.said = append(t.said, flag+" has no effect: the timestamps are followed; --no-fixed-schedule has turns follow the one before")
			}
		}
		return errs
	}
	t.kept["turn-delay"] = string(how)
	if given {
		s, err := parseFloat(limit)
		if err != nil || !(s > 0 && s <= century.Seconds()) {
			return append(errs, fmt.Errorf("%s %s: want a number of seconds above 0", flag, quoted(limit)))
		}
		t.kept["max-delay"] = time.Duration(s * float64(time.Second)).String()
	}
	return errs
}
