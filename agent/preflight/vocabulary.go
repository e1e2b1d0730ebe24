// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package preflight

// This file finds token ids within the engine's vocabulary.

import (
	"context"
	"fmt"
	"net/http"
	"regexp"
	"time"

	"github.com/moonloop/moonloop/agent/prompt"
	"github.com/moonloop/moonloop/agent/send"
)

// vocabularyLimit is the maximum wait for a refusal.
const vocabularyLimit = 2 * time.Second

// beyondVocabulary matches the errors of engines about token ids outside their vocabulary.
var beyondVocabulary = regexp.MustCompile(`(?i)vocab|invalid tokens?\b|token.?ids?\b|out of range`)

// checkVocabulary finds token ids within the engine's vocabulary, and uses them for prompts.
func (p *preflight) checkVocabulary(ctx context.Context) error {
	ranges := prompt.TokenRanges()
	for _, ids := range ranges {
		if p.refuses(ctx, ids) {
			continue
		}
		if ids == p.opt.TokenIDs {
			return nil
		}
		p.Note("token ids: the engine's vocabulary is smaller than usual; prompts are made of the ids %d to %d", ids.First, ids.Last())
		p.opt.TokenIDs = ids
		return p.build()
	}
	least := ranges[len(ranges)-1]
	return fmt.Errorf("engine %s: it accepts no token ids from which prompts could be made, not even %d to %d: its vocabulary is smaller; --prompt=words sends words to the same endpoint, --endpoint=chat sends messages",
		p.engine(), least.First, least.Last())
}

// refuses reports whether some token ids are outside the engine's vocabulary. An engine refuses them at once, so an answer that takes
// longer is not a refusal; other failures will show in the rows.
func (p *preflight) refuses(ctx context.Context, ids prompt.TokenRange) bool {
	ctx, cancel := context.WithTimeout(ctx, vocabularyLimit)
	defer cancel()
	req := p.found.Builder.VocabularyProbe(p.found.Model, ids)
	req.Header = p.header("vocabulary", int64(ids.First))
	var x send.Exchange
	began := p.clk.Now()
	p.client.Do(ctx, &req, &x)
	p.asked(p.found.Model, x.ResponseID, began)
	e := x.Err
	return e != nil && (e.Class == send.ClassRejected || e.Status == http.StatusBadRequest || e.Status == http.StatusUnprocessableEntity) &&
		beyondVocabulary.MatchString(e.Message)
}
