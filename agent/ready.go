// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package agent

// This file waits for the engine: whether it can be reached at all, and whether it is ready, before anything is timed.

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/moonloop/moonloop/agent/send"
	"github.com/moonloop/moonloop/mooncake"
)

// The pauses between two looks at an engine that is waited for, and the time between two lines that say so.
const (
	firstPause = 250 * time.Millisecond
	longPause  = 2 * time.Second
	tellEvery  = 5 * time.Second
)

// reach looks whether the engine can be reached, and returns the models that it lists. An engine that may become ready is
// waited for as long as the configuration says.
func (r *run) reach(ctx context.Context) (models []string, err error) {
	wait := r.cfg.Target.WaitReady
	if wait == 0 {
		_, stop := r.tell("its list of models", r.bound(send.LookLimit))
		defer stop()
		return r.listModels(ctx)
	}
	within, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	why, stop := r.tell("it to be ready", wait)
	defer stop()
	began := r.clk.Now()
	var last error
	for pause := firstPause; ; pause = min(2*pause, longPause) {
		if models, err = r.listModels(within); !loading(err) {
			// Some list their models while they load them, but their health says so.
			if health := r.client.Get(within, "/health", nil); unavailable(health) {
				err = health
			}
		}
		switch {
		case ctx.Err() != nil:
			return nil, err
		case !loading(err):
			stop()
			if last != nil {
				r.note("engine %s: ready after %v", r.engine(), (r.clk.Now() - began).Round(100*time.Millisecond))
			}
			return models, err
		case within.Err() != nil:
			return nil, fmt.Errorf("not ready within %v (--wait-ready): %w", wait, cmp.Or(last, err))
		}
		last = err
		why(err)
		select {
		case <-within.Done():
		case <-time.After(pause):
		}
	}
}

// listModels asks the engine for its models.
func (r *run) listModels(ctx context.Context) (names []string, err error) {
	var list struct {
		Data []struct {
			ID          string
			MaxModelLen int64 `json:"max_model_len"`
		}
	}
	err = r.client.Get(ctx, "/v1/models", &list)
	r.contexts = make(map[string]int64)
	for _, m := range list.Data {
		names = append(names, m.ID)
		if m.MaxModelLen > 0 {
			r.contexts[m.ID] = m.MaxModelLen
		}
	}
	return names, err
}

// loading reports whether an engine that answers like this may be ready later.
func loading(err error) bool {
	failed, _ := errors.AsType[*send.Error](err)
	if failed == nil {
		return false
	}
	switch failed.Class {
	case send.ClassDNS, send.ClassConnect, send.ClassConnectTimeout, send.ClassTotalTimeout, send.ClassTransport, send.ClassRateLimited:
		return true
	default:
		return failed.Status/100 == 5
	}
}

// unavailable reports whether an engine says of itself that it is not ready, or says nothing at all.
func unavailable(err error) bool {
	failed, _ := errors.AsType[*send.Error](err)
	return failed != nil && (failed.Class == send.ClassTotalTimeout || failed.Status == http.StatusServiceUnavailable)
}

// tell says every few seconds that the run waits for something of the engine's, and why as far as that is known, until stop
// is called. With the first reason it says so at once.
func (r *run) tell(what string, limit time.Duration) (why func(error), stop func()) {
	var mu sync.Mutex
	reason := ""
	began := r.clk.Now()
	line := func() {
		mu.Lock()
		defer mu.Unlock()
		r.note("engine %s: waiting for %s, %v of at most %v%s", r.engine(), what, (r.clk.Now() - began).Round(time.Second), limit, reason)
	}
	done := make(chan struct{})
	var teller sync.WaitGroup
	teller.Go(func() {
		tick := time.NewTicker(tellEvery)
		defer tick.Stop()
		for {
			select {
			case <-done:
				return
			case <-tick.C:
				line()
			}
		}
	})
	why = func(err error) {
		mu.Lock()
		first := reason == ""
		reason = ": " + err.Error()
		mu.Unlock()
		if first {
			line()
		}
	}
	return why, sync.OnceFunc(func() {
		close(done)
		teller.Wait()
	})
}

// bound returns the bound of a call that prepares the run; see [send.Client.Get].
func (r *run) bound(limit time.Duration) time.Duration {
	return min(limit, cmp.Or(r.cfg.Target.TotalTimeout, limit))
}

// engine is the engine's name in messages.
func (r *run) engine() string { return mooncake.PublicName(r.cfg.Target.URL) }

// unreachable says what keeps the run from the engine, and what to do; nil where the engine has answered. What an answer says
// of the list of models can be the list's own fault.
func (r *run) unreachable(ctx context.Context, err error) error {
	failed, _ := errors.AsType[*send.Error](err)
	if failed == nil {
		return nil
	}
	var cures []string
	switch failed.Class {
	case send.ClassTLS: // its message says it
	case send.ClassDNS:
		cures = []string{"is the name in the URL right?"}
	case send.ClassConnect:
		cures = []string{"does the engine run there, and is the URL right?", "--wait-ready 5m waits for one that is starting"}
	case send.ClassConnectTimeout:
		cures = []string{"can it be reached from here? --connect-timeout gives it longer"}
	case send.ClassTotalTimeout:
		cures = []string{"it takes connections and does not answer: is it an engine, and does it still work?", "--wait-ready 5m waits for one that is starting"}
	case send.ClassTransport:
		cures = []string{"does it speak TLS, which a URL with https:// is for?"}
		if strings.HasPrefix(r.cfg.Target.URL, "https:") {
			cures = []string{"does it demand another client certificate (--cert-file, --key-file)?"}
		}
	default:
		if ctx.Err() == nil && failed.Status <= http.StatusInternalServerError {
			return nil
		}
		cures = []string{"is it still loading its model?", "--wait-ready 5m waits for it"}
	}
	if ctx.Err() != nil {
		cures = nil
	}
	if r.cfg.Target.WaitReady > 0 && len(cures) > 1 {
		cures = cures[:1]
	}
	return fmt.Errorf("engine %s: %w", r.engine(), withCures(err, cures))
}

// withCures adds to an error what to do.
func withCures(err error, cures []string) error {
	if len(cures) == 0 {
		return err
	}
	return fmt.Errorf("%w; %s", err, strings.ReplaceAll(strings.Join(cures, "; "), "?; ", "? "))
}
