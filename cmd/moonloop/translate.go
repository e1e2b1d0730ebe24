// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/jedib0t/go-pretty/v6/text"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/moonloop/moonloop/agent/load"
	"github.com/moonloop/moonloop/agent/prompt"
	"github.com/moonloop/moonloop/agent/report"
	"github.com/moonloop/moonloop/convert"
	"github.com/moonloop/moonloop/mooncake"
	"github.com/moonloop/moonloop/mooncake/transform"
)

// This file translates the command line of another replay tool into ours, before flags are parsed. Flags and values that are ours already
// are not changed; flags that only have another name are left to [peerNames].

// translator translates a command line.
type translator struct {
	fs     *pflag.FlagSet
	tools  []string // tools for which it may be written
	args   []string // of ours
	said   []string // messages for standard error
	extra  map[string]json.RawMessage
	kept   map[string]string // values that have a meaning only together
	models []string          // if --model is given several times

	adapters []string // of LoRA, instead of the model
}

// aliasHint says where the table is.
const aliasHint = `"moonloop help aliases" lists the flags of other tools; --as says which tool a command line is for`

// translate returns the command line of a replay in our flags, and messages about it.
func translate(fs *pflag.FlagSet, args []string) (ours, said []string, err error) {
	words, rest := splitFlags(fs, args)
	switch all, is, err := withConfig(fs, words, rest); {
	case err != nil:
		return nil, nil, hintError{err, aliasHint}
	case is:
		return translate(fs, all)
	}
	t := &translator{fs: fs, extra: map[string]json.RawMessage{}, kept: map[string]string{}, tools: toolsOf(fs, words)}
	var errs []error
	if command, ours := otherCommand(words); ours != "" {
		if noFile(strings.Fields(command)[0]) {
			return nil, nil, hintError{fmt.Errorf("%s is another tool's command, and no replay: %s", command, ours), aliasHint}
		}
	}
	// A tool's word for its replay is not a trace.
	named := slices.ContainsFunc(words, func(w flagWord) bool {
		return slices.Contains([]string{"input-file", "dataset-path", "trace-path", "data", "public-dataset", "hf-weka-dataset"}, w.name)
	})
	for _, w := range words {
		if w.name == "" {
			switch is := slices.Contains(replayWords, w.typed[0]); {
			case is && w.typed[0] == embeds:
				_ = t.endpoint("embeddings")
			case is && named:
			case is && noFile(w.typed[0]):
				errs = append(errs, fmt.Errorf("%s: another tool's name for its replay, and no trace is named beside it: %s", w.typed[0], makesPrompts))
			default:
				t.args = append(t.args, w.typed...)
				t.kept["trace"] = w.typed[0]
			}
			continue
		}
		a, err := t.choose(w)
		switch {
		case err != nil:
			errs = append(errs, err)
		case severalNumbers(w):
			errs = append(errs, fmt.Errorf("--%s %s: %s", w.name, quoted(w.values[0]), oneByOne))
		case a == nil || a.renames():
			t.args = append(t.args, w.typed...)
		case a.state == refused:
			errs = append(errs, fmt.Errorf("--%s: a flag of %s that a replay does not have: %s", w.name, t.toolNames(a), a.note))
		case a.takes != "" && a.takes != onOff && len(w.values) == 0:
			errs = append(errs, fmt.Errorf("--%s: its value is missing", w.name))
		case a.do == nil:
			t.said = append(t.said, "--"+w.name+" has no effect: "+a.note)
		default:
			values := w.values
			switch {
			case a.takes == "":
				values = []string{""}
			case a.takes == onOff && len(values) == 0:
				values = []string{"true"}
			}
			for _, v := range values {
				if err := a.do(t, v); err != nil {
					errs = append(errs, fmt.Errorf("--%s: %w", w.name, err))
				}
			}
		}
	}
	if !slices.ContainsFunc(words, func(w flagWord) bool { return w.name == "fixed-schedule-auto-offset" }) {
		errs = append(errs, t.window()...)
	}
	errs = append(errs, t.finish()...)
	if errs != nil {
		return nil, t.said, hintError{errors.Join(errs...), aliasHint}
	}
	return append(t.args, rest...), t.said, nil
}

// otherCommands are commands of other tools that are not replays, with ours.
var otherCommands = map[string]string{
	"analyze-trace":    "moonloop inspect TRACE tells lengths, shared prefixes and cache hits; --json for programs",
	"synthesize-trace": "moonloop transform TRACE --out FILE does it, with --time-scale, --prefix-scale, --roots, --input-scale and --max-input",
	"synthesize":       "moonloop generate makes traces",
	"anonymize-trace":  "moonloop convert and moonloop capture write traces with hashes in place of texts",
	"analyze":          "moonloop report makes a page of the folder of a run",
	"plot":             "moonloop report makes a page of the folders of runs",
	"preprocess":       "moonloop convert reads files of other formats, moonloop transform changes lengths",
	"sweep":            "moonloop search finds the highest load that an engine can handle",

	"bench throughput":   noServer,
	"bench latency":      noServer,
	"bench startup":      noServer,
	"bench mm-processor": noServer,
	"bench sweep":        "moonloop search finds the highest load that an engine can handle; start a replay for each setting, and moonloop report sets them side by side",
}

const noServer = "it measures an engine in its own process; start the engine's server, and send it a trace, which moonloop generate makes of chosen lengths"

// otherCommand returns the command of another tool that a line begins with, where it is no replay, and ours for it.
func otherCommand(words []flagWord) (command, ours string) {
	at := max(0, slices.IndexFunc(words, func(w flagWord) bool { return w.name == "" }))
	for _, w := range words[at:min(at+2, len(words))] {
		if w.name != "" {
			break
		}
		command = strings.TrimPrefix(command+" "+w.typed[0], " ")
		if ours = otherCommands[command]; ours != "" {
			break
		}
	}
	return command, ours
}

// embeds is GuideLLM's name for its replay of embeddings.
const embeds = "run-embeddings"

// replayWords are what tools call their replay.
var replayWords = []string{"profile", "bench", "serve", "run", "benchmark", embeds}

// makesPrompts is what to do where another tool makes its prompts up.
const makesPrompts = "a replay sends a trace, and makes no prompts up: moonloop generate --out TRACE makes one of chosen lengths"

// noFile reports whether a word is the name of no file.
func noFile(word string) bool {
	_, err := os.Stat(word)
	return err != nil
}

// ofVLLM is vLLM's name for its replay, which no other tool has.
const ofVLLM = "bench serve"

// otherDatasets says what to use in the place of vLLM's datasets.
var otherDatasets = map[string]string{
	"sharegpt":          "--dataset FILE makes the prompts of one of such a text",
	"sonnet":            "--dataset FILE makes the prompts of one of such a text",
	"custom":            "of a file of prompts, name the file as the trace, with --map text_input=prompt --no-fixed-schedule",
	"burstgpt":          "name the file as the trace, with --from burstgpt",
	"random":            "moonloop generate makes one of chosen lengths",
	"random-mm":         "moonloop generate makes one of chosen lengths, and --images and --image-size add images",
	"prefix_repetition": "moonloop generate makes one whose prompts share a beginning",
	"custom_image":      "rows with messages hold images of yours, and --images adds some to any",
	"hf":                "nothing is downloaded: download it, and make a trace of it with moonloop convert",
}

// shortNames are letters of other tools.
var shortNames = map[string]string{"-v": "verbose", "-vv": "extra-verbose", "-f": "config", "-l": "label", "-b": "batch-size"}

// flagWord is a flag or an argument of a command line.
type flagWord struct {
	name   string // empty: an argument
	values []string
	typed  []string
}

// splitFlags splits a command line into flags with their values. rest is what follows "--".
func splitFlags(fs *pflag.FlagSet, args []string) (words []flagWord, rest []string) {
	for i := 0; i < len(args); i++ {
		if args[i] == "--" {
			return words, args[i:]
		}
		w := flagWord{typed: []string{args[i]}}
		name, value, has := strings.Cut(args[i], "=")
		switch {
		case !isFlag(args[i]):
		case strings.HasPrefix(name, "--"):
			w.name = name[2:]
			if dashed := strings.ReplaceAll(w.name, "_", "-"); fs.Lookup(w.name) == nil && known(dashed) {
				w.name, w.typed[0] = dashed, "--"+dashed+strings.TrimPrefix(args[i], name)
			}
		case fs.ShorthandLookup(name[1:2]) == nil && shortNames[name] != "":
			w.name = shortNames[name]
			w.typed[0] = "--" + w.name + strings.TrimPrefix(args[i], name)
		default: // letters; switches may precede one with a value
			w.name = "-"
			if f := fs.ShorthandLookup(name[1:2]); f != nil && f.Value.Type() != "bool" {
				w.name = f.Name
				if len(args[i]) > 2 {
					value, has = strings.TrimPrefix(args[i][2:], "="), true
				}
			}
		}
		takes, isSwitch := takesOf(fs, w.name)
		if has {
			w.values = []string{value}
		}
		own := fs.Lookup(w.name) != nil && !isSwitch // the next word is its value, as for the flag library
		for !has && takes != "" && i+1 < len(args) && (!isFlag(args[i+1]) || own && len(w.values) == 0) &&
			(takes != onOff || args[i+1] == "true" || args[i+1] == "false") && (len(w.values) == 0 || takes == "V…" && w.takesMore(args, args[i+1])) {
			i++
			w.values, w.typed = append(w.values, args[i]), append(w.typed, args[i])
		}
		words = append(words, w)
	}
	return words, nil
}

// isFlag reports whether a word is a flag. Numbers below 0 are values.
func isFlag(word string) bool {
	return len(word) > 1 && word[0] == '-' && (word[1] < '0' || word[1] > '9') && word[1] != '.'
}

// takesOf returns which values a flag accepts, and whether it may have none, in one of its meanings.
func takesOf(fs *pflag.FlagSet, name string) (takes string, isSwitch bool) {
	if f := fs.Lookup(name); f != nil && f.Value.Type() != "bool" {
		takes = "V"
	}
	for _, a := range aliases {
		if a.name == name {
			isSwitch = isSwitch || a.takes == ""
			if len(a.takes) > len(takes) {
				takes = a.takes
			}
		}
	}
	return takes, isSwitch
}

// known reports whether a flag is in the table.
func known(name string) bool {
	return slices.ContainsFunc(aliases, func(a alias) bool { return a.name == name })
}

// onOff is the value of a switch that true or false may follow.
const onOff = "B"

// severalNumbers reports whether a load has several sizes, each of which another tool makes a run of.
func severalNumbers(w flagWord) bool {
	return slices.Contains([]string{"concurrency", "max-concurrency", "prefill-concurrency", "request-rate"}, w.name) && len(w.values) == 1 &&
		strings.Contains(w.values[0], ",") && !strings.ContainsFunc(w.values[0], func(r rune) bool { return !strings.ContainsRune("0123456789.,", r) })
}

// takesMore reports whether a word goes on the list of a flag that takes several, instead of naming the trace.
func (w flagWord) takesMore(line []string, word string) bool {
	switch w.name {
	case "goodput", "extra-inputs":
		return strings.Contains(word, ":") && !strings.Contains(word, "://")
	case "header":
		return strings.Contains(word, "=") || strings.Contains(word, ":") && !strings.Contains(word, "://")
	case "prompts": // dataset FILE, unless the file is given elsewhere
		return slices.Equal(w.values, []string{"dataset"}) && !slices.ContainsFunc(line, func(word string) bool {
			name, _, _ := strings.Cut(word, "=")
			return name == "--dataset"
		})
	}
	return true
}

// toolsOf returns the tools for which a command line may be written: that of --as, else those with all of its flags.
func toolsOf(fs *pflag.FlagSet, words []flagWord) []string {
	tools := slices.Sorted(maps.Keys(toolNames))
	for _, w := range words {
		if w.name == "as" && len(w.values) == 1 && toolNames[w.values[0]] != "" {
			return w.values
		}
	}
	if command, _ := otherCommand(words); command == ofVLLM {
		return []string{vllm}
	}
	traces := slices.ContainsFunc(words, func(w flagWord) bool { return w.name == "trace-path" })
	for _, w := range words {
		var of []string
		for _, a := range aliases {
			if a.name == "dataset-path" && a.tools == traceReplay && !traces {
				continue // it stands beside a --trace-path there
			}
			if a.name == w.name && a.fits(w) {
				of = append(of, strings.Fields(a.tools)...)
			}
		}
		if len(of) == 0 || w.name == "profile" && len(w.values) == 0 || fs.Lookup(w.name) != nil && peers[w.name] == "" && keepsValue(fs, w) {
			continue
		}
		if left := slices.DeleteFunc(slices.Clone(tools), func(tool string) bool { return !slices.Contains(of, tool) }); len(left) > 0 {
			tools = left
		}
	}
	return tools
}

// fits reports whether a value has the form for a meaning. If there is none, the flag is ours, and so are its errors.
func (a alias) fits(w flagWord) bool {
	value := strings.Join(w.values, " ")
	guides := strings.HasPrefix(value, "kind=") || strings.HasPrefix(value, "{") || value == "openai_http"
	switch a.name {
	case "profile":
		return strings.Contains(a.tools, vllm) == (value == "") && (strings.Contains(a.tools, vllm) ||
			slices.Contains([]string{"replay", "sweep", "synchronous", "throughput", "concurrent", "constant", "poisson", "async"}, pairs(value)["kind"]) || guides)
	case "backend":
		return (a.tools == guidellm) == guides
	case "endpoint-type":
		return strings.Contains(a.tools, vllm) == (strings.HasPrefix(value, "openai") || value == "vllm")
	case "endpoint":
		return strings.Contains(value, "/")
	case "header":
		if theirs := strings.HasPrefix(value, "{") || len(w.values) > 1 && !strings.Contains(value, "="); theirs || a.tools == aiperf {
			return theirs && a.tools == aiperf
		}
		return strings.Contains(value, "=")
	case "extra-inputs":
		return strings.Contains(value, ":") && !strings.HasPrefix(value, "{")
	case "tokenizer":
		return value != "" && value[0] != '-' && (a.tools == guidellm) == guides
	case "warmup-duration": // in seconds, where ours has a unit
		_, err := parseFloat(value)
		return err == nil
	case "seed":
		return (a.tools == guidellm) == guides
	case "model", "max-error-rate":
		return false // ours, given once or several times: see recorded and finish
	case "scenario":
		return value != theScenario || a.tools == aiperf
	case "dataset-name":
		return strings.Contains(a.tools, vllm) || value != "timed_trace"
	case "url":
		return hasPort(value)
	case "image-format":
		return value == "random"
	}
	return true
}

// keepsValue reports whether a flag is ours with a value that is ours.
func keepsValue(fs *pflag.FlagSet, w flagWord) bool {
	f := fs.Lookup(w.name)
	if f == nil {
		return false
	}
	return f.Value.Type() == "bool" || len(w.values) == 1 && (w.values[0] == "" || ruleOf(f).ok(w.values[0]) == nil)
}

// choose returns the meaning of a flag, nil if it is ours or unknown.
func (t *translator) choose(w flagWord) (*alias, error) {
	if keepsValue(t.fs, w) {
		if w.name == "extra-inputs" {
			t.kept["object"] = w.values[0]
		}
		return nil, nil
	}
	var is []*alias
	for i, a := range aliases {
		if a.name == w.name && a.fits(w) && slices.ContainsFunc(t.tools, a.of) {
			is = append(is, &aliases[i])
		}
	}
	if i := slices.IndexFunc(is, func(a *alias) bool { return a.renames() }); i >= 0 {
		is = is[i : i+1] // the plain name of a flag of ours
	}
	if len(is) > 1 && !is[0].same(is[1]) {
		return nil, fmt.Errorf("--%s means one thing in %s (%s) and another in %s (%s): say which by --as %s or --as %s",
			w.name, t.toolNames(is[0]), is[0].means(), t.toolNames(is[1]), is[1].means(), strings.Fields(is[0].tools)[0], strings.Fields(is[1].tools)[0])
	}
	if len(is) == 0 || w.name == "profile" && len(w.values) == 0 && slices.ContainsFunc(t.tools, func(tool string) bool { return tool != vllm && tool != traceReplay }) {
		return nil, nil // for a --profile without a value, the flag library reports what it needs
	}
	return is[0], nil
}

func (a *alias) same(b *alias) bool {
	return a.ours == b.ours && a.state == b.state && (a.do == nil) == (b.do == nil)
}

func (a *alias) means() string { return a.state + ": " + cmp.Or(a.note, a.ours) }

func (t *translator) toolNames(a *alias) string {
	var names []string
	for tool := range strings.FieldsSeq(a.tools) {
		if slices.Contains(t.tools, tool) {
			names = append(names, toolNames[tool])
		}
	}
	return strings.Join(names, " and ")
}

// add adds a flag of ours.
func (t *translator) add(name, value string) error {
	t.args = append(t.args, "--"+name+"="+value)
	return nil
}

// keep stores flags that have a meaning only together.
func keep(name string) func(*translator, string) error {
	return func(t *translator, value string) error {
		if before, given := t.kept[name]; given && before != value {
			return errors.New("it is given twice, with different values: give it once")
		}
		t.kept[name] = value
		return nil
	}
}

// finish adds the meaning of several flags together.
func (t *translator) finish() (errs []error) {
	has := func(name string) bool { _, given := t.kept[name]; return given }
	if has("image width") || has("image height") {
		w := cmp.Or(t.kept["image width"], t.kept["image height"])
		_ = t.add("image-size", w+"x"+cmp.Or(t.kept["image height"], w))
		if t.typed("images", "image-batch-size", "batch-size-image") == "" {
			_ = t.add("images", "1")
		}
	}
	if has("host") || has("port") {
		_ = t.add("url", "http://"+net.JoinHostPort(cmp.Or(t.kept["host"], "127.0.0.1"), cmp.Or(t.kept["port"], "8000")))
	}
	if has("served") {
		t.args = withoutFlag(t.args, "model")
		_ = t.add("model", t.kept["served"])
	}
	if has("input") && !has("type") {
		t.findType()
	}
	errs = append(errs, t.recorded()...)
	if has("prefix") {
		into := t.typed("out", "output-artifact-dir", "artifact-dir")
		for _, name := range []string{"out", "output-artifact-dir", "artifact-dir"} {
			t.args = withoutFlag(t.args, name)
		}
		_ = t.add("out", filepath.Join(cmp.Or(into, "."), strings.TrimSuffix(t.kept["prefix"], filepath.Ext(t.kept["prefix"]))))
	}
	if rate := t.typed("max-error-rate"); rate != "" && t.writtenFor(guidellm) {
		t.args = withoutFlag(t.args, "max-error-rate")
		_ = t.add("abort-error-rate", rate)
	}
	if t.typed("num-prompts") == "-1" && !slices.ContainsFunc(t.tools, func(tool string) bool { return !strings.Contains(vllms, tool) }) { // all
		t.args = withoutFlag(t.args, "num-prompts")
		_ = t.add("max-requests", "0")
	}
	if has("prompts of") && t.typed("dataset") == "" {
		errs = append(errs, errors.New("--prompts dataset: its file is missing: write --prompts dataset FILE"))
	}
	t.posts()
	if err := t.rawExport(); err != nil {
		errs = append(errs, err)
	}
	if has("most") {
		_ = t.add("max-requests", t.kept["most"])
	}
	if has("folder") {
		_ = t.add("out", t.kept["folder"])
	}
	if has("prompts") {
		_ = t.add("save-prompts", filepath.Join(cmp.Or(t.kept["dir"], "."), strings.TrimSuffix(t.kept["file"], ".json"), "prompts.jsonl"))
	}
	if has("save") {
		_ = t.add("out", filepath.Join(cmp.Or(t.kept["dir"], "."), strings.TrimSuffix(t.kept["file"], ".json")))
	} else if has("dir") || has("file") {
		t.said = append(t.said, "--result-dir and --result-filename have no effect without --save-result")
	}
	if err := t.textsOf(); err != nil {
		errs = append(errs, err)
	}
	if has("profile") || has("rate") || has("rampup") {
		if err := t.guideLoad(); err != nil {
			errs = append(errs, err)
		}
	}
	if has("seconds") && !has("scale") && cmp.Or(t.kept["profile"], "replay") == "replay" {
		t.kept["scale"] = "1"
		t.said = append(t.said, "--data: timestamps are seconds, as there is no time_scale; time_scale=0.001 is for a trace in milliseconds")
	}
	if has("users") || has("user rate") {
		if has("users") != has("user rate") {
			errs = append(errs, errors.New("--user-centric-rate, --num-users: one has no effect without the other: give both or neither"))
		}
		_ = t.add("users", t.kept["users"])
		_ = t.add("request-rate", t.kept["user rate"])
	}
	if has("burst") && t.typed("request-rate", "request-rate-series") != "" {
		errs = append(errs, errors.New("--arrival-pattern concurrency_burst: requests go as soon as --concurrency has room for them, and --request-rate says when: leave one of the two out"))
	}
	if has("ramp") || has("ramp from") || has("ramp to") {
		if err := t.vllmRamp(); err != nil {
			errs = append(errs, err)
		}
	}
	if (has("timed") || has("mode")) && t.typed("request-rate", "request-rate-series") != "" {
		for _, name := range []string{"request-rate", "request-rate-series", "arrival", "arrival-pattern", "request-rate-mode", "burstiness", "arrival-smoothness", "users", "ramp-up", "ramp-up-from", "ramp-up-shape"} {
			t.args = withoutFlag(t.args, name)
		}
		t.said = append(t.said, "--request-rate has no effect: "+followed)
	}
	t.vllmDefaults()
	t.aiperfDefaults()
	scale, given := t.kept["scale"]
	switch dataset := t.kept["dataset"]; {
	case dataset == "timed_trace":
		if !given {
			scale, given = "1", true
			t.said = append(t.said, "--dataset-name timed_trace: timestamps are seconds, as there is no --timed-trace-sec-multiplier")
		}
		if !has("chunk") {
			t.kept["chunk"] = "16"
			t.said = append(t.said, "--dataset-name timed_trace: 16 tokens for each hash id, as there is no --timed-trace-chunk-hash-size")
		}
	case dataset != "":
		errs = append(errs, fmt.Errorf("--dataset-name %s: want timed_trace: a replay sends a trace; %s", quoted(dataset), cmp.Or(otherDatasets[dataset], "moonloop convert makes one of a file of another format, moonloop generate one of chosen lengths")))
	}
	if has("chunk") {
		_ = t.add("block-size", t.kept["chunk"])
	}
	if given {
		errs = append(errs, t.scale(scale)...)
	}
	t.turnsOfTexts()
	errs = append(errs, t.turns()...)
	errs = append(errs, t.untilReached()...)
	errs = append(errs, t.synthesis()...)
	if len(t.extra) > 0 {
		if object, typed := t.kept["object"]; typed {
			t.args = withoutFlag(t.args, "extra-inputs")
			if err := t.extraObject(object); err != nil {
				errs = append(errs, fmt.Errorf("--extra-inputs: %w", err))
			}
		}
		object, _ := json.Marshal(t.extra)
		_ = t.add("extra-inputs", string(object))
	}
	return errs
}

// vllmDefaults are the defaults of vLLM and TraceReplay.
func (t *translator) vllmDefaults() {
	timed := t.kept["dataset"] == "timed_trace"
	if (timed || t.kept["trace path"] != "") && t.kept["endpoint"] == "" && t.typed("endpoint") == "" {
		_ = t.endpoint("completions")
		t.said = append(t.said, "completions are sent, as there is no --backend; --backend openai-chat sends chats")
	}
	if timed && t.typed("num-prompts", "max-requests") == "" {
		_ = t.add("max-requests", vllmPrompts)
		t.said = append(t.said, "--dataset-name timed_trace: the first "+vllmPrompts+" rows are sent, as there is no --num-prompts; --num-prompts 0 sends all")
	}
	if _, given := t.kept["untimed"]; given {
		_ = t.closed("")
		if t.typed("request-rate", "concurrency", "max-concurrency") == "" {
			_ = t.add("request-rate", "inf")
		}
	}
}

// vllmPrompts is the default number of requests of vLLM.
const vllmPrompts = "1000"

// promptsOf parses the kind of prompts; name is the flag's name for it.
func (t *translator) promptsOf(value string) error {
	switch _, file := t.kept["prompts of"]; {
	case file && t.typed("dataset") != "":
		return errors.New("it is given twice: give it once")
	case file:
		return t.add("dataset", value)
	case value == "dataset":
		return keep("prompts of")(t, value)
	case value == string(prompt.Words), value == string(prompt.Tokens):
		return t.add("prompt", value)
	}
	return fmt.Errorf("%s: want dataset FILE, words or tokens", quoted(value))
}

// format parses the format of a report.
func (t *translator) format(value string) error {
	if value != "table" {
		return fmt.Errorf("%s: want table; --out DIR writes JSON and CSV, --xlsx and --parquet the rest", quoted(value))
	}
	return t.add("table", string(report.LayoutTraceReplay))
}

// textsOf converts TraceReplay's modes to a dataset. Its mode trace ignores a dataset.
func (t *translator) textsOf() error {
	name, file := t.kept["text"], t.kept["text file"]
	switch mode := cmp.Or(t.kept["mode"], "trace"); mode {
	case "benchmark":
	case "trace":
		if name != "" || file != "" {
			t.said = append(t.said, "--dataset-name and --dataset-path have no effect without --trace-mode benchmark: the prompts are those of the trace")
		}
		return nil
	default:
		return fmt.Errorf("--trace-mode %s: want trace or benchmark", quoted(mode))
	}
	name = cmp.Or(name, "sharegpt")
	switch {
	case name == "random":
		return nil
	case !slices.Contains([]string{"sharegpt", "custom", "sonnet"}, name):
		return fmt.Errorf("--trace-mode benchmark with --dataset-name %s: want sharegpt, custom or sonnet with --dataset-path FILE, or random; "+
			"of other datasets, download one with text and give it as --dataset FILE", quoted(name))
	case file == "":
		return fmt.Errorf("--dataset-name %s: want --dataset-path FILE with it; nothing is downloaded", name)
	}
	return t.add("dataset", file)
}

// withoutFlag removes a flag and its value.
func withoutFlag(args []string, name string) (rest []string) {
	for i := 0; i < len(args); i++ {
		switch {
		case args[i] == "--"+name || name == "model" && args[i] == "-m":
			i++
		case !strings.HasPrefix(args[i], "--"+name+"="):
			rest = append(rest, args[i])
		}
	}
	return rest
}

// scale sets how many seconds a unit of the timestamps lasts in the replay.
func (t *translator) scale(text string) []error {
	s, err := parseFloat(text)
	if err != nil || !(s > 0) || math.IsInf(s, 0) {
		return []error{fmt.Errorf("time scale %s: want the seconds that a unit of the timestamps lasts, above 0", quoted(text))}
	}
	unit, length := "s", 1.0
	switch {
	case t.kept["from"] != "": // it knows the unit
		return []error{t.add("speedup", strconv.FormatFloat(1/s, 'g', -1, 64))}
	}
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
	return nil
}

func (t *translator) secondsPerUnit(value string) error { return keep("scale")(t, value) }

func (t *translator) tracePath(value string) error {
	t.kept["trace path"] = value
	return t.theTrace(value)
}

func (t *translator) theTrace(value string) error {
	t.args = append(t.args, value)
	return nil
}

// url adds a scheme to a host and port.
func (t *translator) url(value string) error {
	if hasPort(value) {
		value = "http://" + value
	}
	return t.add("url", value)
}

// hasPort reports whether an address is host:port, and perhaps a path, without http:// before it.
func hasPort(value string) bool {
	at, _, _ := strings.Cut(value, "/")
	host, port, err := net.SplitHostPort(at)
	return err == nil && host != "" && isPort(port, 1) == nil
}

// aiperfFormats are the formats of AIPerf's traces that are converted first.
var aiperfFormats = map[string]string{
	"bailian_trace": "bailian", "baseten_trace": "baseten", "burst_gpt_trace": "burstgpt", "dag_jsonl": "aiperf-dag", "inputs_json": "payloads", "multi_turn": "aiperf",
	"random_pool": "aiperf", "raw_payload": "payloads", "sagemaker_data_capture": "sagemaker", "single_turn": "aiperf", "tracelab": "tracelab", "weka_trace": "weka",
}

// aiperfFile sets the trace. Without --custom-dataset-type, AIPerf detects its format.
func (t *translator) aiperfFile(name string) error {
	t.kept["input"] = name
	return t.theTrace(name)
}

// findType looks at the beginning of AIPerf's file. Errors are left to the reader of the file.
func (t *translator) findType() {
	files, err := filesOf(t.kept["input"])
	if err != nil || t.typed("from") != "" {
		return
	}
	if info, err := os.Stat(files[0]); err != nil || !info.Mode().IsRegular() {
		return
	}
	file, err := mooncake.OpenInput(context.Background(), files[0], mooncake.OpenOptions{})
	if err != nil {
		return
	}
	defer func() { _ = file.Close() }()
	head, _ := file.Peek(file.Size())
	from, err := convert.Detect(files[0], head)
	var body map[string]json.RawMessage
	if err != nil && json.NewDecoder(bytes.NewReader(head)).Decode(&body) == nil && body["messages"] != nil {
		for _, ofBody := range []string{"max_tokens", "max_completion_tokens", "temperature", "top_p", "stream"} {
			if body[ofBody] != nil {
				from, err = convert.Payloads, nil
			}
		}
	}
	if err == nil && from != convert.Mooncake {
		t.kept["from"] = string(from)
		t.said = append(t.said, "--input-file: it is "+from.About()+" (--from "+string(from)+")")
		_ = t.add("from", string(from))
	}
}

func (t *translator) datasetType(value string) error {
	t.kept["type"] = value
	kind := strings.ReplaceAll(value, "-", "_")
	from, known := aiperfFormats[kind]
	switch {
	case kind == "mooncake_trace":
		return nil
	case known:
		t.kept["from"] = from
		return t.add("from", from)
	}
	return fmt.Errorf("%s: want mooncake_trace, %s; moonloop convert lists the other formats", quoted(value), strings.Join(slices.Sorted(maps.Keys(aiperfFormats)), ", "))
}

// only accepts values that a replay always has.
func only(words ...string) func(*translator, string) error {
	return func(_ *translator, value string) error {
		if slices.Contains(words, value) {
			return nil
		}
		return fmt.Errorf("%s: a replay knows only %s", quoted(value), strings.Join(words, " or "))
	}
}

func (t *translator) nothing(string) error  { return nil }
func (t *translator) openLoop(string) error { return t.add("open-loop", "true") }

func (t *translator) label(value string) error { return t.add("label", value) }

func (t *translator) templateArguments(value string) error {
	if isObject(value) != nil {
		return errors.New(`want a JSON object, such as {"enable_thinking": false}`)
	}
	return t.body("chat_template_kwargs", json.RawMessage(value))
}

// requestPrefix sets the run's id, if only the numbers of requests follow it.
func (t *translator) requestPrefix(value string) error {
	return t.add("run-id", strings.TrimRight(value, "-"))
}

// synthesis translates AIPerf's synthesis flags to steps of moonloop transform. AIPerf multiplies shared and other parts of prompts
// separately, --input-scale both: the second step divides accordingly.
func (t *translator) synthesis() (errs []error) {
	factor := func(name, flag string) float64 {
		text, given := t.kept[name]
		f, err := parseFloat(text)
		switch {
		case !given:
			return 1
		case err != nil || !(f >= transform.MinScale && f <= transform.MaxScale):
			errs = append(errs, fmt.Errorf("--%s %s: want a number from %g to %g", flag, quoted(text), transform.MinScale, float64(transform.MaxScale)))
			return 1
		}
		return f
	}
	prefix, unshared := factor("prefix-len", "synthesis-prefix-len-multiplier"), factor("prompt-len", "synthesis-prompt-len-multiplier")
	var first, second []string
	set := func(step *[]string, name string, value any) {
		*step = append(*step, fmt.Sprintf("--%s=%v", name, value))
	}
	for _, plain := range [][2]string{
		{"max-isl", "max-input"},
		{"sample", "scale"},
		{"output-len", "output-scale"},
		{"prefix-roots", "roots"},
		{"max-context", "max-context"},
		{"conversations", "first-conversations"},
		{"sessions", "first-conversations"},
		{"turn-delay", "turn-delay"},
		{"max-delay", "max-delay"},
	} {
		if value, given := t.kept[plain[0]]; given {
			set(&first, plain[1], value)
		}
	}
	if how, given := t.kept["draw"]; given {
		set(&first, "draw", how)
		if seed := t.typed("seed", "random-seed"); seed != "" {
			set(&first, "seed", seed)
		}
	}
	gap := time.Duration(0)
	if text, given := t.kept["idle"]; given {
		s, err := parseFloat(text)
		speedup, _ := parseFloat(cmp.Or(t.typed("speedup", "replay-speedup", "synthesis-speedup-ratio"), "1"))
		if err != nil || !(s > 0 && s*speedup <= century.Seconds()) {
			errs = append(errs, fmt.Errorf("--max-idle-gap-cap-seconds %s: want a number of seconds above 0", quoted(text)))
		}
		gap = time.Duration(s * speedup * float64(time.Second))
	}
	if text, given := t.kept["wait"]; given {
		s, err := parseFloat(text)
		if err != nil || !(s > 0 && s <= century.Seconds()) {
			errs = append(errs, fmt.Errorf("max_session_wait %s: want a number of seconds above 0", quoted(text)))
		}
		unit, _ := mooncake.ParseUnit(cmp.Or(t.typed("time-unit"), "s"))
		gap = time.Duration(s * float64(unit))
	}
	if gap > 0 {
		set(&first, "max-gap", gap)
	}
	if unshared != 1 {
		set(&first, "input-scale", unshared)
	}
	if prefix != unshared {
		set(&second, "prefix-scale", prefix/unshared)
	}
	for _, model := range t.models {
		if strings.ContainsFunc(model, unicode.IsSpace) {
			errs = append(errs, fmt.Errorf("--model %s: one of several models cannot have a space in its name", quoted(model)))
		}
		set(&first, "to-model", model)
	}
	for _, step := range [][]string{first, second} {
		if step != nil {
			_ = t.add("transform", strings.Join(step, " "))
		}
	}
	return errs
}

// endpointNames are the values of --endpoint.
var endpointNames = strings.Trim(fmt.Sprint(prompt.Endpoints()), "[]")

func (t *translator) endpointPath(value string) error {
	switch {
	case strings.HasSuffix(value, "/chat/completions"):
		return t.endpoint("chat")
	case strings.HasSuffix(value, "/completions"):
		return t.endpoint("completions")
	case strings.HasSuffix(value, "/responses"):
		return t.endpoint("responses")
	case strings.HasSuffix(value, "/messages"):
		return t.endpoint("messages")
	case strings.HasSuffix(value, "/embeddings"):
		return t.endpoint("embeddings")
	case strings.HasSuffix(value, "/generate"), strings.HasSuffix(value, "/generate_stream"): // --no-stream decides which of the two
		return t.endpoint("generate")
	}
	return fmt.Errorf("%s: want a path that ends in /chat/completions, /completions, /responses, /messages, /embeddings, /generate or /generate_stream; or one of %s",
		quoted(value), endpointNames)
}

// endpointType parses AIPerf's names, including ours.
func (t *translator) endpointType(value string) error {
	switch {
	case value == "huggingface_generate":
		return t.endpoint("generate")
	case slices.Contains(prompt.Endpoints(), prompt.Endpoint(value)):
		return t.endpoint(value)
	}
	return fmt.Errorf("%s: want huggingface_generate, or one of %s", quoted(value), endpointNames)
}

// endpoint adds the flag once, even if several flags set it.
func (t *translator) endpoint(is string) error {
	if slices.Contains(t.args, "--endpoint="+is) {
		return nil
	}
	if before, given := t.kept["endpoint"]; given && before != is {
		// vLLM's --endpoint is the path, which must agree with its --backend.
		return fmt.Errorf("it asks for %s, and a flag before it for %s: leave one of the two out", is, before)
	}
	t.kept["endpoint"] = is
	return t.add("endpoint", is)
}

func (t *translator) requestType(value string) error {
	switch value {
	case "chat_completions":
		return t.endpoint("chat")
	case "text_completions":
		return t.endpoint("completions")
	case "responses", "embeddings":
		return t.endpoint(value)
	}
	return t.endpointPath(value)
}

func (t *translator) backend(value string) error {
	switch value {
	case "openai-chat":
		return t.endpoint("chat")
	case "openai-responses":
		return t.endpoint("responses")
	case "openai-embeddings":
		return t.endpoint("embeddings")
	case "tgi":
		_ = t.add("profile", value)
		return t.endpoint("generate")
	case "vllm", "openai", "scalellm":
	case "sglang", "lmdeploy":
		_ = t.add("profile", value)
	case "llama.cpp":
		_ = t.add("profile", "llamacpp")
	case "tensorrt-llm":
		_ = t.add("profile", "trtllm")
	default:
		return fmt.Errorf("%s: want openai-chat, openai-responses, openai-embeddings, tgi, vllm, openai, sglang, lmdeploy, llama.cpp, scalellm or tensorrt-llm", quoted(value))
	}
	return t.endpoint("completions")
}

func seconds(name string) func(*translator, string) error {
	return func(t *translator, value string) error {
		s, err := parseFloat(value)
		if err != nil || !(s >= 0) || s > century.Seconds() {
			return fmt.Errorf("%s: want a number of seconds, 0 or more", quoted(value))
		}
		return t.add(name, strconv.FormatFloat(s, 'f', -1, 64)+"s")
	}
}

// warmupGrace parses AIPerf's time for the requests of a warm-up; for ours, 0 means no limit.
func (t *translator) warmupGrace(value string) error {
	if s, err := parseFloat(value); err == nil && s == 0 {
		return t.add("warmup-grace", "1ns")
	}
	return seconds("warmup-grace")(t, value)
}

// steadyMark parses GuideLLM's warm-up, or cool-down: a share of the run below 1, else seconds.
func steadyMark(name string) func(*translator, string) error {
	return func(t *translator, value string) error {
		v, err := parseFloat(value)
		if err != nil || !(v >= 0) || v > century.Seconds() {
			return fmt.Errorf("%s: want a share below 1, or a number of seconds", quoted(value))
		}
		mark := strconv.FormatFloat(v, 'f', -1, 64) + "s"
		switch end := name == "steady-to"; {
		case v < 1 && end:
			mark = strconv.FormatFloat(100*(1-v), 'f', -1, 64) + "%"
		case v < 1:
			mark = strconv.FormatFloat(100*v, 'f', -1, 64) + "%"
		case end:
			mark = "-" + mark
		}
		return t.add(name, mark)
	}
}

func (t *translator) key(value string) error {
	t.said = append(t.said, "--api-key: every user of this machine can read the key in the list of processes; use --api-key-file or --api-key-env")
	return t.add("header", "Authorization: Bearer "+value)
}

func extraOf(name string) func(*translator, string) error {
	return func(t *translator, value string) error {
		if _, err := parseFloat(value); err != nil || !json.Valid([]byte(value)) {
			return errors.New("want a number")
		}
		return t.body(name, json.RawMessage(value))
	}
}

// body adds a field to every request.
func (t *translator) body(name string, value json.RawMessage) error {
	if _, twice := t.extra[name]; twice {
		return fmt.Errorf("the field %s is given twice: give it once", quoted(name))
	}
	t.extra[name] = value
	return nil
}

// extraPairs parses key:value. A value that is JSON is used as JSON.
func (t *translator) extraPairs(value string) error {
	if isObject(value) == nil {
		return t.extraObject(value)
	}
	name, text, found := strings.Cut(value, ":")
	if !found || name == "" {
		return errors.New(`want key:value, or a JSON object, such as {"temperature": 0}`)
	}
	raw := json.RawMessage(text)
	if !json.Valid(raw) {
		raw, _ = json.Marshal(text)
	}
	return t.body(name, raw)
}

func (t *translator) extraObject(value string) error {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal([]byte(value), &fields); err != nil || fields == nil {
		return errors.New(`want a JSON object, such as {"temperature": 0}`)
	}
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		if err := t.body(name, fields[name]); err != nil {
			return err
		}
	}
	return nil
}

func (t *translator) headers(value string) error {
	if isHeader(value) == nil {
		return t.add("header", value)
	}
	var object map[string]string
	if json.Unmarshal([]byte(value), &object) == nil {
		for _, name := range slices.Sorted(maps.Keys(object)) {
			_ = t.add("header", name+": "+object[name])
		}
		return nil
	}
	name, text, found := strings.Cut(value, "=")
	if !found {
		return errors.New("want KEY=VALUE or KEY: VALUE")
	}
	return t.add("header", name+": "+text)
}

func (t *translator) goodput(value string) error {
	value, err := objectives(value)
	if err != nil {
		return err
	}
	for i, arg := range t.args {
		if before, found := strings.CutPrefix(arg, "--slo="); found {
			t.args[i] = "--slo=" + before + " " + value
			return nil
		}
	}
	return t.add("slo", value)
}

func (t *translator) ui(value string) error {
	ours := map[string]string{"dashboard": "live", "simple": "bar", "none": "none"}[value]
	if ours == "" {
		return fmt.Errorf("%s: want dashboard, simple or none", quoted(value))
	}
	return t.add("progress", ours)
}

func (t *translator) percent(value string) error {
	n, err := parseFloat(value)
	if err != nil || !(n >= 0 && n <= 100) {
		return fmt.Errorf("%s: want percent from 0 to 100", quoted(value))
	}
	return t.add("cancel-share", strconv.FormatFloat(n/100, 'f', -1, 64))
}

func (t *translator) quiet(string) error    { return t.add("progress", "none") }
func (t *translator) noStream(string) error { return t.add("no-stream", "true") }
func (t *translator) closed(string) error   { return t.add("no-fixed-schedule", "true") }
func (t *translator) insecure(string) error { return t.add("insecure-skip-verify", "true") }

// column accepts our own name of a field.
func column(ours string) func(*translator, string) error {
	return func(t *translator, theirs string) error {
		if theirs == ours {
			return nil
		}
		return t.add("map", ours+"="+theirs)
	}
}

// vllmRamp is vLLM's ramp over its requests, as one over the time that this many requests take.
func (t *translator) vllmRamp() error {
	prompts, err := parseFloat(t.typed("num-prompts", "max-requests"))
	from, err1 := parseFloat(t.kept["ramp from"])
	to, err2 := parseFloat(t.kept["ramp to"])
	shape := t.kept["ramp"]
	switch {
	case shape != "linear" && shape != "exponential":
		return fmt.Errorf("--ramp-up-strategy %s: want linear or exponential", quoted(shape))
	case err1 != nil || err2 != nil || !(from > 0 && from <= load.MaxRate) || !(to > 0 && to <= load.MaxRate):
		return errors.New("--ramp-up-strategy: want --ramp-up-start-rps and --ramp-up-end-rps with it, each above 0")
	case err != nil || !(prompts >= 1 && prompts <= maxRows):
		return errors.New("--ramp-up-strategy: want --num-prompts N with it, which says how long the ramp is")
	}
	mean := (from + to) / 2
	if shape == "exponential" && from != to {
		mean = (to - from) / math.Log(to/from)
	}
	_ = t.add("ramp-up", strconv.FormatFloat(prompts/mean, 'f', 9, 64)+"s")
	_ = t.add("ramp-up-from", t.kept["ramp from"])
	_ = t.add("ramp-up-shape", shape)
	return t.add("request-rate", t.kept["ramp to"])
}

// typed returns the value of a flag by one of its names, as typed; empty if absent.
func (t *translator) typed(names ...string) (value string) {
	for i, arg := range t.args {
		name, v, has := strings.Cut(strings.TrimPrefix(arg, "--"), "=")
		switch {
		case !strings.HasPrefix(arg, "--") || !slices.Contains(names, name):
		case has:
			value = v
		case i+1 < len(t.args):
			value = t.args[i+1]
		}
	}
	return value
}

// writeAliases writes the table for "moonloop help aliases".
func writeAliases(w io.Writer) error {
	var b strings.Builder
	b.WriteString("Flags of other replay tools that moonloop replay understands: put \"moonloop\nreplay\" in the place of the tool's name, and leave the rest as it is.\n\n" +
		"Where one name has two meanings, its value and the other flags decide, or --as.\n")
	for _, tool := range []string{aiperf, vllm, guidellm, traceReplay, anyTool} {
		if tool == anyTool {
			b.WriteString("\nOn every command line:\n")
		} else {
			fmt.Fprintf(&b, "\n%s (--as %s):\n", toolNames[tool], tool)
		}
		for _, a := range rows {
			if slices.Contains(strings.Fields(a.tools), tool) {
				means := strings.Join(slices.DeleteFunc([]string{a.ours, a.note}, func(s string) bool { return s == "" }), "; ")
				if a.state == refused || a.state == ignored {
					means = a.state + ": " + means
				}
				fmt.Fprintf(&b, "  --%-32s %s\n", a.name, strings.ReplaceAll(text.WrapSoft(means, helpWidth-37), "\n", "\n"+strings.Repeat(" ", 37)))
			}
		}
		for _, f := range families {
			if slices.Contains(strings.Fields(f.tools), tool) {
				names := regexp.MustCompile(`[a-z0-9-]+`).ReplaceAllString(strings.Join(strings.Fields(strings.NewReplacer("=", "", "…", "").Replace(f.flags)), " "), "--$0")
				fmt.Fprintf(&b, "  %s\n", strings.ReplaceAll(text.WrapSoft(f.about+": "+f.state+": "+f.note, helpWidth-2), "\n", "\n  "))
				fmt.Fprintf(&b, "    %s\n", strings.ReplaceAll(text.WrapSoft(names, helpWidth-4), "\n", "\n    "))
			}
		}
	}
	_, err := io.WriteString(w, regexp.MustCompile(` +\n`).ReplaceAllString(b.String(), "\n"))
	return err
}

// aliasTopic is the topic of help that shows the table.
const aliasTopic = "aliases"

// completeAliases offers the flags of other tools to shells. Nothing else sees them as flags.
func completeAliases(root *cobra.Command) {
	verb, _, err := root.Find([]string{replayVerb})
	if err != nil {
		return
	}
	verb.Flags().SetNormalizeFunc(func(_ *pflag.FlagSet, name string) pflag.NormalizedName { return pflag.NormalizedName(name) })
	for _, a := range aliases {
		if a.state == refused || verb.Flags().Lookup(a.name) != nil {
			continue
		}
		usage := "as in " + cmp.Or(toolNames[strings.Fields(a.tools)[0]], a.ours)
		if a.takes == "" || a.takes == onOff {
			verb.Flags().Bool(a.name, false, usage)
		} else {
			verb.Flags().String(a.name, "", usage)
		}
	}
}
