// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package telemetry

import (
	"context"
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

// maxSDKWarnings is the maximum number of warnings of CatchSDK.
const maxSDKWarnings = 10

// CatchSDK converts the messages of OpenTelemetry's SDK, from its global error handler and logger, and those of net/http, from the standard
// library's logger, to warnings. Without it, these write raw lines to standard error. Each text is reported once, without the values of
// headers, ten at most. warn may be called on any goroutine, one call at a time. release ends that: it restores the standard logger, and
// the SDK becomes silent.
//
// CatchSDK is for programs, which own these globals. A library must not change them, and Start does not.
func CatchSDK(warn func(text string)) (release func()) {
	c := &catcher{warn: warn, told: make(map[string]bool)}
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) {
		if errors.Is(err, context.Canceled) {
			return // the end of a run stopped a collection of metrics; Shutdown collects them again
		}
		c.warnOnce("OpenTelemetry's SDK: " + err.Error())
	}))
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

// catcher reports each text once.
type catcher struct {
	mu   sync.Mutex
	warn func(string) // nil after release
	told map[string]bool
}

func (c *catcher) warnOnce(text string) {
	text = bounded(send.Hidden(text, otlpSecrets()))
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.warn == nil || c.told[text] || len(c.told) > maxSDKWarnings {
		return
	}
	c.told[text] = true
	if len(c.told) > maxSDKWarnings {
		c.warn("further messages of OpenTelemetry's SDK and net/http are not shown")
		return
	}
	c.warn(text)
}

// Write handles a line of the standard logger.
func (c *catcher) Write(line []byte) (int, error) {
	c.warnOnce("net/http: " + strings.TrimSpace(string(line)))
	return len(line), nil
}

// sdkSink handles the errors of the SDK's logger; like its default, it ignores the rest.
type sdkSink struct{ *catcher }

// Init implements logr.LogSink.
func (sdkSink) Init(logr.RuntimeInfo) {}

// Enabled implements logr.LogSink: errors only.
func (sdkSink) Enabled(int) bool { return false }

// Info implements logr.LogSink.
func (sdkSink) Info(int, string, ...any) {}

// Error implements logr.LogSink. Of the values with the error, it reports only the names of variables and files, because others may be
// headers.
func (s sdkSink) Error(err error, msg string, keysAndValues ...any) {
	var text strings.Builder
	text.WriteString("OpenTelemetry's SDK: " + msg)
	for i := 0; i+1 < len(keysAndValues); i += 2 {
		switch keysAndValues[i] {
		case "environment variable", "file":
			fmt.Fprintf(&text, " %v", keysAndValues[i+1])
		}
	}
	if of, ok := errors.AsType[*url.Error](err); ok { // its text contains the whole URL, including credentials
		err = of.Err
	}
	if err != nil {
		text.WriteString(": " + err.Error())
	}
	s.warnOnce(text.String())
}

// WithValues implements logr.LogSink.
func (s sdkSink) WithValues(...any) logr.LogSink { return s }

// WithName implements logr.LogSink.
func (s sdkSink) WithName(string) logr.LogSink { return s }
