// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"crypto/tls"
	"crypto/x509"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/moonloop/moonloop/agent/prompt"
	"github.com/moonloop/moonloop/internal/simulator"
)

func TestOptionRetries(t *testing.T) {
	e := newEngine(t, simulator.Config{Faults: simulator.Faults{
		Rates: map[simulator.Fault]float64{"rate-limit": 0.3}, RetryAfter: time.Millisecond,
	}})
	r := e.replay(t, Config{Prompt: ids}, rows(40, 2)...)
	if r.err != nil {
		t.Fatal(r.err)
	}
	counts := r.report.Figures().Rows
	if counts.Failed == 0 || counts.Served == 0 || counts.Retried != 0 {
		t.Fatalf("without retries, which is the default, and with 30 %% of the requests refused: %+v", counts)
	}
	if why := r.report.Figures().Errors[0].Reason; why != "rate_limited" {
		t.Errorf("refused as %q", why)
	}
	r = e.replay(t, Config{Target: Target{Retries: 20}, Prompt: ids}, rows(40, 2)...)
	counts = r.report.Figures().Rows
	if r.err != nil || counts.Served != 40 || counts.RetriedServed == 0 {
		t.Errorf("with retries: error %v, %+v", r.err, counts)
	}
	for _, res := range r.results {
		if res.Result.Attempts < 1 {
			t.Errorf("row %d: %d attempts", res.Result.Row, res.Result.Attempts)
		}
	}
}

func TestOptionTimeouts(t *testing.T) {
	slow := simulator.Config{Latency: simulator.Latency{Prefill: time.Hour}}
	stuck := simulator.Config{Faults: simulator.Faults{Rates: map[simulator.Fault]float64{"stall": 1}, After: 1, StallFor: time.Hour}}
	const soon = 50 * time.Millisecond
	for _, tc := range []struct {
		name   string
		engine simulator.Config
		target Target
		want   string
	}{
		{"first token", slow, Target{FirstTokenTimeout: soon}, "first_token_timeout"},
		{"total", slow, Target{TotalTimeout: soon}, "total_timeout"},
		{"idle", stuck, Target{IdleTimeout: soon}, "idle_timeout"},
	} {
		virtually(t, tc.engine, func(t bubble, e engine) {
			r := e.replay(t, Config{Target: tc.target, Prompt: ids}, rows(1, 0)...)
			if r.err != nil || len(r.results) != 1 || r.results[0].Result.Reason != tc.want {
				t.Errorf("%s: error %v, results %+v; want %s", tc.name, r.err, r.results, tc.want)
			}
		})
	}
}

func TestOptionTLSAndHTTP2(t *testing.T) {
	e, err := simulator.New(simulator.Config{Record: simulator.Recording{Headers: []string{"X-Session-Id"}}})
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewUnstartedServer(e)
	server.EnableHTTP2 = true
	server.StartTLS()
	t.Cleanup(func() {
		server.Close()
		_ = e.Close()
	})
	authorities := x509.NewCertPool()
	authorities.AddCert(server.Certificate())
	for proto, http2 := range map[string]bool{"HTTP/1.1": false, "HTTP/2.0": true} {
		r := engine{Engine: e, url: server.URL}.replay(t, Config{
			Target: Target{TLS: &tls.Config{RootCAs: authorities}, HTTP2: http2},
			Prompt: Prompt{Endpoint: prompt.Completions},
		}, rows(3, 1)...)
		if r.err != nil || r.report.Figures().Rows.Served != 3 {
			t.Errorf("%s: error %v", proto, r.err)
			continue
		}
		if got := r.sent[0].Proto; got != proto {
			t.Errorf("the engine was sent %s, want %s", got, proto)
		}
	}
	if r := (engine{Engine: e, url: server.URL}).replay(t, Config{Prompt: ids}, rows(1, 0)...); r.err == nil {
		t.Error("an unknown authority was trusted")
	}
}
