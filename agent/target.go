// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package agent

// This file configures how the engine is reached, and what it is asked before the run.

import (
	"context"
	"fmt"
	"maps"
	"net/http"

	"github.com/moonloop/moonloop/agent/clock"
	"github.com/moonloop/moonloop/agent/preflight"
	"github.com/moonloop/moonloop/agent/prompt"
	"github.com/moonloop/moonloop/agent/send"
	"github.com/moonloop/moonloop/mooncake"
)

// newEngines makes the clients of the engines. They do not connect yet.
func newEngines(cfg Config, clk clock.Clock, said *notices) (*engines, error) {
	t := cfg.Target
	e := &engines{balance: t.Balance, clk: clk}
	for _, address := range t.URLs() {
		client, err := newClient(cfg, address, clk)
		if err != nil {
			return nil, err
		}
		one := &backend{url: address, client: client}
		if len(t.Further) > 0 {
			one.server = serverOf(address)
		}
		e.all = append(e.all, one)
	}
	if t.TLS != nil && t.TLS.InsecureSkipVerify {
		said.warn("the engine's certificate was not verified: anyone on the way to the engine may have read and changed everything (--insecure-skip-verify)")
	}
	return e, nil
}

// The header that the Messages API requires, with the version of the API that is used here.
const (
	versionHeader   = "Anthropic-Version"
	messagesVersion = "2023-06-01"
)

func newClient(cfg Config, address string, clk clock.Clock) (*send.Client, error) {
	t := cfg.Target
	header, keyHeader := t.Header, ""
	if cfg.Prompt.Endpoint == prompt.Messages {
		if header.Get(versionHeader) == "" {
			header = header.Clone()
			if header == nil {
				header = make(http.Header)
			}
			header.Set(versionHeader, messagesVersion)
		}
		// Anthropic, and services compatible with it, expect the key in this header. Engines, which a profile names, always expect a bearer
		// token.
		if t.Profile == "" || t.Profile == prompt.Auto {
			keyHeader = "X-Api-Key"
		}
	}
	return send.New(send.Config{
		URL: address, Header: header, APIKey: t.APIKey, KeyHeader: keyHeader, InstanceHeader: t.InstanceHeader, TLS: t.TLS, HTTP2: t.HTTP2, Retries: t.Retries,
		ConnectTimeout: min(t.ConnectTimeout, longest), FirstTokenTimeout: min(t.FirstTokenTimeout, longest),
		IdleTimeout: min(t.IdleTimeout, longest), TotalTimeout: min(t.TotalTimeout, longest),
		Connections: cfg.Schedule.Concurrency, Reuse: t.Connections, DialContext: cfg.DialContext, NoKernelStamps: t.ReadStamps,
	}, clk)
}

// ask queries each engine, and returns the findings of the first one. The others must agree with it, because any engine may get any
// request.
func (e *engines) ask(ctx context.Context, q preflight.Config, clk clock.Clock) (first preflight.Findings, err error) {
	for i, one := range e.all {
		q.URL = one.url
		if i > 0 {
			q.Note = func(string, ...any) {} // the questions to the first engine have been reported
		}
		found, err := preflight.Run(ctx, q, one.client, clk)
		if i == 0 {
			first = found
		}
		if err != nil {
			return first, err
		}
		if i > 0 {
			first.Asked = append(first.Asked, found.Asked...)
			if what := differ(first.Builder.Options(), found.Builder.Options()); what != "" {
				return first, fmt.Errorf("url %s: it differs from %s in %s, so a request would not mean the same to both: replay against each separately, or name a --model that both serve",
					mooncake.PublicName(one.url), mooncake.PublicName(e.all[0].url), what)
			}
		}
	}
	return first, nil
}

// differ describes in what the requests for two engines differ; empty = in nothing.
func differ(a, b prompt.Options) string {
	switch {
	case a.DefaultModel != b.DefaultModel:
		return fmt.Sprintf("its first model (%.64q, not %.64q)", b.DefaultModel, a.DefaultModel)
	case a.Form == prompt.Tokens:
		if a.TokenIDs != b.TokenIDs {
			return "the token ids that it has"
		}
	case a.Words.Digest() != b.Words.Digest():
		return "the words that are one token each"
	case a.Overhead != b.Overhead || a.TurnOverhead != b.TurnOverhead || !maps.Equal(a.Measured, b.Measured):
		return "the tokens that its chat template adds"
	}
	return ""
}

// questions returns the configuration of preflight. needed says that a row of the look-ahead has replies.
func questions(cfg Config, in *input, text texts, needed bool, said *notices) preflight.Config {
	t, c, info := cfg.Target, cfg.Prompt, in.stream.Info()
	form := c.Form
	// Token ids are exact with any tokenizer, so they are used if the engine accepts them and no reply must be inserted as text.
	if form == "" && c.Dataset != "" {
		form = prompt.Words
	}
	if form == "" && t.Profile.TakesTokenIDs(c.Endpoint) && info.Sessions != mooncake.SessionDelta {
		form = prompt.Tokens
	}
	return preflight.Config{
		URL: t.URL, Key: t.APIKey != "", WaitReady: t.WaitReady, TotalTimeout: t.TotalTimeout,
		Prompt: prompt.Options{
			Endpoint: c.Endpoint, Form: form, Profile: t.Profile, Model: t.Model, Stream: !c.NoStream && c.Endpoint != prompt.Embeddings,
			Seed: prompt.Seed(c.Seed), BlockSize: in.trace.BlockSize(), FineBlockSize: in.trace.FineBlockSize(), TooShort: c.TooShort, ExtraInputs: c.Extra, Priorities: c.Priorities,
			DefaultOutput: int(c.Output), OutputCap: int(c.OutputCap), Overhead: c.Overhead, Images: c.Images,
		},
		OneModel: cfg.oneModel(), CacheBlock: t.CacheBlock, Carry: c.Carry,
		Replies: needed || !info.Whole && in.trace.FineBlockSize() > 0, // a trace as fine as that comes from a capture
		Dataset: text.corpus, Tokenizer: text.counter(),
		Trace: info, Ahead: in.stream.Ahead,
		Generated:   info.Generated > 0 || !info.Whole || newWarmup(cfg.Schedule).any(), // warm-up requests are generated
		Traceparent: func(what string, n int64) string { return unrecorded(cfg.RunID+" "+what, n) },
		Warn:        said.warn, Note: said.note,
	}
}
