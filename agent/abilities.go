// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package agent

// This file asks the engine, before anything is timed, what it can take, and says what of the trace it cannot: a row that is
// bound to fail should not be found out after an hour.

import (
	"context"
	"fmt"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/moonloop/moonloop/agent/prompt"
	"github.com/moonloop/moonloop/agent/send"
	"github.com/moonloop/moonloop/mooncake"
)

const (
	// vocabularyLimit bounds the wait for a refusal.
	vocabularyLimit = 2 * time.Second
	// metricsLimit bounds the look at the engine's metrics.
	metricsLimit = 5 * time.Second
	// maxLines bounds the rows that a message names.
	maxLines = 3
)

// tooLong warns of the rows of the look-ahead that need more tokens than the engine's context has.
func (r *run) tooLong() {
	n := 0
	var first []string
	var least int64
	r.stream.Ahead(func(line int64, row *mooncake.Row) bool {
		limit := r.contexts[r.builder.Model(row)]
		if limit == 0 || !row.InputLength.Set || row.Kind() != mooncake.KindLength {
			return true
		}
		out := r.builder.OutputTokens(row)
		if row.InputLength.V+out <= limit {
			return true
		}
		if n++; len(first) < maxLines {
			first = append(first, fmt.Sprintf("line %d: %d + %d", line, row.InputLength.V, out))
		}
		if least == 0 || limit < least {
			least = limit
		}
		return true
	})
	if n == 0 {
		return
	}
	rows := "rows need"
	if n == 1 {
		rows = "row needs"
	}
	within := ""
	if info := r.stream.Info(); !info.Whole {
		within = fmt.Sprintf(" of the first %d", info.Rows)
	}
	r.warn("%d%s %s more tokens than the engine's context of %d has (max_model_len), prompt and reply together (%s): the engine will refuse them or cut their replies; "+
		"serve the model with a longer context, or shorten the replies with --max-output-length", n, within, rows, least, strings.Join(first, "; "))
}

// beyondVocabulary matches what engines say of token ids that they do not have.
var beyondVocabulary = regexp.MustCompile(`(?i)vocab|invalid tokens?\b|token.?ids?\b|out of range`)

// checkVocabulary finds token ids that the engine's vocabulary has, and has prompts made of them.
func (r *run) checkVocabulary(ctx context.Context) error {
	ranges := prompt.TokenRanges()
	for _, ids := range ranges {
		if r.refuses(ctx, ids) {
			continue
		}
		if ids != r.opt.TokenIDs {
			r.note("token ids: the engine's vocabulary is smaller than usual; prompts are made of the ids %d to %d", ids.First, ids.Last())
			r.opt.TokenIDs = ids
			return r.build()
		}
		return nil
	}
	least := ranges[len(ranges)-1]
	return fmt.Errorf("engine %s: it takes no token ids that prompts could be made of, not even %d to %d: its vocabulary has fewer; --prompt=words sends words to the same endpoint, --endpoint=chat sends messages",
		r.engine(), least.First, least.Last())
}

// refuses reports whether the engine's vocabulary lacks some token ids. An engine refuses them before it does anything, so whatever
// takes longer is no refusal; of every other failure the rows tell.
func (r *run) refuses(ctx context.Context, ids prompt.TokenRange) bool {
	ctx, cancel := context.WithTimeout(ctx, vocabularyLimit)
	defer cancel()
	req := r.builder.VocabularyProbe(r.mainModel(), ids)
	req.Header = http.Header{"Traceparent": {unrecorded(r.cfg.RunID+" vocabulary", int64(ids.First))}}
	var x send.Exchange
	began := r.clk.Now()
	r.client.Do(ctx, &req, &x)
	r.asked(r.mainModel(), x.ResponseID, began)
	said := ""
	if e := x.Err; e != nil && (e.Class == send.ClassRejected || e.Status == http.StatusBadRequest || e.Status == http.StatusUnprocessableEntity) {
		said = e.Message
	}
	return beyondVocabulary.MatchString(said)
}

// blockInMetrics matches the block size in vLLM's metrics.
var blockInMetrics = regexp.MustCompile(`(?m)^vllm:cache_config_info\{[^\n]*\bblock_size="(\d+)"`)

// askBlockSize asks the engine for the size of its cache's blocks; 0 where it does not say.
func (r *run) askBlockSize(ctx context.Context) int {
	ctx, cancel := context.WithTimeout(ctx, metricsLimit)
	defer cancel()
	var text []byte
	if err := r.client.Get(ctx, "/metrics", &text); err != nil {
		return 0 // nothing depends on it but the prediction
	}
	m := blockInMetrics.FindSubmatch(text)
	if m == nil {
		return 0
	}
	n, err := strconv.Atoi(string(m[1]))
	if err != nil || n > mooncake.MaxBlockSize {
		return 0
	}
	return n
}
