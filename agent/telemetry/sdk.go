// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package telemetry

import (
	"errors"
	"fmt"
	"log"
	"net/url"
	"strings"
	"sync"

	"github.com/go-logr/logr"
	"go.opentelemetry.io/otel"

	"github.com/moonloop/moonloop/agent/send"
)

// maxSDKWarnings bounds what CatchSDK tells.
const maxSDKWarnings = 10

// CatchSDK takes what OpenTelemetry's SDK says by its global error handler and logger, and net/http below it by the standard
// library's logger, all of which write raw lines to standard error, and tells it as warnings: each text once, without the
// values of headers, ten at most. warn is called on any goroutine, one call at a time. release ends that: the standard logger
// is what it was, the SDK is silent.
//
// It is for programs, whose own these globals are. A library leaves them alone, as Start does.
func CatchSDK(warn func(text string)) (release func()) {
	c := &catcher{warn: warn, told: make(map[string]bool)}
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { c.tell("OpenTelemetry's SDK: " + err.Error()) }))
	otel.SetLogger(logr.New(sdkSink{c}))
	writer, flags := log.Writer(), log.Flags()
	log.SetOutput(c)
	log.SetFlags(0)
	return func() {
		log.SetOutput(writer)
		log.SetFlags(flags)
		c.mu.Lock()
		defer c.mu.Unlock()
		c.warn = nil
	}
}

// catcher tells each text once.
type catcher struct {
	mu   sync.Mutex
	warn func(string) // nil when it is over
	told map[string]bool
}

func (c *catcher) tell(text string) {
	text = bounded(send.Hidden(text, otlpSecrets()))
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.warn == nil || c.told[text] || len(c.told) > maxSDKWarnings {
		return
	}
	c.told[text] = true
	if len(c.told) > maxSDKWarnings {
		c.warn("OpenTelemetry's SDK and net/http have more to say, which is not shown")
		return
	}
	c.warn(text)
}

// Write takes a line of the standard logger.
func (c *catcher) Write(line []byte) (int, error) {
	c.tell("net/http: " + strings.TrimSpace(string(line)))
	return len(line), nil
}

// sdkSink takes the errors of the SDK's logger, as its default does.
type sdkSink struct{ *catcher }

// Init implements logr.LogSink.
func (sdkSink) Init(logr.RuntimeInfo) {}

// Enabled implements logr.LogSink: errors only.
func (sdkSink) Enabled(int) bool { return false }

// Info implements logr.LogSink.
func (sdkSink) Info(int, string, ...any) {}

// Error implements logr.LogSink. Of the values that come with it only the names of variables and files are told: others may
// be headers.
func (s sdkSink) Error(err error, msg string, keysAndValues ...any) {
	var text strings.Builder
	text.WriteString("OpenTelemetry's SDK: " + msg)
	for i := 0; i+1 < len(keysAndValues); i += 2 {
		switch keysAndValues[i] {
		case "environment variable", "file":
			fmt.Fprintf(&text, " %v", keysAndValues[i+1])
		}
	}
	if of, ok := errors.AsType[*url.Error](err); ok { // its text has the whole URL, credentials and all
		err = of.Err
	}
	if err != nil {
		text.WriteString(": " + err.Error())
	}
	s.tell(text.String())
}

// WithValues implements logr.LogSink.
func (s sdkSink) WithValues(...any) logr.LogSink { return s }

// WithName implements logr.LogSink.
func (s sdkSink) WithName(string) logr.LogSink { return s }
