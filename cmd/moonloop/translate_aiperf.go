// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/moonloop/moonloop/agent/measure"
)

// This file translates AIPerf's flags for its load, its connections, its warm-up and its repeated runs.

// writtenFor reports whether the command line can be for this tool only.
func (t *translator) writtenFor(tool string) bool { return slices.Equal(t.tools, []string{tool}) }

// arrivals reads the distribution of the gaps between requests. A burst has no gaps: only the maximum number of requests in flight limits
// it.
func (t *translator) arrivals(value string) error {
	switch value {
	case "concurrency_burst":
		t.kept["burst"] = ""
		return t.closed("")
	case "constant", "poisson", "gamma":
		return t.add("arrival", value)
	}
	return fmt.Errorf("%s: want constant, poisson, gamma or concurrency_burst", quoted(value))
}

// drawing reads in which order conversations come.
func (t *translator) drawing(value string) error {
	switch value {
	case "sequential":
		return nil
	case "shuffle", "random":
		return keep("draw")(t, value)
	}
	return fmt.Errorf("%s: want sequential, shuffle or random", quoted(value))
}

// graceOf parses a grace period, which may be infinite.
func (t *translator) graceOf(value string) error {
	if strings.EqualFold(value, "inf") {
		return t.add("grace", century.String())
	}
	return seconds("grace")(t, value)
}

// randomFormat selects one format for all images, where AIPerf selects one of two for each.
func (t *translator) randomFormat(value string) error {
	t.say("--image-format %s: all images are png", value)
	return t.add("image-format", "png")
}

// throughputOfUser is AIPerf's objective for a user's throughput. It becomes one for the time between tokens.
const throughputOfUser = "output_token_throughput_per_user"

// objectives parses AIPerf's and vLLM's objectives, several in one value. AIPerf has two that bound the time between tokens: the stricter
// one implies the other.
func objectives(value string) (string, error) {
	var all []string
	for pair := range strings.FieldsSeq(value) {
		if rate, is := strings.CutPrefix(pair, throughputOfUser+":"); is {
			perSecond, err := parseFloat(rate)
			if err != nil || !(perSecond > 0 && perSecond <= 1e6) {
				return "", fmt.Errorf("%s: want a number of tokens per second, up to 1,000,000", quoted(pair))
			}
			pair = "itl:" + strconv.FormatFloat(1000/perSecond, 'f', -1, 64)
		}
		all = append(all, pair)
	}
	is := func(name string) func(string) bool {
		return func(pair string) bool { return strings.HasPrefix(pair, name+":") }
	}
	i, j := slices.IndexFunc(all, is("itl")), slices.IndexFunc(all, is("inter_token_latency"))
	if i >= 0 && j >= 0 {
		one, err := measure.ParseSLO(all[i])
		other, err2 := measure.ParseSLO(all[j])
		switch {
		case err != nil || err2 != nil: // the flag's rule reports it
		case one.ITL < other.ITL:
			all = slices.Delete(all, j, j+1)
		default:
			all = slices.Delete(all, i, i+1)
		}
	}
	return strings.Join(all, " "), nil
}

// adapter adds one of several models, to which vLLM sends requests at random or in turn.
func (t *translator) adapter(value string) error {
	t.adapters = append(t.adapters, value)
	return nil
}

// posts adds the requests to other endpoints of an engine.
func (t *translator) posts() {
	if t.has("reset") || t.has("reset path") || t.has("reset time") {
		_ = t.add("engine-post", "before="+cmp.Or(t.kept["reset path"], "/reset_prefix_cache"))
	}
	if t.has("profiler") || t.has("profiler start") || t.has("profiler stop") || t.has("profiler time") {
		_ = t.add("engine-post", "start="+cmp.Or(t.kept["profiler start"], "/start_profile"))
		_ = t.add("engine-post", "end="+cmp.Or(t.kept["profiler stop"], "/stop_profile"))
	}
}

// aiperfDefaults adds AIPerf's defaults: a warm-up has the load of the run, and of several runs, only the first one has a warm-up. In a
// settings file, each phase has its own load: a warm-up has nothing of a run there.
func (t *translator) aiperfDefaults() {
	warm := t.typed(append(warmups, "warmup-request-count", "num-warmup-requests", "num-warmup-sessions")...) != ""
	switch once, given := t.kept["warm once"]; {
	case !warm || t.typed("runs", "num-profile-runs") == "" || once == "false":
	case given || t.writtenFor(aiperf):
		_ = t.add("runs-warmup", "first")
		if !given {
			t.say("--num-profile-runs: the first run alone has a warm-up; --no-profile-run-disable-warmup-after-first gives each run one")
		}
	}
	if !warm || !t.writtenFor(aiperf) {
		return
	}
	rate := t.typed("request-rate")
	warmInFile := slices.ContainsFunc(warmups, func(name string) bool { _, in := t.inFile[name]; return in })
	if f, err := parseFloat(rate); err != nil || math.IsInf(f, 0) || t.kept["users"] != "" || warmInFile || t.inFile["request-rate"] {
		rate = ""
	}
	for _, same := range []struct {
		name string // of the warm-up
		of   []string
		need string // if empty, the flag would have no effect
	}{
		{"warmup-request-rate", []string{"request-rate"}, rate},
		{"warmup-arrival", []string{"arrival", "arrival-pattern", "request-rate-mode"}, cmp.Or(t.typed("warmup-request-rate"), rate)},
		{"warmup-ramp-up", []string{"ramp-up"}, cmp.Or(t.typed("warmup-request-rate"), rate)},
		{"warmup-concurrency-ramp-up", []string{"concurrency-ramp-up"}, "concurrency"},
		{"warmup-prefill-concurrency", []string{"prefill-concurrency"}, "prefill"},
		{"warmup-prefill-ramp-up", []string{"prefill-concurrency-ramp-up"}, "prefill"},
	} {
		if value := t.typed(same.of...); value != "" && same.need != "" && !t.inFile[same.of[0]] && t.typed(warmupNames(same.name)...) == "" {
			_ = t.add(same.name, value)
		}
	}
}

// warmups are the flags of ours that cause a warm-up.
var warmups = []string{"warmup-requests", "warmup-duration"}

// warmupNames returns our and AIPerf's names for a flag of the warm-up.
func warmupNames(ours string) []string {
	theirs := map[string]string{"warmup-arrival": "warmup-arrival-pattern"}[ours]
	return []string{ours, cmp.Or(theirs, ours)}
}

func (t *translator) warmAgain(string) error { return keep("warm once")(t, "false") }

// exportLevel stores the export level for rawExport.
func (t *translator) exportLevel(value string) error {
	if !slices.Contains([]string{"summary", "records", "raw"}, value) {
		return fmt.Errorf("%s: want summary, records or raw", quoted(value))
	}
	return keep("level")(t, value)
}

// rawExport saves the bodies that AIPerf's raw export contains.
func (t *translator) rawExport() {
	if t.kept["level"] != "raw" || t.typed("save-prompts") != "" {
		return
	}
	switch dir := t.typed("out", "output-artifact-dir", "artifact-dir"); {
	case dir == "":
		t.fail("--export-level raw: want --output-artifact-dir DIR with it, for the bodies of the requests")
	case t.typed("runs", "num-profile-runs") != "":
		t.say("--export-level raw: the bodies of several runs are not kept; --save-prompts FILE keeps the bodies of one run")
	default:
		_ = t.add("save-prompts", filepath.Join(dir, "prompts.jsonl"))
	}
}
