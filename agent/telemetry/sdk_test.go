// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package telemetry

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/otel"
)

// TestCatchSDK: messages from the SDK's globals are reported once, at most ten of them, without the values of headers, and not after the
// release.
func TestCatchSDK(t *testing.T) {
	cleanEnv(t, "OTEL_EXPORTER_OTLP_HEADERS=authorization=Bearer%20"+token)
	var raw bytes.Buffer
	defer log.SetOutput(log.Writer())
	log.SetOutput(&raw)
	var told []string
	release := CatchSDK(func(text string) { told = append(told, text) })
	logger := logr.New(sdkSink{&catcher{warn: func(text string) { told = append(told, text) }, told: make(map[string]bool)}})
	var all sync.WaitGroup
	for range 10 {
		all.Go(func() { otel.Handle(errors.New("unsupported sampler: dice")) })
	}
	all.Wait()
	otel.Handle(errors.New("refused: Bearer " + token))
	otel.Handle(context.Canceled) // of a collection that the end of the run stopped
	log.Print("Unsolicited response received on idle HTTP channel")
	logger.Info("nothing of interest")
	logger.Error(errors.New("invalid syntax"), "parse duration", "environment variable", "OTEL_X", "input", token)
	logger.Error(&url.Error{Op: "parse", URL: "http://u:pass@h:port", Err: errors.New(`invalid port ":port" after host`)}, "parse url", "input", token)
	if diff := cmp.Diff([]string{
		"OpenTelemetry's SDK: unsupported sampler: dice",
		"OpenTelemetry's SDK: refused: [hidden]",
		"net/http: Unsolicited response received on idle HTTP channel",
		"OpenTelemetry's SDK: parse duration OTEL_X: invalid syntax",
		`OpenTelemetry's SDK: parse url: invalid port ":port" after host`,
	}, told); diff != "" {
		t.Errorf("told (-want +got):\n%s", diff)
	}
	for i := range 100 {
		otel.Handle(fmt.Errorf("error %d: %s", i, strings.Repeat("x", 10_000)))
	}
	if len(told) != maxSDKWarnings+3 || !strings.Contains(told[len(told)-1], "are not shown") || len(told[5]) > maxErrorText+100 {
		t.Errorf("%d warnings, the last %q, one of %d bytes", len(told), told[len(told)-1], len(told[5]))
	}
	release()
	otel.Handle(errors.New("late"))
	log.Print("of the program")
	if len(told) != maxSDKWarnings+3 || !strings.Contains(raw.String(), "of the program") {
		t.Errorf("after the release: %q, and raw %q", told[len(told)-1], raw.String())
	}
}
