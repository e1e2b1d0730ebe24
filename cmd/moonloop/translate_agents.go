// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/moonloop/moonloop/convert"
	"github.com/moonloop/moonloop/mooncake"
	"github.com/moonloop/moonloop/mooncake/transform"
)

// This file translates AIPerf's flags for recorded sessions of agents.

// theScenario is the only scenario of AIPerf.
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
	case "weka_trace", "dag_jsonl":
		return t.datasetFormat(convert.Format(aiperfFormats[value]))
	case "native":
		return fmt.Errorf("%s: a native graph makes requests from replies, but a replay sends recorded requests: capture a run with moonloop capture, and replay the capture", value)
	}
	return fmt.Errorf("%s: want dynamo_trace, weka_trace or dag_jsonl", quoted(value))
}

func (t *translator) datasetFormat(is convert.Format) error {
	t.kept["type"], t.kept["from"] = string(is), string(is)
	return t.add("from", string(is))
}

// recorded translates the flags for the source of sessions: data sets of a hub, several models, and prompts that no earlier run had.
func (t *translator) recorded() {
	if name, given := t.kept["public"]; given || t.kept["hub"] != "" {
		repository := hubOf(name, t.kept["hub"])
		flag := "--public-dataset " + quoted(name)
		if !given {
			flag = "--hf-weka-dataset " + quoted(t.kept["hub"])
		}
		switch file := t.kept["input"] + t.kept["trace"]; {
		case file != "":
			t.say("%s: nothing is downloaded; %s is read in its place", flag, publicValue(file))
		case repository == "":
			t.fail("%s: nothing is downloaded: download it yourself, and name its file with --input-file; --dataset FILE makes the prompts of a trace from texts", flag)
		default:
			t.fail("%s: nothing is downloaded: download it yourself, such as with \"hf download %s --repo-type dataset --local-dir traces\", and add --input-file traces", flag, repository)
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
	if t.writtenFor(aiperf) { // whose list may be one word
		models = strings.Split(strings.Join(models, ","), ",")
	}
	if t.adapters != nil {
		models = t.adapters
	}
	if len(slices.Compact(slices.Clone(models))) > 1 || t.adapters != nil {
		t.remove("model", "model-names")
		t.models = models
		t.say("--model: the models of each conversation become %s, in order of appearance", strings.Join(models, ", "))
	}
	if bust, given := t.kept["bust"]; given && bust != "none" {
		if !slices.Contains([]string{"system_prefix", "system_suffix", "first_turn_prefix", "first_turn_suffix"}, bust) {
			t.fail("--cache-bust %s: want system_prefix, system_suffix, first_turn_prefix, first_turn_suffix or none", quoted(bust))
		}
		t.freshPrompts("--cache-bust")
	}
}

// freshPrompts chooses prompts that no other run, and no earlier pass, has sent.
func (t *translator) freshPrompts(why string) {
	if t.typed("seed", "random-seed") == "" {
		seed := strconv.FormatUint(uint64(rand.Uint32()), 10) //nolint:gosec // no secret
		t.say("%s: --seed %s gives this run prompts that no other run has; with --random-seed they stay the same", why, seed)
		_ = t.add("seed", seed)
	}
	for _, flag := range []string{"loop", "runs"} {
		if t.typed(flag, map[string]string{"runs": "num-profile-runs"}[flag]) != "" && !slices.Contains(t.args, "--"+flag+"-fresh") {
			t.args = append(t.args, "--"+flag+"-fresh")
		}
	}
}

// window translates AIPerf's window of a trace, which counts from timestamp 0; ours counts from the first row.
func (t *translator) window() {
	names := map[string]string{"start": "fixed-schedule-start-offset", "end": "fixed-schedule-end-offset"}
	file := cmp.Or(t.kept["input"], t.kept["trace"])
	if t.typed(names["start"], names["end"]) == "" || t.kept["from"] != "" || t.typed("from") != "" {
		return
	}
	if info, err := os.Stat(file); err != nil || !info.Mode().IsRegular() {
		return
	}
	trace, err := mooncake.Open(context.Background(), file, mooncake.OpenOptions{})
	if err != nil {
		return // the replay reports it
	}
	defer func() { _ = trace.Close() }()
	row, err := trace.Read()
	if err != nil || row.Timestamp.V == 0 {
		return
	}
	for ours, theirs := range names {
		text := t.typed(theirs)
		at, err := parseFloat(text)
		if text == "" || err != nil {
			continue
		}
		at -= row.Timestamp.V
		if ours == "end" && at < 0 {
			t.fail("--%s %s: the offset counts from timestamp 0, and the first row is at %g; with --fixed-schedule-auto-offset the offset counts from the first row", theirs, text, row.Timestamp.V)
			continue
		}
		if at = max(at, 0); ours == "end" && at == 0 { // which would mean no end
			at = 0.001
		}
		t.remove(theirs)
		_ = t.add(ours, strconv.FormatFloat(at, 'f', -1, 64))
		t.say("--%s: the offset counts from timestamp 0, and the first row is at %g; with --fixed-schedule-auto-offset the offset counts from the first row", theirs, row.Timestamp.V)
	}
}

// turnsOfTexts ignores the timestamps of AIPerf's turns, as AIPerf does without --fixed-schedule.
func (t *translator) turnsOfTexts() {
	if _, timed := t.kept["timed"]; !timed && t.kept["from"] == aiperfFormats["single_turn"] && !t.untimed() {
		_ = t.closed("")
	}
}

// untilReached repeats the trace until the number of requests, or the time, that AIPerf's flags set is reached, if timestamps are not
// followed.
func (t *translator) untilReached() {
	info, err := os.Stat(t.kept["input"])
	folder := err == nil && info.IsDir()
	kind := strings.ReplaceAll(t.kept["type"], "-", "_")
	if kind == "random_pool" && folder {
		t.fail("--custom-dataset-type random_pool: with a folder, AIPerf makes each request from one line of each file: name one file")
	}
	if n, given := t.kept["sessions"]; given && (kind == "single_turn" || kind == "random_pool" || kind == "raw_payload" && !folder) {
		delete(t.kept, "sessions")
		_ = t.add("max-requests", n)
	}
	untimed := t.untimed() || t.kept["from"] == aiperfFormats["raw_payload"]
	if !untimed || len(t.tools) != 1 || t.tools[0] != aiperf || t.typed("loop") != "" {
		return
	}
	if n := t.typed("request-count", "num-requests", "max-requests"); n != "" {
		_ = t.add("loop", n)
	} else if lasts := t.typed("max-duration"); lasts != "" {
		_ = t.add("loop", lasts)
	}
}

// untimed reports whether the timestamps only set the order.
func (t *translator) untimed() bool {
	_, timed := t.kept["timed"]
	return slices.ContainsFunc(t.args, func(arg string) bool {
		return arg == "--no-fixed-schedule" || arg == "--no-fixed-schedule=true"
	}) || t.typed("request-rate", "request-rate-series") != "" && !timed
}

// hubOf returns the repository of a data set: hub, if that is given, else the one of this name in AIPerf; "" if it is unknown.
func hubOf(name, hub string) string {
	const traces = "semianalysis_cc_traces_weka"
	is := strings.TrimPrefix(strings.ReplaceAll(strings.TrimPrefix(name, traces), "_", "-"), "-")
	switch {
	case hub != "":
		return hub
	case !strings.HasPrefix(name, traces):
	case is == "" || is == "no-subagents":
		return "semianalysisai/cc-traces-weka-no-subagents-051826"
	case is == "with-subagents" || is == "with-subagents-256k": // names of the newest version
		return "semianalysisai/cc-traces-weka-062126" + strings.TrimPrefix(is, "with-subagents")
	case regexp.MustCompile(`^(with-subagents-)?\d{6}(-256k)?$`).MatchString(is):
		return "semianalysisai/cc-traces-weka-" + is
	}
	return ""
}

// turns translates the flags for how later turns of a session follow the turn before.
func (t *translator) turns() {
	untimed := t.untimed()
	limit, given := t.kept["delay cap"]
	flag := "--inter-turn-delay-cap-seconds"
	if idle, idles := t.kept["idle of one"]; idles && !given && (untimed || t.has("scenario")) {
		limit, given, flag = idle, true, "--trace-idle-gap-cap-seconds"
	} else if idles {
		if _, twice := t.kept["idle"]; !twice {
			t.kept["idle"] = idle
		}
	}
	if t.has("scenario") {
		for _, wrong := range []string{"request-rate", "start", "fixed-schedule-start-offset", "loop"} {
			if t.typed(wrong) != "" {
				t.fail("--scenario %s: it sets when requests are sent, and so does --%s: leave one of the two out", theScenario, wrong)
			}
		}
		if t.has("timed") || t.has("no delays") {
			t.fail("--scenario %s: it sets when requests are sent, and so do --fixed-schedule and --ignore-trace-delays: leave one of the two out", theScenario)
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
		t.say("--scenario %s: %s; the result is not a submission to InferenceX: sessions begin with their first turn, and --concurrency counts requests", theScenario, reasons["agentX"])
	}
	how := transform.TurnsAsTimed
	switch {
	case t.has("no delays") && (t.has("think") || t.has("turns")):
		t.fail("--ignore-trace-delays: turns follow each other at once, but with --use-think-time-only or --no-open-loop-replay they wait: leave one of the two out")
		return
	case t.has("no delays") && t.has("timed"):
		t.fail("--ignore-trace-delays: turns follow each other at once, but --fixed-schedule follows the timestamps: leave one of the two out")
		return
	case t.has("no delays"):
		how = transform.TurnsAtOnce
		if !untimed {
			_ = t.add("no-fixed-schedule", "true")
		}
	case t.has("think") || t.has("turns") || t.has("scenario"):
		how = transform.TurnsFromEnd
	case given:
		how = transform.TurnsFromStart
	}
	if how == transform.TurnsAsTimed {
		return
	}
	if how != transform.TurnsAtOnce && !untimed && !t.has("turns") && !t.has("scenario") {
		for name, flag := range map[string]string{"delay cap": "--inter-turn-delay-cap-seconds", "think": "--use-think-time-only"} {
			if t.has(name) {
				t.say("%s has no effect: the timestamps are followed; --no-fixed-schedule sends each turn after the one before it", flag)
			}
		}
		return
	}
	t.kept["turn-delay"] = string(how)
	if given {
		s, err := parseFloat(limit)
		if err != nil || !(s > 0 && s <= century.Seconds()) {
			t.fail("%s %s: want a number of seconds above 0", flag, quoted(limit))
			return
		}
		t.kept["max-delay"] = time.Duration(s * float64(time.Second)).String()
	}
}
