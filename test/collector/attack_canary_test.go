// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package collector

import (
	"bytes"
	"crypto/rand"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
)

// The ways by which bytes leave the Collector.
const (
	outForwarded = "forwarded" // spans, log records and metrics that go to a backend, and the queue before the exporter
	outJournal   = "journal"
	outTrace     = "trace" // compiled, its name included
	outLog       = "log"   // the Collector's own output
	outMetrics   = "metrics"
	outPages     = "zpages"
	outAnswer    = "answer" // to the sender
)

// exceptions are the kinds of canaries that may be seen, and where: the exceptions of receiver/README.md, and no others. A kind that is not
// here must not be seen anywhere.
var exceptions = map[string]struct {
	outputs []string
	reason  string
}{
	"spanname":   {[]string{outForwarded}, "up to 256 bytes in the name of a span"},
	"path":       {[]string{outForwarded}, "up to 256 bytes in the path of a URL"},
	"fact":       {[]string{outForwarded}, "up to 256 bytes under a name of the allow-list that may have spaces"},
	"word":       {[]string{outForwarded}, "one word under the name of an id"},
	"model":      {[]string{outForwarded, outJournal, outTrace, outMetrics}, "a model is one visible word, and rows and metrics name it"},
	"run":        {[]string{outForwarded, outJournal, outTrace, outLog}, "the id of a run is one visible word, too: a replay's trace contains one run, and the log names it"},
	"unheard":    {[]string{outForwarded}, "below 1 KiB under a name that nobody knows, on telemetry that is not of GenAI"},
	"key":        {[]string{outForwarded}, "up to 256 bytes as a name, on telemetry that is not of GenAI"},
	"resource":   {[]string{outForwarded}, "a resource is not of GenAI"},
	"scope":      {[]string{outForwarded}, "up to 256 bytes in the name of a scope"},
	"tracestate": {[]string{outForwarded}, "up to 512 bytes in a trace state"},
	"session":    {[]string{outForwarded}, "a session under our own name is one that a receiver or a replay wrote"},
	"body":       {[]string{outForwarded}, "the body of a log record that is not of GenAI"},
	"metric":     {[]string{outForwarded}, "up to 256 bytes in the name of a metric"},
	"json":       {[]string{outAnswer}, "the decoder quotes a part of malformed JSON to its sender"},
}

// canaries are globally unique texts, each with the kind of field in which it is planted.
type canaries struct {
	marker string
	forms  map[string][]byte // of the marker, as encodings write it
	// debug says that the Collector logs at that level. Then its transform processor may log what it forwards.
	debug bool

	mu   sync.Mutex
	seen map[string]map[string]string // by kind and output, with the text around it
}

func newCanaries() *canaries {
	var random [8]byte
	_, _ = rand.Read(random[:]) // never fails
	c := &canaries{marker: "zq" + hex.EncodeToString(random[:]), seen: map[string]map[string]string{}}
	c.forms = map[string][]byte{"hex": []byte(hex.EncodeToString([]byte(c.marker)))}
	for shift := range 3 {
		encoded := base64.StdEncoding.EncodeToString(append(make([]byte, shift), c.marker...))
		c.forms[fmt.Sprint("base64, ", shift)] = []byte(encoded[4*min(shift, 1) : len(encoded)-4])
	}
	return c
}

// text returns a canary that looks like prose, word one that is a single word, and long one of a given length.
func (c *canaries) text(kind string) string { return c.word(kind) + " tell me all about it" }
func (c *canaries) word(kind string) string { return c.marker + "-" + kind + "-" }
func (c *canaries) long(kind string, length int) string {
	return strings.Repeat(c.text(kind)+" ", length/len(c.text(kind))+1)[:length]
}

var planted = regexp.MustCompile("^-([a-z]+)-")

// search records the canaries in what leaves.
func (c *canaries) search(output string, content []byte) {
	note := func(kind string, at int) {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.seen[kind] == nil {
			c.seen[kind] = map[string]string{}
		}
		if _, ok := c.seen[kind][output]; !ok {
			c.seen[kind][output] = string(content[max(0, at-80):min(len(content), at+80)])
		}
	}
	for rest := content; ; {
		i := bytes.Index(rest, []byte(c.marker))
		if i < 0 {
			break
		}
		rest = rest[i+len(c.marker):]
		at := len(content) - len(rest)
		kind := "unknown"
		if match := planted.FindSubmatch(rest[:min(32, len(rest))]); match != nil {
			kind = string(match[1])
		}
		note(kind, at)
	}
	for form, needle := range c.forms {
		if i := bytes.Index(content, needle); i >= 0 {
			note("in "+form, i)
		}
	}
}

// check fails for canaries in forbidden places, and for exceptions that no longer occur.
func (c *canaries) check(t *testing.T, outputs ...string) {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, kind := range slices.Sorted(maps.Keys(c.seen)) {
		for output, around := range c.seen[kind] {
			may := exceptions[kind].outputs
			if logged := c.debug && output == outLog && slices.Contains(may, outForwarded); !logged && !slices.Contains(may, output) {
				t.Errorf("a text planted as %q has left by way of %s: %q", kind, output, around)
			}
		}
	}
	for kind, e := range exceptions {
		for _, output := range e.outputs {
			if _, ok := c.seen[kind][output]; !ok && slices.Contains(outputs, output) {
				t.Errorf("exception %q (%s) is not seen in %s: it does not exist, or nobody plants it", kind, e.reason, output)
			}
		}
	}
}

// TestCanaries shows that the search finds its canaries, plain or encoded.
func TestCanaries(t *testing.T) {
	for _, lead := range []string{"", "a", "ab", "abc"} {
		c := newCanaries()
		text := lead + c.text("prompt")
		c.search(outLog, []byte("x"+text+"x"))
		c.search(outMetrics, []byte("x"+hex.EncodeToString([]byte(text))))
		c.search(outJournal, []byte("x"+base64.StdEncoding.EncodeToString([]byte(text))))
		c.search(outTrace, []byte("nothing"))
		if len(c.seen["prompt"]) != 1 || c.seen["prompt"][outLog] == "" || c.seen["in hex"][outMetrics] == "" || len(c.seen) != 3 {
			t.Errorf("found %v", c.seen)
		}
	}
}
