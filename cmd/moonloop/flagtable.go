// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/dustin/go-humanize"

	"github.com/moonloop/moonloop/agent/carry"
	"github.com/moonloop/moonloop/agent/measure"
	"github.com/moonloop/moonloop/agent/prompt"
	"github.com/moonloop/moonloop/agent/telemetry"
	"github.com/moonloop/moonloop/capture"
	"github.com/moonloop/moonloop/capture/journal"
	"github.com/moonloop/moonloop/convert/foreign"
	"github.com/moonloop/moonloop/convert/offline"
	"github.com/moonloop/moonloop/internal/simulator"
	"github.com/moonloop/moonloop/mooncake"
)

// replayVerb is the one verb whose flags have other names, too.
const replayVerb = "replay"

// Bounds of numbers, far beyond every use and far below what would overflow or be allocated.
const (
	maxTokens = 1 << 30
	maxRows   = 1_000_000_000_000
)

// commonRules are the rules of flags that several verbs have.
var commonRules = map[string]rule{
	"out":            that("the name of a file or folder", notStandardOutput),
	"progress":       oneOf("auto", "bar", "lines", "none"),
	"block-size":     whole(1, mooncake.MaxBlockSize),
	"max-line":       whole(1, 1<<31-1),
	"rows":           whole(0, maxRows),
	"format":         oneOf(string(capture.FormatFull), string(capture.FormatMooncake)),
	"replays":        oneOf(string(capture.ReplaysSeparate), string(capture.ReplaysDrop), string(capture.ReplaysOnly)),
	"missing-tokens": oneOf(string(capture.MissingDrop), string(capture.MissingEstimate)),
	"follow-engine":  oneOf(string(capture.FollowAuto), string(capture.FollowNever)),
	"prompt-order":   that("MODEL=ORDER with an order of system_last, tools_last, both_last or as_sent, such as 'mistral-*=system_last'", isPromptOrder),
	"memory":         bytesFrom(1, "above 0"),
	"temp-dir":       that("a folder that exists", isFolder),
	"quarantine":     anyText("the name of a file"),
	"journal":        anyText("the name of a folder"),
	"session-key":    anyText("the name of an attribute"),
	"model":          anyText("the name of a model"),
	"only-model":     anyText("the name of a model"),
	"run-id":         that(fmt.Sprintf("an identifier of at most %d visible ASCII characters without spaces", journal.MaxName), isRunID),
	"run":            that(fmt.Sprintf("an identifier of at most %d visible ASCII characters without spaces", journal.MaxName), isRunID),
	"api-key-file":   anyText("the name of a file"),
	"api-key-env":    {want: "the name of an environment variable, not the key itself", ok: isVariable, secret: true},
	"key-env":        {want: "the name of an environment variable, not the key itself", ok: isVariable, secret: true},
	"tls-cert":       anyText("the name of a PEM file"),
	"tls-key":        anyText("the name of a PEM file"),
	"client-ca":      anyText("the name of a PEM file"),
	"ca-file":        anyText("the name of a PEM file"),
	"cert-file":      anyText("the name of a PEM file"),
	"key-file":       anyText("the name of a PEM file"),
	"cert":           anyText("the name of a PEM file"),

	"fine-block-size": whole(1, mooncake.MaxBlockSize),
}

// verbRules are the rules of one verb's flags, before the common ones.
var verbRules = map[string]map[string]rule{
	replayVerb: {
		"url":            that("http://host:port or https://host:port", isBaseURL),
		"otlp-endpoint":  that("http://host:port or https://host:port", isEndpoint),
		"endpoint":       oneOf(string(prompt.Chat), string(prompt.Completions)),
		"prompt":         oneOf(string(prompt.Words), string(prompt.Tokens)),
		"profile":        oneOf(profileNames()...),
		"spread":         oneOf("none", "uniform", "even"),
		"session-mode":   oneOf("full", "delta"),
		"time-unit":      oneOf("ms", "s", "us"),
		"carry-replies":  oneOf(string(carry.Auto), string(carry.Always), string(carry.Never)),
		"too-short":      oneOf(string(prompt.SendOneWord), string(prompt.Skip)),
		"token-events":   oneOf(string(telemetry.EventsAll), string(telemetry.EventsArray), string(telemetry.EventsFirst), string(telemetry.EventsNone)),
		"otlp-protocol":  oneOf(telemetry.ProtocolGRPC, telemetry.ProtocolHTTP),
		"arrival-stamps": oneOf("kernel", "read"),

		"out":                 anyText("a folder"),
		"speedup":             number(1e-6, 1e9),
		"start":               that(wantTraceTime, isTraceTime),
		"end":                 that(wantTraceTime, isTraceTime),
		"max-requests":        whole(0, maxRows),
		"prepare":             lasting(0, time.Second),
		"warmup-requests":     whole(0, 1_000_000),
		"shard":               that("i/n with 0 ≤ i < n, such as 0/4", func(v string) error { _, _, err := parseShard(v); return err }),
		"start-at":            that("a time to come, such as 2026-11-21T15:04:05Z", func(v string) error { _, err := parseStartAt(v, time.Now()); return err }),
		"block-size":          whole(minReplayBlock, mooncake.MaxBlockSize),
		"lookahead":           whole(1, 1<<24),
		"overhead":            whole(0, 1<<20),
		"output-length":       whole(0, maxTokens),
		"max-output-length":   whole(0, maxTokens),
		"retries":             whole(0, 1000),
		"carry-memory":        bytesFrom(1<<10, "from 1KiB on"),
		"engine-block-size":   whole(0, mooncake.MaxBlockSize),
		"slo":                 that("name=duration pairs with a name of ttft, ttst, itl, tpot or e2e, such as ttft=500ms,itl=50ms", isSLO),
		"goodput-goal":        fraction(),
		"max-error-rate":      fraction(),
		"abort-error-rate":    fraction(),
		"connect-timeout":     lasting(0, century),
		"first-token-timeout": lasting(0, century),
		"extra-inputs":        {want: `a JSON object, such as {"temperature": 0}`, ok: isObject, secret: true, long: true},
		"header":              {want: `"Name: value" or @FILE`, ok: isHeader, secret: true, long: true},
		"header-env":          {want: "Name=VARIABLE, such as Authorization=MY_HEADER", ok: isHeaderVariable, secret: true},
	},
	"capture": {
		"out":      that("the name of a file", isTraceName),
		"grpc":     {want: `host:port, such as 127.0.0.1:4317, or "" not to listen`, ok: isAddress, emptyMeans: true},
		"http":     {want: `host:port, such as 127.0.0.1:4318, or "" not to listen`, ok: isAddress, emptyMeans: true},
		"deny":     anyText("the name of an attribute, or its beginning and a *"),
		"duration": lasting(0, century),
		"idle":     lasting(0, century),

		"request-limit": bytesFrom(1<<20, "from 1MiB on"),
	},
	"convert": {
		"out":        that("the name of a file", isTraceName),
		"from":       oneOf(string(offline.OTLP), string(offline.Dynamo), string(foreign.Bailian), string(foreign.BurstGPT), string(foreign.Azure)),
		"failed":     oneOf(string(foreign.FailedDrop), string(foreign.FailedKeep)),
		"look-ahead": whole(1, 1<<24),
	},
	"compile": {"out": that("the name of a file", isTraceName)},
	"inspect": {
		"capacity": that("numbers of blocks from 1 to 2^30 with commas between, such as 5859,10k", isCapacities),
		"eviction": oneOf("leaf-first", "root-first"),
		"max-ids":  whole(1, 1<<31-1),
	},
	"generate": {
		"out":           that("the name of a file", isTraceName),
		"duration":      lasting(0, 365*24*time.Hour),
		"rate":          number(1e-6, 1e6),
		"turns":         number(1, 1e6),
		"system-prompt": whole(0, maxTokens),
		"max-input":     whole(0, maxTokens),
		"user":          distribution(1),
		"output":        distribution(1),
		"think":         distribution(0),
		"grid":          that("whole milliseconds from 0 to 1h, such as 3s", isGrid),
		"token-time":    lasting(0, time.Hour),
		"block-size":    whole(1, 1<<20),
	},
	"simulate": {
		"listen":           that("host:port, such as 127.0.0.1:8000", isAddress),
		"grace":            lasting(0, 24*time.Hour),
		"like":             oneOf("plain", "vllm", "llamacpp"),
		"prefill-lane":     oneOf("parallel", "serial"),
		"cache-commit":     oneOf("admission", "prefill"),
		"role-chunk":       oneOf("first-token", "immediately"),
		"block-size":       whole(1, 1<<20),
		"cache-blocks":     whole(0, 1<<31-2),
		"cache-slots":      whole(0, 1<<12),
		"cache-saved":      whole(0, 1<<31-2),
		"vocabulary":       whole(0, 1<<31),
		"word-bytes":       whole(0, 1<<10),
		"template-message": whole(0, 1<<16),
		"template-prompt":  whole(0, 1<<16),
		"tokens-per-chunk": whole(1, 1<<20),
		"early-stop":       fraction(),
		"tool-calls":       fraction(),
		"fault":            that("name=share with a name of the list in --help, such as rate-limit=0.01", isFault),
		"body-limit":       whole(1, 1<<40),
		"record":           anyText("the name of a file"),
		"record-header":    that("the name of a header that holds no key", isRecordable),
	},
	"demo": {
		"out":        anyText("a folder that is empty or not there yet"),
		"production": lasting(time.Second, time.Hour),
	},
}

// minReplayBlock is the smallest block whose words tell it from others.
const minReplayBlock = 8

const (
	wantTraceTime = "a duration such as 90s or 5m, or a number of milliseconds, from 0 to 100 years"
)

func notStandardOutput(value string) error {
	if value == "-" {
		return errors.New("a trace appears when it is complete, with its sidecar beside it, which standard output cannot do; name a file")
	}
	return nil
}

// unwritten are the endings of compressions that no verb writes.
var unwritten = regexp.MustCompile(`(?i)\.(xz|bz2|lz4|lzma|br|zip|7z|z|snappy|sz|gzip|zs)$`)

// isTraceName refuses a name that promises a compression which is not written: the file would be plain.
func isTraceName(value string) error {
	if ending := unwritten.FindString(value); ending != "" {
		return fmt.Errorf("%s is not written; end the name in .gz or .zst for a compressed trace, or in .jsonl for a plain one", ending)
	}
	return notStandardOutput(value)
}

// distribution are log-normal ones with a median that is not below least.
func distribution(least float64) rule {
	want := fmt.Sprintf("MEDIAN,SIGMA or MEDIAN,SIGMA,MAX with a median of %g or more, a sigma from 0 to 10 and a maximum of 0 (none) or more", least)
	return that(want, func(value string) error {
		var d logNormalFlag
		if err := d.Set(value); err != nil || !(d.Median >= least && d.Median <= maxTokens && d.Sigma >= 0 && d.Sigma <= 10 && d.Max >= 0 && d.Max <= math.MaxFloat64) {
			return errWant
		}
		return nil
	})
}

func isGrid(value string) error {
	if d, err := time.ParseDuration(value); err != nil || d < 0 || d > time.Hour || d%time.Millisecond != 0 {
		return errWant
	}
	return nil
}

// bytesFrom are the numbers of bytes from least on, which words say.
func bytesFrom(least uint64, words string) rule {
	return that("a number of bytes "+words+", such as 256MiB", func(value string) error {
		if n, err := humanize.ParseBytes(value); err != nil || n < least || n > 1<<50 {
			return errWant
		}
		return nil
	})
}

func isFolder(value string) error {
	if info, err := os.Stat(value); err != nil {
		return fmt.Errorf("%s; want a folder that exists", reason(err))
	} else if !info.IsDir() {
		return errors.New("it is a file; want a folder that exists")
	}
	return nil
}

func isRunID(value string) error {
	if _, err := journal.ParseName(value); err != nil {
		return errWant
	}
	return nil
}

// variable is what names of environment variables look like. A key, given by mistake, hardly ever does.
var variable = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]{0,63}$`)

func isVariable(value string) error {
	if !variable.MatchString(value) {
		return errWant
	}
	return nil
}

// isBaseURL checks the engine's URL. An error of it repeats nothing of the URL.
func isBaseURL(value string) error {
	u, err := parseURL(value)
	switch {
	case err != nil:
		return err
	case u.User != nil:
		return errors.New("it holds a user name; pass credentials by --api-key-env, --api-key-file or -H @FILE")
	case u.Fragment != "":
		return errors.New("it holds a fragment, which no request sends; leave out the # and what follows")
	}
	return nil
}

// isEndpoint checks the URL of an OTLP receiver in the same way.
func isEndpoint(value string) error {
	u, err := parseURL(value)
	switch {
	case err != nil:
		return err
	case u.User != nil || u.RawQuery != "":
		return errors.New("it holds a user name or a query, which are not sent; pass credentials by OTEL_EXPORTER_OTLP_HEADERS")
	}
	return nil
}

func parseURL(value string) (*url.URL, error) {
	if !strings.Contains(value, "://") {
		return nil, errors.New("it has no scheme; want http://host:port or https://host:port")
	}
	u, err := url.Parse(value)
	switch {
	case err != nil:
		return nil, errors.New("it cannot be read; want http://host:port or https://host:port")
	case u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "":
		return nil, errWant
	}
	if p := u.Port(); p != "" && !isPort(p, 1) {
		return nil, fmt.Errorf("port %s: want 1 to 65535", p)
	}
	return u, nil
}

func isPort(text string, least uint64) bool {
	n, err := strconv.ParseUint(text, 10, 16)
	return err == nil && n >= least
}

func isAddress(value string) error {
	if _, port, err := net.SplitHostPort(value); err != nil || !isPort(port, 0) {
		return errWant
	}
	return nil
}

func isTraceTime(value string) error {
	var t traceTime
	if err := t.Set(value); err != nil || t < 0 || t > traceTime(century) {
		return errWant
	}
	return nil
}

func isSLO(value string) error {
	if _, err := measure.ParseSLO(value); err != nil {
		return errWant
	}
	return nil
}

func isObject(value string) error {
	if !json.Valid([]byte(value)) || !strings.HasPrefix(strings.TrimSpace(value), "{") {
		return errWant
	}
	return nil
}

func isCapacities(value string) error {
	if _, err := parseCapacities(strings.Split(value, ",")); err != nil {
		return errWant
	}
	return nil
}

func isFault(value string) error {
	name, text, _ := strings.Cut(value, "=")
	known, _ := simulator.FaultNames()
	words := make([]string, len(known))
	for i, k := range known {
		words[i] = string(k)
		if name != words[i] {
			continue
		}
		if part, err := strconv.ParseFloat(text, 64); err != nil || !(part >= 0 && part <= 1) {
			return errors.New("want a share from 0 to 1 after the name, such as " + name + "=0.01")
		}
		return nil
	}
	if near := nearest(name, words); len(near) > 0 {
		return fmt.Errorf("there is no fault %s; did you mean %s?", quoted(name), strings.Join(near, " or "))
	}
	return errWant
}

func isRecordable(value string) error {
	if strings.ContainsFunc(value, notToken) || http.CanonicalHeaderKey(value) == "Authorization" {
		return errWant
	}
	return nil
}
