// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package preflight

// This file gives advice for an engine that does not answer as expected.

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/moonloop/moonloop/agent/prompt"
	"github.com/moonloop/moonloop/agent/send"
)

// Advice for an engine that is starting, or loading its model.
const (
	waitStarting = "--wait-ready 5m waits for one that is starting"
	stillLoading = "is it still loading its model?"
	waitLoading  = "--wait-ready 5m waits for it"
)

// noWay are the classes of failure in which the engine was not reached at all, with advice.
var noWay = map[send.Class][]string{
	send.ClassTLS:            nil, // the message has the advice
	send.ClassDNS:            {"is the name in the URL right?"},
	send.ClassConnect:        {"is the engine running there, and is the URL right?", waitStarting},
	send.ClassConnectTimeout: {"can it be reached from here? --connect-timeout allows more time"},
	send.ClassTotalTimeout:   {"it accepts connections but does not answer: is it an engine, and does it still work?", waitStarting},
	send.ClassTransport:      {"does it speak TLS? then begin the URL with https://"},
}

// unreachable returns an error with advice if the engine could not be reached; nil if the engine has answered. An error in an answer about
// the list of models may concern only the list.
func (p *preflight) unreachable(ctx context.Context, err error) error {
	f := failure(err)
	cures, unreached := noWay[f.Class]
	switch {
	case f.Class == "":
		return nil
	case ctx.Err() != nil:
		cures = nil
	case !unreached && f.Status <= http.StatusInternalServerError:
		return nil
	case !unreached:
		cures = []string{stillLoading, waitLoading}
	case f.Class == send.ClassTransport && strings.HasPrefix(p.URL, "https:"):
		cures = []string{"does it demand another client certificate (--cert-file, --key-file)?"}
	}
	if p.WaitReady > 0 && len(cures) > 1 {
		cures = cures[:1]
	}
	return fmt.Errorf("engine %s: %w", p.engine(), withCures(err, cures...))
}

// withListCures adds advice to the error of a list of models.
func (p *preflight) withListCures(err error) error {
	switch f := failure(err); {
	case wantsKey(f):
		return withCures(err, p.keyCure())
	case f.Class == "", f.Status/100 == 3, errors.Is(err, send.ErrPage): // the message has the advice
		return err
	case p.Prompt.Model == "":
		return withCures(err, "is the URL an OpenAI-compatible engine's base URL? If it is, name the model with --model")
	}
	return withCures(err, "is the URL an OpenAI-compatible engine's base URL?")
}

// calibrationError describes what was requested of the engine, the result, and advice.
func (p *preflight) calibrationError(ctx context.Context, path, model string, err error) error {
	switch f := failure(err); {
	case ctx.Err() != nil, f.Class == "":
	case wantsKey(f):
		err = withCures(err, p.keyCure())
	case f.Status == http.StatusNotFound:
		err = withCures(err, "does the engine serve this model under this path? --model NAME sends every row to another one")
	case f.Status/100 == 3, f.Class == send.ClassProtocol: // the message has the advice
	case f.Status == http.StatusServiceUnavailable:
		err = withCures(err, stillLoading, waitLoading)
	default:
		err = withCures(err, "--overhead N, the tokens that the engine's chat template adds to a prompt, skips calibration")
	}
	return fmt.Errorf("calibration: engine %s: POST %s, %.64q, a short prompt and 1 token of output: %w", p.engine(), path, model, err)
}

// failure returns how an exchange failed; the zero Error for other errors, and for none.
func failure(err error) (f send.Error) {
	if failed, ok := errors.AsType[*send.Error](err); ok {
		f = *failed
	}
	return f
}

func wantsKey(f send.Error) bool {
	return f.Status == http.StatusUnauthorized || f.Status == http.StatusForbidden
}

// keyCure returns advice for an engine that requires a key.
func (p *preflight) keyCure() string {
	if p.Key && p.Prompt.Endpoint == prompt.Messages && cmp.Or(p.Prompt.Profile, prompt.Auto) == prompt.Auto {
		return "is the API key right? it was sent as x-api-key; for an engine that wants a bearer key, name its --profile, such as vllm"
	}
	if p.Key {
		return "is the API key right? --api-key-env or --api-key-file gives it"
	}
	return "it wants an API key: --api-key-env or --api-key-file gives one"
}

// withCures adds advice to an error.
func withCures(err error, cures ...string) error {
	if len(cures) == 0 {
		return err
	}
	return fmt.Errorf("%w; %s", err, strings.ReplaceAll(strings.Join(cures, "; "), "?; ", "? "))
}
