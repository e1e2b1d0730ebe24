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
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/net/http/httpguts"

	"github.com/moonloop/moonloop/agent/load"
	"github.com/moonloop/moonloop/agent/report/page"
	"github.com/moonloop/moonloop/capture/journal"
	"github.com/moonloop/moonloop/internal/simulator"
	"github.com/moonloop/moonloop/mooncake"
	"github.com/moonloop/moonloop/study"
)

// replayVerb is the only verb whose flags have alternative names.
const replayVerb = "replay"

// The limits of numbers, far above every use and far below what would overflow or use too much memory.
const (
	maxTokens = 1 << 30
	maxRows   = 1_000_000_000_000
)

// The rules of several flags.
var (
	aFile       = anyText("the name of a file")
	aTokenizer  = that("the path of a tokenizer.json", isTokenizer)
	aPEMFile    = anyText("the name of a PEM file")
	aSlice      = lasting(time.Millisecond, century, "from 1ms to 100 years")
	aTraceURL   = that("an address with {trace_id} in it, such as http://localhost:16686/trace/{trace_id}", page.CheckTraceURL)
	aModel      = anyText("the name of a model")
	anAttribute = anyText("the name of an attribute")
	traceFile   = that("the name of a file", isTraceName)
	aVariable   = rule{want: "the name of an environment variable, not the key itself", ok: isVariable, secret: true}
	blockSize   = whole(1, mooncake.MaxBlockSize)
	timeUnit    = oneOf("ms", "s", "us", "ns")
)

// aRate is a number of requests per second, including infinity, as in vLLM.
var aRate = that(fmt.Sprintf("a number of requests per second from %s to %s, or inf for all at once", plainNumber(load.MinRate), plainNumber(load.MaxRate)),
	func(value string) error {
		v, err := parseFloat(value)
		return errors.Join(err, wrongUnless(v >= load.MinRate && v <= load.MaxRate || math.IsInf(v, 1)))
	})

// runID accepts identifiers of a replay.
var runID = reads(fmt.Sprintf("an identifier of at most %d visible ASCII characters without spaces", journal.MaxName), journal.ParseName)

// minReplayBlock is the smallest block that can be replayed: a block begins with its id of 64 bits, in 8 words out of a vocabulary of 256.
const minReplayBlock = 8

// tolerances are how far a replay may be from production.
var tolerances = explains("NAME=SHARE pairs, such as ttft.p50=0.2,hit_rate=0.01", study.ParseTolerances)

// traceTimes are durations as [parseTraceTime] reads them.
var traceTimes = between("a duration such as 90s or 5m, or a number of milliseconds, from 0 to 100 years", parseTraceTime, 0, century)

func notStandardOutput(value string) error {
	if value == "-" {
		return advice("a trace is written whole, with its .meta.json file next to it: standard output cannot do that; name a file")
	}
	return nil
}

// unwritten are the endings of compressions that no verb can write.
var unwritten = regexp.MustCompile(`(?i)\.(xz|bz2|lz4|lzma|br|zip|7z|z|snappy|sz|gzip|zs)$`)

// isTraceName refuses a name for a compression that cannot be written: the file would be plain.
func isTraceName(value string) error {
	if ending := unwritten.FindString(value); ending != "" {
		return advice(ending + " cannot be written; end the name in .gz or .zst for a compressed trace, or in .jsonl for a plain one")
	}
	return notStandardOutput(value)
}

// distribution returns a rule that accepts log-normal distributions whose median is not below least.
func distribution(least float64) rule {
	want := fmt.Sprintf("MEDIAN,SIGMA or MEDIAN,SIGMA,MAX with a median of %g or more, a sigma from 0 to 10 and a maximum of 0 (none) or more", least)
	return that(want, func(value string) error {
		d, err := parseLogNormal(value)
		good := d.Median >= least && d.Median <= maxTokens && d.Sigma >= 0 && d.Sigma <= 10 && d.Max >= 0 && d.Max <= math.MaxFloat64
		return errors.Join(err, wrongUnless(good))
	})
}

func parseGrid(value string) (time.Duration, error) {
	d, err := time.ParseDuration(value)
	return d, errors.Join(err, wrongUnless(d%time.Millisecond == 0))
}

func isFolder(value string) error {
	if info, err := os.Stat(value); err != nil {
		return advice(reason(err) + "; want a folder that exists")
	} else if !info.IsDir() {
		return advice("it is a file; want a folder that exists")
	}
	return nil
}

// variable matches names of environment variables. A key given by mistake hardly ever matches, or is longer than a name.
var variable = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

func isVariable(value string) error {
	return wrongUnless(len(value) <= longestVariable && variable.MatchString(value))
}

// isTokenizer distinguishes a file from the names of models, which other tools accept.
func isTokenizer(value string) error { return wrongUnless(strings.HasSuffix(value, ".json")) }

// isBaseURL checks the engine's URL. Its error repeats nothing of the URL but the port.
func isBaseURL(value string) error {
	u, err := parseURL(value)
	switch {
	case err != nil:
		return err
	case u.User != nil:
		return advice("it contains a user name; pass credentials by --api-key-env, --api-key-file or -H @FILE")
	case u.Fragment != "":
		return advice("it contains a fragment (#…), which no request sends; leave out the fragment")
	}
	return nil
}

// isHost checks a host with or without a port.
func isHost(value string) error {
	if host, port, err := net.SplitHostPort(value); err == nil {
		if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
			return advice("its port is not 1 to 65535")
		}
		value = host
	}
	return wrongUnless(value == "" || net.ParseIP(value) != nil || len(value) <= longestHost && hostName.MatchString(value)) // empty: none
}

var hostName = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.-]*$`)

// The maximum lengths of names. The regular expressions do not check them: a repeat count of 253 would cost 300 kB at each start of the
// program.
const (
	longestVariable = 64
	longestHost     = 253 // RFC 1035
)

// isEndpoint checks the URL of an OTLP receiver, as isBaseURL checks the engine's.
func isEndpoint(value string) error {
	u, err := parseURL(value)
	if err == nil && (u.User != nil || u.RawQuery != "") {
		return advice("it contains a user name or a query, which are not sent; pass credentials by OTEL_EXPORTER_OTLP_HEADERS")
	}
	return err
}

func parseURL(value string) (*url.URL, error) {
	if !strings.Contains(value, "://") {
		return nil, advice("it has no scheme; want http://host:port or https://host:port")
	}
	u, err := url.Parse(value)
	switch {
	case err != nil:
		return nil, advice("it cannot be read; want http://host:port or https://host:port")
	case u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "":
		return nil, errWrong
	case u.Port() != "" && isPort(u.Port(), 1) != nil:
		return nil, advice("port " + u.Port() + ": want 1 to 65535")
	}
	return u, nil
}

func isAddress(value string) error {
	_, port, err := net.SplitHostPort(value)
	return errors.Join(err, isPort(port, 0))
}

func isPort(text string, least uint64) error {
	n, err := strconv.ParseUint(text, 10, 16)
	return errors.Join(err, wrongUnless(n >= least))
}

func isObject(value string) error {
	return wrongUnless(json.Valid([]byte(value)) && strings.HasPrefix(strings.TrimSpace(value), "{"))
}

func isFault(value string) error {
	name, part, _ := strings.Cut(value, "=")
	known, _, _ := simulator.FaultNames()
	if slices.Contains(known, simulator.Fault(name)) {
		if share.ok(part) != nil {
			return advice("want a share from 0 to 1 after the name, such as " + name + "=0.01")
		}
		return nil
	}
	if near := nearest(name, oneOf(known...).words); len(near) > 0 {
		return advice("there is no fault " + quoted(name) + didYouMean(near, ""))
	}
	return errWrong
}

func isRecordable(value string) error {
	return wrongUnless(httpguts.ValidHeaderFieldName(value) && http.CanonicalHeaderKey(value) != "Authorization")
}

// isSessionHeader checks the name of a header that gets the id of a session, which is no secret and must not change how a request is sent.
func isSessionHeader(value string) error {
	if err := isRecordable(value); err != nil {
		return err
	}
	if why, owned := ownHeaders[http.CanonicalHeaderKey(value)]; owned {
		return advice(why + "; give another header")
	}
	if name := http.CanonicalHeaderKey(value); name == "Cookie" || name == "Proxy-Authorization" {
		return advice("proxies and servers read this header themselves; give another header")
	}
	return nil
}
