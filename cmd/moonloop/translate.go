// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/jedib0t/go-pretty/v6/text"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// This file translates the command line of another replay tool into ours, before flags are parsed. Flags and values that are ours already
// are not changed; flags that only have another name are left to [peerNames].

// translator translates a command line.
type translator struct {
	fs     *pflag.FlagSet
	tools  []string // tools for which the command line may be written
	args   []string // in our flags
	said   []string // messages for standard error
	errs   []error
	extra  map[string]json.RawMessage
	kept   map[string]string // values that have a meaning only together
	models []string          // if --model is given several times

	adapters []string // of LoRA, instead of the model

	inFile map[string]bool // flags of ours that AIPerf's settings file sets, and whether they count
}

// action translates a value of a flag of another tool.
type action = func(t *translator, value string) error

// has reports whether a value has been stored under this name.
func (t *translator) has(name string) bool {
	_, given := t.kept[name]
	return given
}

func (t *translator) fail(format string, args ...any) {
	t.errs = append(t.errs, fmt.Errorf(format, args...))
}

func (t *translator) say(format string, args ...any) {
	t.said = append(t.said, fmt.Sprintf(format, args...))
}

// aliasHint says where the table is.
const aliasHint = `"moonloop help aliases" lists the flags of other tools; --as says which tool a command line is for`

// translate returns the command line of a replay in our flags, and messages about it.
func translate(fs *pflag.FlagSet, args []string) (ours, said []string, err error) {
	words, rest := splitFlags(fs, args)
	all, inFile, err := withConfig(fs, words, rest)
	switch {
	case err != nil:
		return nil, nil, hintError{err, aliasHint}
	case inFile != nil:
		words, rest = splitFlags(fs, all)
	}
	t := &translator{fs: fs, extra: map[string]json.RawMessage{}, kept: map[string]string{}, tools: toolsOf(fs, words), inFile: inFile}
	if command, ours := otherCommand(words); ours != "" {
		if noFile(strings.Fields(command)[0]) {
			return nil, nil, hintError{fmt.Errorf("%s is another tool's command, and not a replay: %s", command, ours), aliasHint}
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
				t.fail("%s: another tool's name for its replay, but no trace is named with it: %s", w.typed[0], makesPrompts)
			default:
				t.args = append(t.args, w.typed...)
				t.kept["trace"] = w.typed[0]
			}
			continue
		}
		if err := t.flag(w); err != nil {
			t.errs = append(t.errs, err)
		}
	}
	if !slices.ContainsFunc(words, func(w flagWord) bool { return w.name == "fixed-schedule-auto-offset" }) {
		t.window()
	}
	t.finish()
	if t.errs != nil {
		return nil, t.said, hintError{errors.Join(t.errs...), aliasHint}
	}
	return append(t.args, rest...), t.said, nil
}

// flag translates a flag with its values.
func (t *translator) flag(w flagWord) error {
	a, err := t.choose(w)
	switch {
	case err != nil:
		return err
	case severalNumbers(w):
		return fmt.Errorf("--%s %s: %s", w.name, quoted(w.values[0]), reasons["oneByOne"])
	case a == nil || a.renames():
		t.args = append(t.args, w.typed...)
		return nil
	case a.state == refused:
		return fmt.Errorf("--%s: a flag of %s that a replay does not have: %s", w.name, t.toolNames(a), a.note)
	case a.takes != "" && a.takes != onOff && len(w.values) == 0:
		return fmt.Errorf("--%s: its value is missing", w.name)
	case a.do == nil:
		t.say("--%s has no effect: %s", w.name, a.note)
		return nil
	}
	values := w.values
	switch {
	case a.takes == "":
		values = []string{""}
	case a.takes == onOff && len(values) == 0:
		values = []string{"true"}
	}
	var errs []error
	for _, v := range values {
		if err := a.do(t, v); err != nil {
			errs = append(errs, fmt.Errorf("--%s: %w", w.name, err))
		}
	}
	return errors.Join(errs...)
}

// otherCommands are commands of other tools that are not replays, with ours.
var otherCommands = map[string]string{
	"analyze-trace":    "moonloop inspect TRACE shows lengths, shared prefixes and cache hits; --json for programs",
	"synthesize-trace": "moonloop transform TRACE --out FILE does it, with --time-scale, --prefix-scale, --roots, --input-scale and --max-input",
	"synthesize":       "moonloop generate makes traces",
	"anonymize-trace":  "moonloop convert and moonloop capture write traces with hashes in place of texts",
	"analyze":          "moonloop report makes a page from the folder of a run",
	"plot":             "moonloop report makes a page from the folders of runs",
	"preprocess":       "moonloop convert reads files of other formats, moonloop transform changes lengths",
	"sweep":            "moonloop search finds the highest load that an engine can handle",

	"bench throughput":   noServer,
	"bench latency":      noServer,
	"bench startup":      noServer,
	"bench mm-processor": noServer,
	"bench sweep":        "moonloop search finds the highest load that an engine can handle; start a replay for each setting, and moonloop report shows them side by side",
}

const noServer = "it measures an engine in its own process; start the engine's server, and send it a trace; moonloop generate makes one with lengths of your choice"

// otherCommand returns the first word of a command line, or the first two. If they are a command of another tool that is not a replay, ours
// says what to use instead; else it is empty.
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

// makesPrompts says what to do if another tool invents its prompts.
const makesPrompts = "a replay sends a trace, and does not invent one: moonloop generate --out TRACE makes one with lengths of your choice"

// noFile reports whether there is no file of this name.
func noFile(word string) bool {
	_, err := os.Stat(word)
	return err != nil
}

// ofVLLM is vLLM's name for its replay, which no other tool has.
const ofVLLM = "bench serve"

// otherDatasets says what to use in place of vLLM's datasets.
var otherDatasets = map[string]string{
	"sharegpt":          "--dataset FILE makes the prompts of a trace from such a text",
	"sonnet":            "--dataset FILE makes the prompts of a trace from such a text",
	"custom":            "to use a file of prompts, name the file as the trace, with --map text_input=prompt --no-fixed-schedule",
	"burstgpt":          "name the file as the trace, with --from burstgpt",
	"random":            "moonloop generate makes one with lengths of your choice",
	"random-mm":         "moonloop generate makes one with lengths of your choice, and --images and --image-size add images",
	"prefix_repetition": "moonloop generate makes one whose prompts share a beginning",
	"custom_image":      "rows with messages can contain your own images, and --images adds generated ones",
	"hf":                "nothing is downloaded: download it yourself, and make a trace from it with moonloop convert",
}

// shortNames are one-letter flags of other tools.
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

// onOff stands in the table for the value of a switch that true or false may follow.
const onOff = "B"

// severalNumbers reports whether a load has several sizes, each of which is a run in the other tool.
func severalNumbers(w flagWord) bool {
	return slices.Contains([]string{"concurrency", "max-concurrency", "prefill-concurrency", "request-rate"}, w.name) && len(w.values) == 1 &&
		strings.Contains(w.values[0], ",") && !strings.ContainsFunc(w.values[0], func(r rune) bool { return !strings.ContainsRune("0123456789.,", r) })
}

// takesMore reports whether a word is another value of a flag that takes several, and not the name of the trace.
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
				continue // TraceReplay has this flag only next to --trace-path
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

// fits reports whether the value of a flag has the form that this meaning requires. A flag without a meaning that fits is ours, and so are
// its errors.
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
		return nil, fmt.Errorf("--%s means one thing in %s (%s) and another in %s (%s): choose with --as %s or --as %s",
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

// keep returns an action that stores a value under a name: some flags have a meaning only together.
func keep(name string) action {
	return func(t *translator, value string) error {
		if before, given := t.kept[name]; given && before != value {
			return errors.New("it is given twice, with different values: give it once")
		}
		t.kept[name] = value
		return nil
	}
}

// remove removes flags and their values.
func (t *translator) remove(names ...string) {
	var rest []string
	for i := 0; i < len(t.args); i++ {
		name, _, joined := strings.Cut(strings.TrimPrefix(t.args[i], "--"), "=")
		if t.args[i] == "-m" {
			name = "model"
		}
		switch is := strings.HasPrefix(t.args[i], "-") && slices.Contains(names, name); {
		case !is:
			rest = append(rest, t.args[i])
		case !joined:
			i++
		}
	}
	t.args = rest
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
	b.WriteString("Flags of other replay tools that moonloop replay understands: put \"moonloop\nreplay\" in place of the tool's name, and leave the rest as it is.\n\n" +
		"If a name has two meanings, its value and the other flags decide, or --as does.\n")
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
