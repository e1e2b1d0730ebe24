// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/moonloop/moonloop/agent/prompt"
	"github.com/moonloop/moonloop/agent/report"
	"github.com/moonloop/moonloop/convert"
	"github.com/moonloop/moonloop/mooncake"
)

// This file translates the values of single flags.

// actions are the ways to translate a flag, by the first word of the last column of aliases.txt. They get the words that follow.
var actions = map[string]func(about string) action{
	"keep": keep, "seconds": seconds, "extra": extraOf, "column": column, "steady": steadyMark, "only": only, "set": set, "pass": pass, "word": word,
	"own": func(name string) action { return ownActions[name] },
}

// ownActions are the actions for a single flag, or for a few.
var ownActions = map[string]action{
	"nothing": func(*translator, string) error { return nil },

	"adapter": (*translator).adapter, "aiperfFile": (*translator).aiperfFile, "arrivals": (*translator).arrivals,
	"backend": (*translator).backend, "datasetType": (*translator).datasetType, "drawing": (*translator).drawing,
	"endpointPath": (*translator).endpointPath, "endpointType": (*translator).endpointType, "exportLevel": (*translator).exportLevel,
	"extraObject": (*translator).extraObject, "extraPairs": (*translator).extraPairs, "format": (*translator).format,
	"goodput": (*translator).goodput, "graceOf": (*translator).graceOf, "graphFormat": (*translator).graphFormat,
	"guideBackend": (*translator).guideBackend, "guideConstraint": (*translator).guideConstraint, "guideData": (*translator).guideData,
	"guideLoader": (*translator).guideLoader, "guideMetrics": (*translator).guideMetrics, "guideOutput": (*translator).guideOutput,
	"guideProfile": (*translator).guideProfile, "guideSeed": (*translator).guideSeed, "headers": (*translator).headers,
	"key": (*translator).key, "percent": (*translator).percent, "promptsOf": (*translator).promptsOf,
	"randomFormat": (*translator).randomFormat, "requestPrefix": (*translator).requestPrefix, "requestType": (*translator).requestType,
	"scenario":          (*translator).scenario,
	"templateArguments": (*translator).templateArguments, "theTrace": (*translator).theTrace, "tracePath": (*translator).tracePath,
	"url": (*translator).url, "warmAgain": (*translator).warmAgain, "warmupGrace": (*translator).warmupGrace,
}

// set returns an action that sets a flag of ours to a value: flag=value.
func set(about string) action {
	name, value, _ := strings.Cut(about, "=")
	return func(t *translator, _ string) error { return t.add(name, value) }
}

// pass returns an action that gives the value to a flag of ours.
func pass(name string) action {
	return func(t *translator, value string) error { return t.add(name, value) }
}

// word returns an action that translates words to those of a flag of ours: flag theirs=ours…. Nothing is set for a word without one of ours.
func word(about string) action {
	name, pairs, _ := strings.Cut(about, " ")
	ours, theirs := map[string]string{}, []string(nil)
	for pair := range strings.FieldsSeq(pairs) {
		of, is, _ := strings.Cut(pair, "=")
		ours[of], theirs = is, append(theirs, of)
	}
	return func(t *translator, value string) error {
		is, known := ours[value]
		switch {
		case !known:
			return fmt.Errorf("%s: want %s", quoted(value), oneOf(theirs...).want)
		case is == "":
			return nil
		}
		return t.add(name, is)
	}
}

// only returns an action that accepts the values that stand for what a replay does anyway.
func only(words string) action {
	return func(_ *translator, value string) error {
		if slices.Contains(strings.Fields(words), value) {
			return nil
		}
		return fmt.Errorf("%s: a replay knows only %s", quoted(value), strings.ReplaceAll(words, " ", " or "))
	}
}

// promptsOf parses the kind of prompts. After dataset, the next value is the name of its file.
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

// findType detects the format of AIPerf's file from the file's beginning. Errors are left to the reader of the file.
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
		t.say("--input-file: it is %s (--from %s)", from.About(), from)
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

func (t *translator) templateArguments(value string) error {
	if isObject(value) != nil {
		return errors.New(`want a JSON object, such as {"enable_thinking": false}`)
	}
	return t.body("chat_template_kwargs", json.RawMessage(value))
}

// requestPrefix sets the run's id, after which each request has its number.
func (t *translator) requestPrefix(value string) error {
	return t.add("run-id", strings.TrimRight(value, "-"))
}

// endpointNames are the values of --endpoint.
var endpointNames = strings.Trim(fmt.Sprint(prompt.Endpoints()), "[]")

// endpointPaths are the ends of the paths of endpoints.
var endpointPaths = [][2]string{
	{"/chat/completions", "chat"},
	{"/completions", "completions"},
	{"/responses", "responses"},
	{"/messages", "messages"},
	{"/embeddings", "embeddings"},
	{"/generate", "generate"},
	{"/generate_stream", "generate"}, // --no-stream decides which of the two
}

func (t *translator) endpointPath(value string) error {
	for _, path := range endpointPaths {
		if strings.HasSuffix(value, path[0]) {
			return t.endpoint(path[1])
		}
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
	case "chat_completions", "text_completions":
		return t.endpoint(map[string]string{"chat_completions": "chat", "text_completions": "completions"}[value])
	case "responses", "embeddings":
		return t.endpoint(value)
	}
	return t.endpointPath(value)
}

// backends are vLLM's names for how an engine is asked, with our endpoint and the profile of the engine, if it is not plain.
var backends = map[string][2]string{
	"openai-chat": {"chat"}, "openai-responses": {"responses"}, "openai-embeddings": {"embeddings"}, "tgi": {"generate", "tgi"},
	"vllm": {"completions"}, "openai": {"completions"}, "scalellm": {"completions"}, "sglang": {"completions", "sglang"},
	"lmdeploy": {"completions", "lmdeploy"}, "llama.cpp": {"completions", "llamacpp"}, "tensorrt-llm": {"completions", "trtllm"},
}

func (t *translator) backend(value string) error {
	b, known := backends[value]
	if !known {
		return fmt.Errorf("%s: want openai-chat, openai-responses, openai-embeddings, tgi, vllm, openai, sglang, lmdeploy, llama.cpp, scalellm or tensorrt-llm", quoted(value))
	}
	if b[1] != "" {
		_ = t.add("profile", b[1])
	}
	return t.endpoint(b[0])
}

func seconds(name string) action {
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
func steadyMark(name string) action {
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
	t.say("--api-key: every user of this machine can read the key in the list of processes; use --api-key-file or --api-key-env")
	return t.add("header", "Authorization: Bearer "+value)
}

func extraOf(name string) action {
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

// extraPairs parses key:value,key:value….
func (t *translator) extraPairs(value string) error {
	if isObject(value) == nil {
		return t.extraObject(value)
	}
	for pair := range strings.SplitSeq(value, ",") {
		name, text, found := strings.Cut(pair, ":")
		if name = strings.TrimSpace(name); !found || name == "" {
			return errors.New(`want key:value, several with commas between them, or a JSON object, such as {"temperature": 0}`)
		}
		raw, _ := json.Marshal(extraValue(strings.TrimSpace(text)))
		if err := t.body(name, raw); err != nil {
			return err
		}
	}
	return nil
}

// The numbers in AIPerf's pairs. All others, such as 1e3 and 007, are texts.
var (
	extraWhole   = regexp.MustCompile(`^-?(0|[1-9][0-9]*)$`)
	extraDecimal = regexp.MustCompile(`^-?([0-9]+\.[0-9]*|\.[0-9]+)$`)
)

// extraValue returns the value that AIPerf sends for a text.
func extraValue(text string) any {
	switch lower := strings.ToLower(text); {
	case lower == "true", lower == "false":
		return lower == "true"
	case lower == "none", lower == "null":
		return nil
	case extraWhole.MatchString(text):
		return json.Number(text)
	case extraDecimal.MatchString(text):
		if f, err := strconv.ParseFloat(text, 64); err == nil {
			return f
		}
	}
	return text
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
	const flag = "--slo="
	at := slices.IndexFunc(t.args, func(arg string) bool { return strings.HasPrefix(arg, flag) })
	if at >= 0 { // it may be given several times, with one objective each
		value = t.args[at][len(flag):] + " " + value
	}
	value, err := objectives(value)
	switch {
	case err != nil:
		return err
	case at >= 0:
		t.args[at] = flag + value
		return nil
	}
	return t.add("slo", value)
}

func (t *translator) percent(value string) error {
	n, err := parseFloat(value)
	if err != nil || !(n >= 0 && n <= 100) {
		return fmt.Errorf("%s: want a percentage from 0 to 100", quoted(value))
	}
	return t.add("cancel-share", strconv.FormatFloat(n/100, 'f', -1, 64))
}

func (t *translator) closed(string) error { return t.add("no-fixed-schedule", "true") }

// column maps a column to one of our fields, unless it has the field's own name.
func column(ours string) action {
	return func(t *translator, theirs string) error {
		if theirs == ours {
			return nil
		}
		return t.add("map", ours+"="+theirs)
	}
}
