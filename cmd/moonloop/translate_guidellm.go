// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// This file parses GuideLLM's flags, whose values are pairs of names and values, or JSON objects.

// pairs parses kind=…,key=value,…, or a JSON object, whose nested members get names with dots.
func pairs(value string) map[string]string {
	of := make(map[string]string)
	var object map[string]json.RawMessage
	if json.Unmarshal([]byte(value), &object) == nil {
		flatten(of, "", object)
		return of
	}
	for pair := range strings.SplitSeq(value, ",") {
		if name, v, found := strings.Cut(pair, "="); found {
			of[name] = v
		} else {
			of["kind"] = pair
		}
	}
	return of
}

func flatten(of map[string]string, before string, object map[string]json.RawMessage) {
	for name, raw := range object {
		var inner map[string]json.RawMessage
		var text string
		switch {
		case json.Unmarshal(raw, &inner) == nil && inner != nil:
			flatten(of, before+name+".", inner)
		case json.Unmarshal(raw, &text) == nil:
			of[before+name] = text
		default:
			of[before+name] = string(raw)
		}
	}
}

// each passes the members of such a value to their actions; a nil action is for a member without an effect. Members that have no entry
// in byName are refused.
func (t *translator) each(of map[string]string, byName map[string]action) error {
	for _, name := range slices.Sorted(maps.Keys(of)) {
		do, known := byName[name]
		if !known {
			group, _, _ := strings.Cut(name, ".")
			do, known = byName[group+".*"]
		}
		if !known {
			return fmt.Errorf("%s: a replay has nothing of this kind; leave it out", quoted(name))
		}
		if do == nil {
			continue
		}
		if err := do(t, of[name]); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

// want returns an action that accepts some words, which have no effect.
func want(words ...string) action {
	return func(_ *translator, value string) error {
		if slices.Contains(words, value) {
			return nil
		}
		return fmt.Errorf("%s: want %s", quoted(value), strings.Join(words, " or "))
	}
}

// refuse returns an action that refuses every value.
func refuse(why string) action {
	return func(*translator, string) error { return errors.New(why) }
}

// ofOne returns an action for a value that may be a list with one element.
func ofOne(do action) action {
	return func(t *translator, value string) error { return do(t, one(value)) }
}

func (t *translator) guideProfile(value string) error {
	rate, from, to, mode := ofOne(keep("rate")), steadyMark("steady-from"), steadyMark("steady-to"), want("duration", "prefer_duration")
	kinds := slices.Sorted(maps.Keys(guideProfiles))
	return t.each(pairs(value), map[string]action{
		"kind": func(t *translator, v string) error {
			if v == "sweep" {
				return errors.New("sweep: a replay has one load: moonloop search finds the highest that an engine can handle")
			}
			if guideProfiles[v] == nil {
				return want(kinds...)(t, v)
			}
			return keep("profile")(t, v)
		},
		"time_scale": keep("scale"), "schedule_turn": want("timestamp"), "rate": rate, "streams": rate, "max_concurrency": keep("ceiling"), "rampup_duration": keep("rampup"),
		"warmup": from, "warmup.percent": from, "warmup.value": from, "warmup.mode": mode, "cooldown": to, "cooldown.percent": to, "cooldown.value": to, "cooldown.mode": mode,
	})
}

// one returns the value of a list with one element.
func one(value string) string {
	if list := strings.TrimSuffix(strings.TrimPrefix(value, "["), "]"); len(list) == len(value)-2 && !strings.Contains(list, ",") {
		return strings.TrimSpace(list)
	}
	return value
}

// guideProfiles are the load profiles of GuideLLM, with their meaning for a rate, which may be empty.
var guideProfiles = map[string]action{
	"replay": func(t *translator, rate string) error {
		if rate == "" {
			return nil
		}
		return keep("scale")(t, rate)
	},
	"constant": (*translator).constant,
	"async":    (*translator).constant,
	"poisson":  pass("request-rate"),
	"concurrent": func(t *translator, streams string) error {
		_ = t.add("concurrency", streams)
		return t.closed("")
	},
	"synchronous": func(t *translator, _ string) error {
		_ = t.add("concurrency", "1")
		return t.closed("")
	},
	"throughput": func(t *translator, most string) error {
		if most != "" {
			_ = t.add("concurrency", most)
		}
		return t.add("request-rate", "inf")
	},
}

func (t *translator) constant(rate string) error {
	_ = t.add("arrival", "constant")
	return t.add("request-rate", rate)
}

// guideLoad translates when GuideLLM's profile would send.
func (t *translator) guideLoad() error {
	profile, rate := cmp.Or(t.kept["profile"], "replay"), t.kept["rate"]
	if strings.Contains(rate, ",") {
		return fmt.Errorf("--rate %s: want one value; a replay runs once, so give each its own command", quoted(rate))
	}
	if rate == "" && slices.Contains([]string{"constant", "async", "poisson", "concurrent"}, profile) {
		return fmt.Errorf("--profile %s: --rate is missing", profile)
	}
	if ramp, given := t.kept["rampup"]; given {
		name := "ramp-up"
		if profile == "concurrent" || profile == "throughput" {
			name = "concurrency-ramp-up"
		}
		if err := seconds(name)(t, ramp); err != nil {
			return fmt.Errorf("--rampup: %w", err)
		}
	}
	if ceiling, given := t.kept["ceiling"]; given {
		if profile == "throughput" { // its rate has the same meaning
			return guideProfiles[profile](t, ceiling)
		}
		if streams, _ := parseFloat(rate); profile == "concurrent" || profile == "synchronous" {
			if most, err := parseFloat(ceiling); err == nil && most < streams {
				rate = ceiling
			}
		} else {
			_ = t.add("concurrency", ceiling)
		}
	}
	return guideProfiles[profile](t, rate)
}

func (t *translator) guideBackend(value string) error {
	of := pairs(value)
	for name, v := range of {
		if field, found := strings.CutPrefix(name, "extras.body."); found {
			raw := json.RawMessage(v)
			if !json.Valid(raw) {
				raw, _ = json.Marshal(v)
			}
			if err := t.body(field, raw); err != nil {
				return err
			}
			delete(of, name)
		}
		if header, found := strings.CutPrefix(name, "extras.headers."); found {
			_ = t.add("header", header+": "+v)
			delete(of, name)
		}
	}
	return t.each(of, map[string]action{
		"kind": want("openai_http"), "target": (*translator).url, "model": pass("model"), "api_key": (*translator).key,
		"request_format": (*translator).requestType, "request_type": (*translator).requestType,
		"timeout": seconds("request-timeout"), "timeout_connect": seconds("connect-timeout"), "max_tokens": pass("max-output-length"),
		"http2": func(t *translator, v string) error { return t.add("http2", strings.ToLower(v)) },
		"verify": func(t *translator, v string) error {
			if strings.EqualFold(v, "false") && strings.HasPrefix(of["target"], "https://") {
				return t.add("insecure-skip-verify", "true")
			}
			return nil
		},
		"stream": func(t *translator, v string) error {
			return t.add("no-stream", strconv.FormatBool(strings.EqualFold(v, "false")))
		},
		"follow_redirects": nil, "validate_backend": nil, "tool_call_missing_behavior": nil,
		"server_history": want("false", "False"), "multiturn_reasoning": want("false", "False"),
		"api_routes.*": refuse("a replay uses the paths of the API: a prefix of these paths belongs in target"),
		"extras.*":     refuse("a replay adds fields to bodies (extras.body) and headers (extras.headers), and nothing else"),
	})
}

// guideFormats are the formats of GuideLLM's traces that are converted first.
var guideFormats = map[string]string{"weka": "weka", "otel": "spans", "opentelemetry": "spans", "otel_trace": "spans"}

func (t *translator) guideData(value string) error {
	if !strings.Contains(value, "=") && !strings.HasPrefix(value, "{") {
		return t.theTrace(value)
	}
	of := pairs(value)
	kind := of["kind"]
	switch from := guideFormats[kind]; {
	case from != "":
		_ = t.add("from", from)
		t.kept["from"] = from
	case slices.Contains([]string{"mooncake", "trace_synthetic", "trace_minimal"}, kind):
		t.kept["seconds"] = "unless a time_scale says another unit"
	}
	// Columns of a converted file have the names of the format.
	named := func(ours, converted string) action {
		if guideFormats[kind] != "" {
			return want(converted)
		}
		return column(ours)
	}
	if slices.Contains([]string{"huggingface", "hf", "db_file", "synthetic_text", "synthetic_image", "synthetic_video"}, kind) {
		return fmt.Errorf("kind=%s: a replay sends a trace: download the data set and name the file, or make a trace with moonloop generate", kind)
	}
	for _, name := range []string{"prompt_tokens", "output_tokens"} {
		if _, given := of[name]; given {
			return errors.New(name + ": " + makesPrompts)
		}
	}
	kinds := append(slices.Sorted(maps.Keys(guideFormats)), "mooncake", "trace_minimal", "trace_synthetic")
	file := (*translator).theTrace
	return t.each(of, map[string]action{
		"kind": want(kinds...), "path": file, "source.path": file, "source.src": file,
		"source.kind": func(t *translator, v string) error {
			if v == "huggingface" || v == "hf" {
				return errors.New("a replay downloads no data set: download the data set, and name its file as source.path")
			}
			return want("json_file", "csv_file", "parquet_file")(t, v)
		},
		"time_scale": keep("scale"), "max_session_wait": keep("wait"),
		"max_wait": func(*translator, string) error {
			if kind == "weka" {
				return errors.New("it limits the gaps between turns of one session; max_session_wait limits those between all requests")
			}
			return nil // rows of the other formats are one request each
		},
		"timestamp_column": named("timestamp", "t"), "prompt_tokens_column": named("input_length", "in"), "output_tokens_column": named("output_length", "out"),
		"hash_ids_column": named("hash_ids", "hash_ids"), "conversation_id_column": named("session_id", "id"), "hash_id_block_size": pass("block-size"),
		"load_kwargs.*": nil, "history": want("trace"),
	})
}

// guideConstraint parses the end of a benchmark.
func (t *translator) guideConstraint(value string) error {
	of := pairs(value)
	return t.each(of, map[string]action{
		"kind": func(t *translator, v string) error {
			switch v {
			case "over_saturation":
				return errors.New(reasons["noSaturation"])
			case "min_requests":
				return errors.New("a replay ends with its trace: --loop sends it again")
			}
			return want("max_requests", "max_duration", "max_error_rate", "max_global_error_rate", "max_errors")(t, v)
		},
		"count": ofOne(func(t *translator, v string) error {
			if of["kind"] == "max_errors" {
				return t.add("abort-errors", v)
			}
			return t.atMost(v)
		}),
		"rate": ofOne(pass("abort-error-rate")), "seconds": ofOne(seconds("max-duration")), "window": nil, "minimum": nil, "stopping_scope": nil,
	})
}

func (t *translator) guideLoader(value string) error {
	return t.each(pairs(value), map[string]action{
		"kind": want("pytorch"), "num_workers": nil, "shuffle": want("false", "False"),
		"samples": func(t *translator, v string) error {
			if v == "-1" { // all
				return nil
			}
			return t.atMost(v)
		},
	})
}

// atMost keeps the smallest requested number of requests.
func (t *translator) atMost(value string) error {
	n, err := strconv.ParseInt(value, 10, 64)
	if err != nil || n < 1 {
		return fmt.Errorf("%s: want a whole number above 0", quoted(value))
	}
	if before, err := strconv.ParseInt(t.kept["most"], 10, 64); err != nil || n < before {
		t.kept["most"] = value
	}
	return nil
}

func (t *translator) guideSeed(value string) error {
	return t.each(pairs(value), map[string]action{"kind": want("static"), "value": pass("seed")})
}

// guideOutput stores the folder of the files. All outputs must have the same one.
func (t *translator) guideOutput(value string) error {
	of := pairs(value)
	if err := want("console", "csv", "html", "json", "plot", "yaml")(t, of["kind"]); err != nil || of["kind"] == "console" {
		return err
	}
	path := of["path"]
	if filepath.Ext(path) != "" || path == "" {
		path = filepath.Dir(path)
	}
	return keep("folder")(t, path)
}

func (t *translator) guideMetrics(value string) error {
	return t.each(pairs(value), map[string]action{
		"kind": want("generative"), "sample_size": nil, "prefer_response_metrics": nil, "confidence": nil, "warnings": nil,
		"slo.ttft_ms": objectiveOf("ttft"), "slo.tpot_ms": objectiveOf("tpot"), "slo.e2el_ms": objectiveOf("e2el"),
	})
}

func objectiveOf(metric string) action {
	return func(t *translator, ms string) error { return t.goodput(metric + ":" + ms) }
}
