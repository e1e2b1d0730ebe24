// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"github.com/moonloop/moonloop/agent/measure"
	"github.com/moonloop/moonloop/agent/send"
)

// compare holds what a row asked for beside what the server counted. Of its counts it takes what can be: no server has more of a
// prompt cached than there is.
func compare(r *measure.Record) {
	if u := &r.Exchange.Usage; u.Prompt > send.Unknown && u.Cached > u.Prompt {
		u.Cached, r.CachedRefused = send.Unknown, true
	}
	if r.Outcome != measure.Served {
		return
	}
	// A row that was sent longer than it asks (too short for the template) differs from its row, and says so.
	if n := r.Row.InputLength; n.Set && r.PromptTokens > 0 {
		r.Prompt = agree(r.Exchange.Usage.Prompt, n.V)
	}
	if n := r.OutputTokensAsked; n > 0 {
		r.Output = agree(r.Exchange.Usage.Completion, n)
	}
}

func agree(served, asked int64) measure.Agreement {
	switch served {
	case send.Unknown:
		return measure.AgreeUnknown
	case asked:
		return measure.AgreeEqual
	}
	return measure.AgreeDifferent
}
