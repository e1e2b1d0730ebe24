// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package main

import (
	"os"
	"strings"
	"testing"
)

// TestMalformedFlags: the trace is good, the command line is not. ␣ stands for a space within an argument, ␊ for a line end.
func TestMalformedFlags(t *testing.T) {
	alone(t)
	const replay = "replay trace.jsonl --url ENGINE "
	var cases []malformed
	for name, command := range map[string]string{
		"a URL without a scheme: refused":                      "replay trace.jsonl --url localhost",
		"a URL of another scheme: refused":                     "replay trace.jsonl --url ftp://h",
		"a URL with a user: refused, and not repeated":         "replay trace.jsonl --url http://user:xyzzy@h",
		"a URL with a port out of range: refused":              "replay trace.jsonl --url http://127.0.0.1:70000",
		"a URL with port 0: refused":                           "replay trace.jsonl --url http://127.0.0.1:0",
		"a URL with a space: refused":                          "replay trace.jsonl --url http://a␣b",
		"a URL without a host: refused":                        "replay trace.jsonl --url http://",
		"no URL: refused":                                      "replay trace.jsonl",
		"two traces: refused":                                  replay + "other.jsonl",
		"an engine that does not exist: refused":               "replay trace.jsonl --url http://127.0.0.1:1",
		"speed-up 0: refused":                                  replay + "--speedup 0",
		"speed-up -1: refused":                                 replay + "--speedup -1",
		"speed-up NaN: refused":                                replay + "--speedup NaN",
		"speed-up Inf: refused":                                replay + "--speedup Inf",
		"speed-up as text: refused":                            replay + "--speedup fast",
		"request rate 0: refused":                              replay + "--request-rate 0",
		"request rate NaN: refused":                            replay + "--request-rate NaN",
		"request rate -inf: refused":                           replay + "--request-rate=-inf",
		"request rate of a nanohertz: refused":                 replay + "--request-rate 1e-9",
		"burstiness 0: refused":                                replay + "--request-rate 1 --burstiness 0",
		"an unknown arrival: refused":                          replay + "--request-rate 1 --arrival weekly",
		"a ramp of an unknown shape: refused":                  replay + "--request-rate 1 --ramp-up 1s --ramp-up-shape stairs",
		"an exponential ramp from 0: refused":                  replay + "--request-rate 1 --ramp-up 1s --ramp-up-shape exponential",
		"concurrency -1: refused":                              replay + "--concurrency -1",
		"concurrency 2^63: refused":                            replay + "--concurrency 9223372036854775808",
		"concurrency 1.5: refused":                             replay + "--concurrency 1.5",
		"block size -1: refused":                               replay + "--block-size -1",
		"block size 2^40: refused":                             replay + "--block-size 1099511627776",
		"a negative duration: refused":                         replay + "--max-duration -5s",
		"a duration without a unit: refused":                   replay + "--max-duration 5",
		"a negative start: refused":                            replay + "--start -5",
		"a start that is not a time: refused":                  replay + "--start noon",
		"a start of NaN: refused":                              replay + "--start NaN",
		"a start beyond any clock: refused":                    replay + "--start 1e300",
		"an end before the start: refused":                     replay + "--start 10 --end 5",
		"a window after the trace: refused":                    replay + "--start 1h",
		"seed -1: refused":                                     replay + "--seed -1",
		"goodput goal 2: refused":                              replay + "--slo ttft=1s --goodput-goal 2",
		"goodput goal without a service level: refused":        replay + "--goodput-goal 0.5",
		"error rate NaN: refused":                              replay + "--max-error-rate NaN",
		"a service level without a limit: refused":             replay + "--slo ttft",
		"an unknown service level: refused":                    replay + "--slo speed=1s",
		"a negative service level: refused":                    replay + "--slo ttft=-1s",
		"a cancel share in percent: refused":                   replay + "--cancel-share 10",
		"a cancel share of NaN: refused":                       replay + "--cancel-share NaN",
		"a negative wait to cancel: refused":                   replay + "--cancel-share 0.1 --cancel-after -1s",
		"a dry run in an unknown form: refused":                replay + "--dry-run=xml",
		"a prefill concurrency without streaming: refused":     replay + "--prefill-concurrency 2 --no-stream",
		"a concurrency ramp without a maximum: refused":        replay + "--no-fixed-schedule --concurrency-ramp-up 5s --prefill-concurrency-ramp-up 5s",
		"a ramp of negative duration: refused":                 replay + "--concurrency 4 --concurrency-ramp-up=-5s",
		"a loop of 0 passes: refused":                          replay + "--loop 0",
		"a loop of negative duration: refused":                 replay + "--loop=-5s",
		"a loop over a window: refused":                        replay + "--loop 2 --start 5",
		"a loop over standard input: refused":                  "replay - --url ENGINE --loop 2",
		"fresh passes without a loop: warned":                  replay + "--loop-fresh",
		"shard 2/2: refused":                                   replay + "--shard 2/2",
		"shard -1/2: refused":                                  replay + "--shard -1/2",
		"shard 1: refused":                                     replay + "--shard 1",
		"an invalid wall-clock start: refused":                 replay + "--start-at tomorrow",
		"an unknown spread: refused":                           replay + "--spread some",
		"a spread without a grid: refused":                     replay + "--spread even",
		"an unknown unit: refused":                             replay + "--time-unit h",
		"an unknown session mode: refused":                     replay + "--session-mode some",
		"an unknown profile: refused":                          replay + "--profile gpt",
		"an unknown progress: refused":                         replay + "--progress some",
		"an unknown flag: refused":                             replay + "--speed 2",
		"file order and open loop: refused":                    replay + "--no-fixed-schedule --open-loop",
		"extra inputs that are cut: refused, and not repeated": replay + `--extra-inputs {"xyzzy":`,
		"extra inputs that are an array: refused":              replay + "--extra-inputs [1]",
		"a header without a colon: refused, and not repeated":  replay + "-H xyzzy",
		"a header with a line end: refused, and not repeated":  replay + "-H X-Key:␣a␊Host:␣xyzzy",
		"a header without a name: refused, and not repeated":   replay + "-H :xyzzy",
		"an output length of -1: refused":                      replay + "--output-length -1",
		"extra inputs that cap replies below 0: refused":       replay + `--extra-inputs {"max_tokens":-1}`,
		"a negative wait for the engine: refused":              replay + "--wait-ready -1s",
		"two keys: refused":                                    replay + "--api-key-env A --api-key-file b",
		"a key file that does not exist: refused":              replay + "--api-key-file missing",
		"an empty key file: refused":                           replay + "--api-key-file empty",
		"an invalid certificate authority: refused":            replay + "--ca-file empty",
		"a certificate without a key: refused":                 replay + "--cert-file empty",
		"results in a file: refused":                           replay + "--out trace.jsonl",
		"strict and lenient: refused":                          "BOTH trace.jsonl --lenient --strict",
		"lenient without a file for rejected rows: refused":    replay + "--lenient",
		"a quarantine without lenient: refused":                "BOTH trace.jsonl --quarantine q.jsonl",
		"a quarantine that is the trace: refused":              "BOTH trace.jsonl --lenient --quarantine ./trace.jsonl",
		"a quarantine that is a directory: refused":            "BOTH trace.jsonl --lenient --quarantine .",
		"a quarantine in a missing directory: refused":         "BOTH trace.jsonl --lenient --quarantine missing/q.jsonl",
		"one quarantine for two traces: refused":               "inspect trace.jsonl trace.jsonl --lenient --quarantine q.jsonl",
		"inspect, block size -1: refused":                      "inspect trace.jsonl --block-size -1",
		"inspect, a negative limit: refused":                   "inspect trace.jsonl --max-line -1",
		"inspect, capacity 0: refused":                         "inspect trace.jsonl --capacity 0",
		"inspect, an unknown eviction: refused":                "inspect trace.jsonl --eviction lfu",
		"simulate, out of range: refused":                      "simulate --prefill -1s --max-running -1 --block-size -1 --early-stop 2 --template-prompt -1",
		"simulate, an unknown fault: refused":                  "simulate --fault cut=2",
		"simulate, no address: refused":                        "simulate --listen here",
		"generate, out of range: refused":                      "generate --rows -1 --rate 0 --turns NaN",
		"generate, no such folder: refused":                    "generate --out missing/trace.jsonl",
		"generate, an existing trace: refused":                 "generate --rows 1 --out trace.jsonl",
		"transform, out of range: refused":                     "transform trace.jsonl --scale 0 --time-scale NaN --roots 0 --first -1 --max-gap -1s",
		"transform, an unknown spread: refused":                "transform trace.jsonl --spread some",
		"transform, a spread without a grid: refused":          "transform trace.jsonl --spread even",
		"transform, two traces and no way to join: refused":    "transform trace.jsonl trace.jsonl",
		"transform, two ways to join: refused":                 "transform trace.jsonl trace.jsonl --append --merge",
		"transform, standard input twice: refused":             "transform - - --append",
		"transform, nothing to read: refused":                  "transform",
		"transform, smaller blocks: refused":                   "transform trace.jsonl --to-block-size 16",
		"transform, an end before the start: refused":          "transform trace.jsonl --start 10 --end 5",
		"transform, nothing left: refused":                     "transform trace.jsonl --only-model none",
		"transform, lengths that cross: refused":               "transform trace.jsonl --min-input 9 --max-input 5",
		"transform, two scales of one prefix: refused":         "transform trace.jsonl --input-scale 2 --prefix-scale 2",
		"transform, onto its input: refused":                   "transform trace.jsonl --first 1 --out trace.jsonl --force",
		"transform, no such trace: refused":                    "transform missing.jsonl",
		"an invalid number: refused":                           "inspect trace.jsonl --block-size x",
		"an invalid duration: refused":                         replay + "--grace 5",
		"a number beyond its type: refused":                    "generate --rows 9223372036854775808",
		"a negative number for a count: refused":               "generate --seed -1",
		"a switch that is neither true nor false: refused":     replay + "--strict=maybe",
		"an unknown verb: refused":                             "repaly trace.jsonl",

		// Words that are near a known one, and words that are not.
		"a verb of another tool: refused":              "attack trace.jsonl",
		"a verb that is near none: refused":            "qwerty",
		"help of an unknown topic: refused":            "help repaly",
		"help of a verb's argument: refused":           "help replay trace.jsonl",
		"an unknown shell: refused":                    "completion bsh",
		"no shell: refused":                            "completion",
		"a flag with a letter too few: refused":        replay + "--concurency 5",
		"an alias with a letter too few: refused":      replay + "--num-promts 5",
		"a key on the command line: warned, not shown": replay + "--api-key=xyzzy",
		"an unknown letter: refused, and not repeated": replay + "-Xxyzzy",
		"a flag without a name: refused, not repeated": replay + "--=xyzzy",
		"a value that is the next flag: refused":       "replay trace.jsonl --url --model m",
		"no trace to inspect: refused":                 "inspect",
		"no journal: refused":                          "compile --out x.jsonl",
		"nothing to convert: refused":                  "convert --out x.jsonl",
		"an argument of generate: refused":             "generate trace.jsonl",
		"an argument of simulate: refused":             "simulate 127.0.0.1:0",

		// Flags that contradict one another, or have no effect.
		"two URLs, of which one does not answer: refused":     replay + "--url http://127.0.0.1:1",
		"a balance of one engine: refused":                    replay + "--balance session",
		"two URLs with keys: refused, and not repeated":       "replay trace.jsonl --url http://user:xyzzy@h --url http://h?key=xyzzy",
		"one URL twice: accepted":                             replay + "--url ENGINE",
		"a flag and its alias with two values: refused":       replay + "--max-requests 1 --num-prompts 2",
		"two bodies: accepted, and not repeated":              replay + `--extra-body {"a":"xyzzy"} --extra-inputs {"b":"xyzzy"}`,
		"file order and a spread: refused":                    replay + "--no-fixed-schedule --spread even",
		"a wait to cancel without a share to cancel: refused": replay + "--cancel-after 1s",
		"a rate and a spread: refused":                        replay + "--request-rate 1 --spread even",
		"a rate and a speed-up: warned":                       replay + "--request-rate 1000 --speedup 2",
		"arrivals without a rate: refused":                    replay + "--arrival gamma --burstiness 2 --ramp-up 1s",
		"arrivals at an infinite rate: refused":               replay + "--request-rate inf --arrival constant",
		"a burstiness of 1 without a rate: accepted":          replay + "--burstiness 1",
		"a burstiness of constant arrivals: refused":          replay + "--request-rate 1 --arrival constant --burstiness 2",
		"a ramp's start without a ramp: refused":              replay + "--request-rate 1 --ramp-up-from 1",
		"users without a rate: refused":                       replay + "--users 4",
		"users at an infinite rate: refused":                  replay + "--users 4 --request-rate inf",
		"users with random arrivals: refused":                 replay + "--users 4 --request-rate 2 --arrival poisson",
		"file order and a window: refused":                    replay + "--no-fixed-schedule --start 5 --end 9",
		"file order and a speed-up: warned":                   replay + "--no-fixed-schedule --speedup 2",
		"a warm-up's grace without a warm-up: refused":        replay + "--warmup-grace 5s --warmup-concurrency 2",
		"a warm-up concurrency above the maximum: refused":    replay + "--warmup-duration 1s --warmup-concurrency 1000000",
		"a grace period that can never begin: refused":        replay + "--grace 5s",
		"file order and preparation: refused":                 replay + "--no-fixed-schedule --prepare 5ms",
		"HTTP/2 and preparation: refused":                     replay + "--http2 --prepare 5ms",
		"a key, and a header with a key: refused":             replay + "--api-key-file headers2 -H @headers",
		"a start time in the past: refused":                   replay + "--start-at 2020-01-01T00:00:00Z",
		"a run id with a line end: refused":                   replay + "--run-id a␊b",
		"a run id with a space: refused":                      replay + "--run-id a␣b",
		"a run id of 300 bytes: refused":                      replay + "--run-id " + strings.Repeat("x", 300),
		"a URL without a scheme, with a key: not shown":       "replay trace.jsonl --url user:xyzzy@h:8000",
		"a URL with a key in its query: warned, not repeated": "replay trace.jsonl --url ENGINE/v1?key=xyzzy",
		"a URL with a fragment: refused":                      "replay trace.jsonl --url http://h/v1#key=xyzzy",
		"an OTLP endpoint with a key: not shown":              replay + "--otlp-endpoint http://user:xyzzy@h:4318",
		"a compression that generate does not write: refused": "generate --rows 1 --out x.jsonl.xz",
		"a compression that convert does not write: refused":  "convert trace.jsonl --out x.jsonl.BZ2",
		"a compression that compile does not write: refused":  "compile trace.jsonl --out x.jsonl.lz4",
		"a compression that capture does not write: refused":  "capture --out x.zip --grpc 127.0.0.1:0 --duration 1ms",
		"a folder for sorting that does not exist: refused":   "compile trace.jsonl --out x.jsonl --temp-dir missing",
		"generate without an end: refused":                    "generate --rows 0",
		"a longest input below the system prompt: refused":    "generate --system-prompt 500 --max-input 400",
		"a key in place of its environment variable":          replay + "--api-key-env xyzzy-0123456789",
		"a key in place of its file: refused, not shown":      replay + "--api-key-file xyzzy0123456789xyzzy",

		// Headers.
		"a header of the client's own, length: refused":                       replay + "-H Content-Length:␣5",
		"a header of the client's own, host: refused":                         replay + "-H host:␣h",
		"a header of the client's own, trace: refused":                        replay + "--header=traceparent:␣00-xyzzy",
		"a header of the client's own, framing: refused":                      replay + "-HTransfer-Encoding:chunked",
		"a session header of the client's own: refused":                       replay + "--session-header connection",
		"a session header that proxies read: refused":                         replay + "--session-header Cookie",
		"a key as a header: warned, and not repeated":                         replay + "-H Authorization:␣Bearer␣xyzzy",
		"headers from a file: accepted":                                       replay + "-H @headers",
		"headers from a missing file: refused":                                replay + "-H @missing",
		"headers from a directory: refused":                                   replay + "-H @.",
		"headers from an empty file: refused":                                 replay + "-H @empty",
		"headers from a trace: refused, not repeated":                         replay + "-H @bad-headers",
		"a header from a variable that is not set: refused":                   replay + "--header-env Authorization=NOT_SET",
		"a header from a value in place of a variable: refused, not repeated": replay + "--header-env Authorization=Bearer␣xyzzy",
		"a header without a variable: refused":                                replay + "--header-env Authorization",
	} {
		cases = append(cases, malformed{name: name, files: map[string]string{
			"trace.jsonl": rowOfSix, "empty": "", "headers2": "xyzzy-xyzzy", "headers": "# of the gateway\r\nX-Tenant: a\r\n\r\nAuthorization: Bearer xyzzy\r\n",
			"bad-headers": "X-Tenant: a\nxyzzy\nContent-Length: 5\n",
		}, commands: []string{command}})
	}
	checkMalformed(t, "flags", cases)
}

// TestMalformedGoldensRepeatNothing: no message of any case contains a planted prompt or secret.
func TestMalformedGoldensRepeatNothing(t *testing.T) {
	files, err := os.ReadDir("testdata/malformed")
	if err != nil || len(files) < 4 {
		t.Fatalf("%d golden files: %v", len(files), err)
	}
	for _, f := range files {
		data, err := os.ReadFile("testdata/malformed/" + f.Name())
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(data)) {
			if !strings.HasPrefix(line, "$ ") && (strings.Contains(line, "xyzzy") || strings.Contains(line, "secret") || strings.Contains(line, "password")) {
				t.Errorf("%s: %s", f.Name(), line)
			}
		}
	}
}
