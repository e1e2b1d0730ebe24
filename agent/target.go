// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package agent

// This file says how the engine is reached, and what it is asked before the run.

import (
	"github.com/moonloop/moonloop/agent/clock"
	"github.com/moonloop/moonloop/agent/preflight"
	"github.com/moonloop/moonloop/agent/prompt"
	"github.com/moonloop/moonloop/agent/send"
	"github.com/moonloop/moonloop/mooncake"
)

// newClient makes the client of the engine. It connects to nothing yet.
func newClient(cfg Config, clk clock.Clock, said *notices) (*send.Client, error) {
	t := cfg.Target
	client, err := send.New(send.Config{
		URL: t.URL, Header: t.Header, APIKey: t.APIKey, TLS: t.TLS, HTTP2: t.HTTP2, Retries: t.Retries,
		ConnectTimeout: min(t.ConnectTimeout, longest), FirstTokenTimeout: min(t.FirstTokenTimeout, longest),
		IdleTimeout: min(t.IdleTimeout, longest), TotalTimeout: min(t.TotalTimeout, longest),
		Connections: cfg.Schedule.Concurrency, DialContext: cfg.DialContext, NoKernelStamps: t.ReadStamps,
	}, clk)
	if err == nil && t.TLS != nil && t.TLS.InsecureSkipVerify {
		said.warn("the engine's certificate was not verified: whoever stands between may have read and changed everything (--insecure-skip-verify)")
	}
	return client, err
}

// questions is what the engine is to be asked. needed says that a row of the look-ahead has replies.
func questions(cfg Config, in *input, text texts, needed bool, said *notices) preflight.Config {
	t, c, info := cfg.Target, cfg.Prompt, in.stream.Info()
	form := c.Form
	// Token ids are exact with any tokenizer, so they go wherever the engine takes them and no reply must be carried forward as text.
	if form == "" && c.Dataset != "" {
		form = prompt.Words
	}
	if form == "" && t.Profile.TakesTokenIDs(c.Endpoint) && info.Sessions != mooncake.SessionDelta {
		form = prompt.Tokens
	}
	return preflight.Config{
		URL: t.URL, Key: t.APIKey != "", WaitReady: t.WaitReady, TotalTimeout: t.TotalTimeout,
		Prompt: prompt.Options{
			Endpoint: c.Endpoint, Form: form, Profile: t.Profile, Model: t.Model, Stream: !c.NoStream,
			Seed: prompt.Seed(c.Seed), BlockSize: in.trace.BlockSize(), FineBlockSize: in.trace.FineBlockSize(), TooShort: c.TooShort, ExtraInputs: c.Extra,
			DefaultOutput: int(c.Output), OutputCap: int(c.OutputCap), Overhead: c.Overhead,
		},
		OneModel: cfg.oneModel(), CacheBlock: t.CacheBlock, Carry: c.Carry,
		Replies: needed || !info.Whole && in.trace.FineBlockSize() > 0, // a trace as fine as that comes from a capture
		Dataset: text.corpus, Tokenizer: text.counter(),
		Trace: info, Ahead: in.stream.Ahead,
		Generated:   info.Generated > 0 || !info.Whole || cfg.Schedule.Warmup > 0, // warm-up requests are
		Traceparent: func(what string, n int64) string { return unrecorded(cfg.RunID+" "+what, n) },
		Warn:        said.warn, Note: said.note,
	}
}
