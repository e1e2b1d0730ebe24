// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"

	"github.com/moonloop/moonloop/agent/measure"
	"github.com/moonloop/moonloop/agent/prompt"
	"github.com/moonloop/moonloop/agent/send"
	"github.com/moonloop/moonloop/mooncake"
)

// chooseModel returns the model to ask for: the configured one, else the first that the engine names. It also shows,
// before anything is timed, whether the engine can be reached at all.
func (r *run) chooseModel(ctx context.Context) (string, error) {
	var list struct {
		Data []struct{ ID string }
	}
	err := r.client.Get(ctx, "/v1/models", &list)
	engine := mooncake.PublicName(r.cfg.Target.URL)
	failed, _ := errors.AsType[*send.Error](err)
	switch {
	case ctx.Err() == nil && failed != nil && failed.Class == send.ClassTransport:
		cure := "does it speak TLS, which a URL with https:// is for?"
		if strings.HasPrefix(r.cfg.Target.URL, "https:") {
			cure = "does it demand another client certificate (--cert-file, --key-file)?"
		}
		return "", fmt.Errorf("engine %s: %w; %s", engine, err, cure)
	case ctx.Err() != nil:
		return "", fmt.Errorf("engine %s: %w", engine, err)
	case failed != nil && unspoken(failed.Class):
		return "", fmt.Errorf("engine %s: %w%s", engine, err, cures[failed.Class])
	case r.cfg.Target.Model != "":
		if failed != nil && failed.Status == http.StatusUnauthorized { // some list no models for keys that may use them
			r.warn("engine %s does not list its models to this API key (%v); is the key right? --api-key-env or --api-key-file gives it", engine, err)
		}
		return r.cfg.Target.Model, nil // an engine need not list its models to serve one
	case err != nil:
		return "", fmt.Errorf("engine %s: list its models: %w; is the URL an OpenAI-compatible engine's base URL? If it is, name the model with --model", engine, err)
	case len(list.Data) == 0:
		return "", fmt.Errorf("engine %s names no model; name one with --model", engine)
	}
	return list.Data[0].ID, nil
}

// cures are, by class of failure, what to do where nothing can be said to an engine: there is no connection to it, or no
// agreement on how to speak. What else can go wrong with the list of models can be the list's own fault.
var cures = map[send.Class]string{
	send.ClassDNS:            "; is the name in the URL right?",
	send.ClassConnect:        "; does the engine run there, and is the URL right?",
	send.ClassConnectTimeout: "; can it be reached from here? --connect-timeout gives it longer",
	send.ClassTLS:            "", // its message says it
}

func unspoken(class send.Class) bool {
	_, found := cures[class]
	return found
}

// calibrate learns from two requests, three where sessions are new turns, how many tokens the engine adds to a
// prompt, and proves that a generated word costs it exactly one.
func (r *run) calibrate(ctx context.Context) (overhead, turnOverhead int, err error) {
	turns := r.stream.Info().Sessions == mooncake.SessionDelta && r.opt.Endpoint == prompt.Chat
	var counted []int64
	for _, req := range r.builder.Calibration(turns) {
		var reply struct {
			Usage *struct {
				PromptTokens int64 `json:"prompt_tokens"`
			}
		}
		if err := r.client.JSON(ctx, req.Path, req.Body, &reply); err != nil {
			return 0, 0, fmt.Errorf("calibration: %w", err)
		}
		if reply.Usage == nil {
			return 0, 0, errors.New("calibration: the engine counts no tokens (no usage in its reply); state its template's overhead with --overhead, or send token ids: --endpoint=completions --prompt=tokens")
		}
		counted = append(counted, reply.Usage.PromptTokens)
	}
	if overhead, err = prompt.Solve(counted[0], counted[1]); err != nil {
		return 0, 0, fmt.Errorf("calibration: %w", err)
	}
	if turns {
		if turnOverhead, err = prompt.SolveTurn(counted[0], counted[2]); err != nil {
			return 0, 0, fmt.Errorf("calibration: %w", err)
		}
	}
	return overhead, turnOverhead, nil
}

// maxWarming bounds the warm-up requests that are under way at once, whatever cap the run has.
const maxWarming = 1024

// warmUp sends requests with the shapes of the trace's first rows and none of their blocks, so that connections and
// the engine are warm and its cache knows nothing of the trace. What becomes of them is in no figure; a failure is
// a warning. An interrupt ends it.
func (r *run) warmUp(ctx context.Context) {
	n := r.cfg.Schedule.Warmup
	if n == 0 {
		return
	}
	shapes := r.stream.Shapes(n)
	limit := make(chan struct{}, min(max(1, r.cfg.Schedule.Concurrency), maxWarming))
	var wg sync.WaitGroup
	var mu sync.Mutex
	failed, example := 0, ""
	for i := range n {
		row := shapes[i%len(shapes)]
		select {
		case limit <- struct{}{}:
		case <-ctx.Done():
		}
		if ctx.Err() != nil {
			break
		}
		wg.Go(func() {
			defer func() { <-limit }()
			// Rows without ids get content of their own by index; the trace has no negative ones.
			rec := &measure.Record{Row: row, Index: int64(-1 - i)}
			r.exchange(ctx, rec, nil, "", atOnce(r.clk.Now()))
			rec.Exchange.Release()
			if rec.Exchange.Err != nil {
				mu.Lock()
				defer mu.Unlock()
				failed++
				example = rec.Exchange.Err.Error()
			}
		})
	}
	wg.Wait()
	if failed > 0 && ctx.Err() == nil {
		r.warn("%d of %d warm-up requests failed, such as: %s", failed, n, example)
	}
}

// operation is the GenAI conventions' name for what an endpoint does.
func operation(e prompt.Endpoint) string {
	if e == prompt.Completions {
		return "text_completion"
	}
	return "chat"
}

// hostPort splits a URL that Validate has accepted.
func hostPort(base string) (host string, port int) {
	u, err := url.Parse(base)
	if err != nil {
		return "", 0
	}
	port, err = strconv.Atoi(u.Port())
	if err != nil {
		port = map[string]int{"http": 80, "https": 443}[u.Scheme]
	}
	return u.Hostname(), port
}
