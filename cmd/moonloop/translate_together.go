// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"net"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/moonloop/moonloop/agent/load"
	"github.com/moonloop/moonloop/agent/prompt"
	"github.com/moonloop/moonloop/mooncake"
	"github.com/moonloop/moonloop/mooncake/transform"
)

// This file translates flags that have a meaning only together.

// finish adds what flags mean together.
func (t *translator) finish() {
	t.engine()
	if t.has("input") && !t.has("type") {
		t.findType()
	}
	t.recorded()
	t.limits()
	t.posts()
	t.results()
	t.textsOf()
	t.load()
	t.vllmDefaults()
	t.logprobsOf()
	t.aiperfDefaults()
	t.timestamps()
	t.turnsOfTexts()
	t.turns()
	t.untilReached()
	t.synthesis()
	t.extraInputs()
}

// engine translates where requests go, for which model, and with which images.
func (t *translator) engine() {
	if t.has("image width") || t.has("image height") {
		w := cmp.Or(t.kept["image width"], t.kept["image height"])
		_ = t.add("image-size", w+"x"+cmp.Or(t.kept["image height"], w))
		if t.typed("images", "image-batch-size", "batch-size-image") == "" {
			_ = t.add("images", "1")
		}
	}
	if t.has("host") || t.has("port") {
		_ = t.add("url", "http://"+net.JoinHostPort(cmp.Or(t.kept["host"], "127.0.0.1"), cmp.Or(t.kept["port"], "8000")))
	}
	if t.has("served") {
		t.remove("model")
		_ = t.add("model", t.kept["served"])
	}
}

// limits translates where a run ends.
func (t *translator) limits() {
	if rate := t.typed("max-error-rate"); rate != "" && t.writtenFor(guidellm) {
		t.remove("max-error-rate")
		_ = t.add("abort-error-rate", rate)
	}
	if t.typed("num-prompts") == "-1" && !slices.ContainsFunc(t.tools, func(tool string) bool { return !strings.Contains(vllms, tool) }) { // all
		t.remove("num-prompts")
		_ = t.add("max-requests", "0")
	}
	if t.has("most") {
		_ = t.add("max-requests", t.kept["most"])
	}
}

// results translates which files are written.
func (t *translator) results() {
	if t.has("prefix") {
		into := t.typed("out", "output-artifact-dir", "artifact-dir")
		t.remove("out", "output-artifact-dir", "artifact-dir")
		_ = t.add("out", filepath.Join(cmp.Or(into, "."), strings.TrimSuffix(t.kept["prefix"], filepath.Ext(t.kept["prefix"]))))
	}
	t.rawExport()
	if t.has("folder") {
		_ = t.add("out", t.kept["folder"])
	}
	named := filepath.Join(cmp.Or(t.kept["dir"], "."), strings.TrimSuffix(t.kept["file"], ".json"))
	if t.has("prompts") {
		_ = t.add("save-prompts", filepath.Join(named, "prompts.jsonl"))
	}
	if t.has("save") {
		_ = t.add("out", named)
	} else if t.has("dir") || t.has("file") {
		t.say("--result-dir and --result-filename have no effect without --save-result")
	}
}

// textsOf converts TraceReplay's modes to a dataset. Its mode trace ignores a dataset.
func (t *translator) textsOf() {
	if t.has("prompts of") && t.typed("dataset") == "" {
		t.fail("--prompts dataset: its file is missing: write --prompts dataset FILE")
	}
	name, file := t.kept["text"], t.kept["text file"]
	switch mode := cmp.Or(t.kept["mode"], "trace"); {
	case mode == "trace" && (name != "" || file != ""):
		t.say("--dataset-name and --dataset-path have no effect without --trace-mode benchmark: the prompts are those of the trace")
		return
	case mode == "trace":
		return
	case mode != "benchmark":
		t.fail("--trace-mode %s: want trace or benchmark", quoted(mode))
		return
	}
	name = cmp.Or(name, "sharegpt")
	switch {
	case name == "random":
	case !slices.Contains([]string{"sharegpt", "custom", "sonnet"}, name):
		t.fail("--trace-mode benchmark with --dataset-name %s: want sharegpt, custom or sonnet with --dataset-path FILE, or random; "+
			"for another dataset, download one with text and give it as --dataset FILE", quoted(name))
	case file == "":
		t.fail("--dataset-name %s: want --dataset-path FILE with it; nothing is downloaded", name)
	default:
		_ = t.add("dataset", file)
	}
}

// rateFlags say when requests are sent, if the timestamps do not.
var rateFlags = []string{
	"request-rate", "request-rate-series", "arrival", "arrival-pattern", "request-rate-mode", "burstiness", "arrival-smoothness", "users", "ramp-up",
	"ramp-up-from", "ramp-up-shape",
}

// load translates when requests are sent.
func (t *translator) load() {
	if t.has("profile") || t.has("rate") || t.has("rampup") {
		if err := t.guideLoad(); err != nil {
			t.fail("%w", err)
		}
	}
	if t.has("seconds") && !t.has("scale") && cmp.Or(t.kept["profile"], "replay") == "replay" {
		t.kept["scale"] = "1"
		t.say("--data: timestamps are seconds, as there is no time_scale; time_scale=0.001 is for a trace in milliseconds")
	}
	if t.has("users") || t.has("user rate") {
		if t.has("users") != t.has("user rate") {
			t.fail("--user-centric-rate, --num-users: one has no effect without the other: give both or neither")
		}
		_ = t.add("users", t.kept["users"])
		_ = t.add("request-rate", t.kept["user rate"])
	}
	rated := t.typed("request-rate", "request-rate-series") != ""
	if t.has("burst") && rated {
		t.fail("--arrival-pattern concurrency_burst: requests go as soon as --concurrency has room for them, and --request-rate says when: leave one of the two out")
	}
	if t.has("ramp") || t.has("ramp from") || t.has("ramp to") {
		t.vllmRamp()
		rated = t.typed("request-rate", "request-rate-series") != ""
	}
	if (t.has("timed") || t.has("mode")) && rated {
		t.remove(rateFlags...)
		t.say("--request-rate has no effect: %s", reasons["followed"])
	}
}

// vllmRamp converts vLLM's ramp over a number of requests to a ramp over the time that these requests take.
func (t *translator) vllmRamp() {
	number := t.typed("num-prompts", "max-requests")
	if number == "" && t.kept["dataset"] == "timed_trace" {
		number = vllmPrompts
	}
	prompts, err := parseFloat(number)
	from, err1 := parseFloat(t.kept["ramp from"])
	to, err2 := parseFloat(t.kept["ramp to"])
	shape := t.kept["ramp"]
	switch {
	case shape != "linear" && shape != "exponential":
		t.fail("--ramp-up-strategy %s: want linear or exponential", quoted(shape))
		return
	case err1 != nil || err2 != nil || !(from > 0 && from <= load.MaxRate) || !(to > 0 && to <= load.MaxRate):
		t.fail("--ramp-up-strategy: want --ramp-up-start-rps and --ramp-up-end-rps with it, each above 0")
		return
	case err != nil || !(prompts >= 1 && prompts <= maxRows):
		t.fail("--ramp-up-strategy: want --num-prompts N with it, which says how long the ramp is")
		return
	}
	mean := (from + to) / 2
	if shape == "exponential" && from != to {
		mean = (to - from) / math.Log(to/from)
	}
	_ = t.add("ramp-up", strconv.FormatFloat(prompts/mean, 'f', 9, 64)+"s")
	_ = t.add("ramp-up-from", t.kept["ramp from"])
	_ = t.add("ramp-up-shape", shape)
	_ = t.add("request-rate", t.kept["ramp to"])
}

// vllmPrompts is the default number of requests of vLLM.
const vllmPrompts = "1000"

// vllmDefaults adds the defaults of vLLM and TraceReplay.
func (t *translator) vllmDefaults() {
	timed := t.kept["dataset"] == "timed_trace"
	if (timed || t.kept["trace path"] != "") && t.kept["endpoint"] == "" && t.typed("endpoint") == "" {
		_ = t.endpoint("completions")
		t.say("completions are sent, as there is no --backend; --backend openai-chat sends chats")
	}
	if timed && t.typed("num-prompts", "max-requests") == "" {
		_ = t.add("max-requests", vllmPrompts)
		t.say("--dataset-name timed_trace: the first %s rows are sent, as there is no --num-prompts; --num-prompts 0 sends all", vllmPrompts)
	}
	if t.has("untimed") {
		_ = t.closed("")
		if t.typed("request-rate", "concurrency", "max-concurrency") == "" {
			_ = t.add("request-rate", "inf")
		}
	}
}

// logprobsOf adds a number of log probabilities to completions. vLLM's bench sends it to no other endpoint, and a chat must not have a number there.
func (t *translator) logprobsOf() {
	switch n, given := t.kept["logprobs"]; {
	case !given:
	case cmp.Or(t.kept["endpoint"], t.typed("endpoint")) != string(prompt.Completions):
		t.say(`--logprobs has no effect: as in vLLM, only completions have it; chats take --extra-inputs '{"logprobs": true, "top_logprobs": N}'`)
	default:
		if err := extraOf("logprobs")(t, n); err != nil {
			t.fail("--logprobs: %w", err)
		}
	}
}

// timestamps translates the meaning of the timestamps and the hash ids of a trace.
func (t *translator) timestamps() {
	scale, given := t.kept["scale"]
	switch dataset := t.kept["dataset"]; {
	case dataset == "timed_trace":
		if !given {
			scale, given = "1", true
			t.say("--dataset-name timed_trace: timestamps are seconds, as there is no --timed-trace-sec-multiplier")
		}
		if !t.has("chunk") {
			t.kept["chunk"] = "16"
			t.say("--dataset-name timed_trace: 16 tokens for each hash id, as there is no --timed-trace-chunk-hash-size")
		}
	case dataset != "":
		t.fail("--dataset-name %s: want timed_trace: a replay sends a trace; %s", quoted(dataset),
			cmp.Or(otherDatasets[dataset], "moonloop convert makes one from a file of another format, and moonloop generate makes one with lengths of your choice"))
	}
	if t.has("chunk") {
		_ = t.add("block-size", t.kept["chunk"])
	}
	if given {
		t.scale(scale)
	}
}

// scale sets how many seconds a unit of the timestamps lasts in the replay.
func (t *translator) scale(text string) {
	s, err := parseFloat(text)
	if err != nil || !(s > 0) || math.IsInf(s, 0) {
		t.fail("time scale %s: want the seconds that a unit of the timestamps lasts, above 0", quoted(text))
		return
	}
	if t.kept["from"] != "" { // the format determines the unit
		_ = t.add("speedup", strconv.FormatFloat(1/s, 'g', -1, 64))
		return
	}
	unit, length := "s", 1.0
	switch { // the intended unit, so that a faster replay is a speed-up
	case s < 5e-5:
		unit, length = "us", 1e-6
	case s < 0.05:
		unit, length = "ms", 1e-3
	}
	_ = t.add("time-unit", unit)
	if speedup := length / s; math.Abs(speedup-1) > 1e-9 {
		_ = t.add("speedup", strconv.FormatFloat(speedup, 'g', -1, 64))
	}
}

// stepFlags are the flags of moonloop transform that stored flags become.
var stepFlags = [][2]string{
	{"max-isl", "max-input"},
	{"sample", "scale"},
	{"output-len", "output-scale"},
	{"prefix-roots", "roots"},
	{"max-context", "max-context"},
	{"conversations", "first-conversations"},
	{"sessions", "first-conversations"},
	{"turn-delay", "turn-delay"},
	{"max-delay", "max-delay"},
	{"draw", "draw"},
}

// synthesis translates AIPerf's synthesis flags to steps of moonloop transform. AIPerf multiplies shared and other parts of prompts
// separately, --input-scale both: the second step divides accordingly.
func (t *translator) synthesis() {
	factor := func(name, flag string) float64 {
		if !t.has(name) {
			return 1
		}
		f, err := parseFloat(t.kept[name])
		if err != nil || !(f >= transform.MinScale && f <= transform.MaxScale) {
			t.fail("--%s %s: want a number from %g to %g", flag, quoted(t.kept[name]), transform.MinScale, float64(transform.MaxScale))
			return 1
		}
		return f
	}
	prefix, unshared := factor("prefix-len", "synthesis-prefix-len-multiplier"), factor("prompt-len", "synthesis-prompt-len-multiplier")
	var step []string
	set := func(name string, value any) { step = append(step, fmt.Sprintf("--%s=%v", name, value)) }
	for _, plain := range stepFlags {
		if t.has(plain[0]) {
			set(plain[1], t.kept[plain[0]])
		}
	}
	if seed := t.typed("seed", "random-seed"); seed != "" && t.has("draw") {
		set("seed", seed)
	}
	if gap := t.longestGap(); gap > 0 {
		set("max-gap", gap)
	}
	if unshared != 1 {
		set("input-scale", unshared)
	}
	for _, model := range t.models {
		if strings.ContainsFunc(model, unicode.IsSpace) {
			t.fail("--model %s: one of several models cannot have a space in its name", quoted(model))
		}
		set("to-model", model)
	}
	if step != nil {
		_ = t.add("transform", strings.Join(step, " "))
	}
	if prefix != unshared {
		_ = t.add("transform", fmt.Sprintf("--prefix-scale=%v", prefix/unshared))
	}
}

// longestGap returns the limit of the gaps between rows, in the time of the trace; 0 means no limit.
func (t *translator) longestGap() (gap time.Duration) {
	if t.has("idle") {
		s, err := parseFloat(t.kept["idle"])
		speedup, _ := parseFloat(cmp.Or(t.typed("speedup", "replay-speedup", "synthesis-speedup-ratio"), "1"))
		if err != nil || !(s > 0 && s*speedup <= century.Seconds()) {
			t.fail("--max-idle-gap-cap-seconds %s: want a number of seconds above 0", quoted(t.kept["idle"]))
		}
		gap = time.Duration(s * speedup * float64(time.Second))
	}
	if t.has("wait") {
		s, err := parseFloat(t.kept["wait"])
		if err != nil || !(s > 0 && s <= century.Seconds()) {
			t.fail("max_session_wait %s: want a number of seconds above 0", quoted(t.kept["wait"]))
		}
		unit, _ := mooncake.ParseUnit(cmp.Or(t.typed("time-unit"), "s"))
		gap = time.Duration(s * float64(unit))
	}
	return gap
}

// extraInputs makes one JSON object of all fields that are added to bodies.
func (t *translator) extraInputs() {
	if len(t.extra) == 0 {
		return
	}
	if object, typed := t.kept["object"]; typed {
		t.remove("extra-inputs")
		if err := t.extraObject(object); err != nil {
			t.fail("--extra-inputs: %w", err)
		}
	}
	object, _ := json.Marshal(t.extra)
	_ = t.add("extra-inputs", string(object))
}
