// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package decode

import (
	"github.com/moonloop/moonloop/capture"
	"github.com/moonloop/moonloop/genai"
	"github.com/moonloop/moonloop/mooncake"
)

// raw fills in what can be told of a request that nobody annotated: the exporter has no key, so nothing of its prompt
// and no session.
func (w *worker) raw(g *genai.Record) {
	r := &w.inference
	r.Failed = r.Failed || g.ErrorType != ""
	if !g.UsageDoubtful {
		r.InputTokens = mooncake.Opt[int64](g.InputTokens)
		r.OutputTokens = mooncake.Opt[int64](g.OutputTokens)
		r.CachedTokens = mooncake.Opt[int64](g.CachedTokens)
	}
	if model, err := capture.ParseName(g.Model()); err == nil {
		r.Model = model
	} else {
		w.counts.invalid("gen_ai.request.model")
	}
	r.Response = capture.ResponseOf(g.ResponseID)
	if t := g.TimeToFirstToken; t.Set && t.V <= maxSeconds {
		if at := r.Start + int64(t.V*1e9); at <= r.End {
			r.FirstToken = mooncake.Some(at)
		}
	}
}
