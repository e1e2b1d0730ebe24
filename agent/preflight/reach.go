// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package preflight

// This file waits for the engine: until it can be reached, and until it is ready.

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/moonloop/moonloop/agent/send"
)

// anyModel stands for every model that the engine does not list.
const anyModel = ""

// The pauses between two checks of an engine that is not ready, and the time between two messages about it.
const (
	firstPause = 250 * time.Millisecond
	longPause  = 2 * time.Second
	tellEvery  = 5 * time.Second
)

// reach checks whether the engine can be reached, and returns the models that it lists. It waits for an engine that may become ready, as
// long as the configuration says.
func (p *preflight) reach(ctx context.Context) (models []string, err error) {
	if p.WaitReady == 0 {
		_, stop := p.announce("its list of models", p.bound(send.LookLimit))
		defer stop()
		return p.listModels(ctx)
	}
	within, cancel := context.WithTimeout(ctx, p.WaitReady)
	defer cancel()
	why, stop := p.announce("it to be ready", p.WaitReady)
	defer stop()
	began := p.clk.Now()
	var last error
	for pause := firstPause; ; pause = min(2*pause, longPause) {
		if models, err = p.listModels(within); !loading(err) {
			// Some engines list their models while they load them, but report their health as not ready.
			if health := p.client.Get(within, "/health", nil); unavailable(health) {
				err = health
			}
		}
		switch {
		case ctx.Err() != nil:
			return nil, err
		case !loading(err):
			stop()
			if last != nil {
				p.Note("engine %s: ready after %v", p.engine(), (p.clk.Now() - began).Round(100*time.Millisecond))
			}
			return models, err
		case within.Err() != nil:
			return nil, fmt.Errorf("not ready within %v (--wait-ready): %w", p.WaitReady, cmp.Or(last, err))
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
func (p *preflight) listModels(ctx context.Context) (names []string, err error) {
	var list struct {
		Data []struct {
			ID          string
			OwnedBy     string          `json:"owned_by"`
			MaxModelLen int64           `json:"max_model_len"` // of vLLM and SGLang
			Meta        json.RawMessage // of llama.cpp; other engines may mean something else by it
		}
	}
	err = p.client.Get(ctx, "/v1/models", &list)
	for _, m := range list.Data {
		names = append(names, m.ID)
		p.contexts[m.ID] = m.MaxModelLen
		if m.OwnedBy != "llamacpp" {
			continue
		}
		p.contexts[m.ID] = p.slotContext(ctx, m.Meta)
		if len(list.Data) == 1 { // it serves its only model under every name
			p.contexts[anyModel] = p.contexts[m.ID]
		}
	}
	return names, err
}

// slotContext returns the maximum tokens of a request to llama.cpp: the context of a slot, which is a part of the whole one unless all slots
// share it; 0 = unknown. Older versions describe the model without it; how long a context the model was trained for is no bound.
func (p *preflight) slotContext(ctx context.Context, meta json.RawMessage) int64 {
	type slot struct {
		Context int64 `json:"n_ctx"`
	}
	var stated slot
	if json.Unmarshal(meta, &stated) != nil || stated.Context > 0 { // an error: the model is not loaded yet
		return stated.Context
	}
	var props struct {
		Slot slot `json:"default_generation_settings"`
	}
	if p.client.Get(ctx, "/props", &props) != nil {
		return 0
	}
	return props.Slot.Context
}

// contextOf returns the maximum tokens of a request to a model; 0 = unknown.
func (p *preflight) contextOf(model string) int64 {
	return cmp.Or(p.contexts[model], p.contexts[anyModel])
}

// loading reports whether an engine that fails with this error may be ready later.
func loading(err error) bool {
	switch f := failure(err); f.Class {
	case send.ClassDNS, send.ClassConnect, send.ClassConnectTimeout, send.ClassTotalTimeout, send.ClassTransport, send.ClassRateLimited:
		return true
	default:
		return f.Status/100 == 5
	}
}

// unavailable reports whether an engine says that it is not ready, or does not answer at all.
func unavailable(err error) bool {
	f := failure(err)
	return f.Class == send.ClassTotalTimeout || f.Status == http.StatusServiceUnavailable
}

// bound returns the time limit of a question; see [send.Client.Get].
func (p *preflight) bound(limit time.Duration) time.Duration {
	return min(limit, cmp.Or(p.TotalTimeout, limit))
}

// announce reports every few seconds what the run waits for, and the reason if it is known, until stop is called. It reports the first
// reason at once.
func (p *preflight) announce(what string, limit time.Duration) (why func(error), stop func()) {
	var mu sync.Mutex
	reason := ""
	began := p.clk.Now()
	line := func() {
		mu.Lock()
		defer mu.Unlock()
		p.Note("engine %s: waiting for %s, %v of at most %v%s", p.engine(), what, (p.clk.Now() - began).Round(time.Second), limit, reason)
	}
	done := make(chan struct{})
	var lines sync.WaitGroup
	lines.Go(func() {
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
		lines.Wait()
	})
}
