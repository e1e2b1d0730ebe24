// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package clients

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/moonloop/moonloop/internal/simulator"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// serve starts an engine behind a real server on loopback. Everything is closed when the test ends.
func serve(t *testing.T, config simulator.Config) (*simulator.Engine, string) {
	t.Helper()
	e, err := simulator.New(config)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewUnstartedServer(nil)
	server.Config = e.NewServer()
	server.Start()
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
		server.CloseClientConnections()
		server.Close()
		http.DefaultClient.CloseIdleConnections()
	})
	return e, server.URL
}

// lastRecord waits for the requests in flight and returns the record with the highest number.
func lastRecord(t *testing.T, e *simulator.Engine) *simulator.Record {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := e.WaitIdle(ctx); err != nil {
		t.Fatal(err)
	}
	records := e.Records()
	if len(records) == 0 {
		t.Fatal("no record")
	}
	return records[len(records)-1]
}

// words returns "go" and n words.
func words(n int) string { return "go" + strings.Repeat(" word", n) }
