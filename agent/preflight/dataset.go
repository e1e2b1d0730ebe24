// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package preflight

// This file prepares prompts from a dataset's text: it has the tokens of each segment counted, and checks the sum on the engine.

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/moonloop/moonloop/agent/prompt"
	"github.com/moonloop/moonloop/agent/report"
)

// ByFile says that tokens were counted by a tokenizer file.
const ByFile = "tokenizer"

const (
	// segmentBytes is the size of the text in one question about segments: less than any model's context.
	segmentBytes = 8 << 10
	// checkedTokens is the maximum length of the prompt that checks the sum.
	checkedTokens = 3000
)

// errUncounted is the error for an engine whose tokenizer endpoint does not show the tokens of a segment.
var errUncounted = errors.New("the engine does not say how many tokens a piece of text has (/tokenize)")

// useDataset makes prompts from the dataset's text.
func (p *preflight) useDataset(ctx context.Context) error {
	c := p.Dataset
	models, by := p.models, ByTokenize
	if p.Tokenizer != nil {
		models, by = models[:1], ByFile
	}
	var tokens []int
	for _, model := range models {
		n, err := p.askSegments(ctx, model, c.Segments)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.Is(err, errUncounted) && p.Tokenizer != nil:
			return errors.New("dataset: in the tokenizer file, the words of prompts are not one token each, but on the engine they are: the file is another model's; give the tokenizer of the engine's model")
		case errors.Is(err, errUncounted):
			return fmt.Errorf("dataset: %w; give the model's tokenizer.json: --tokenizer FILE", err)
		case err != nil:
			return fmt.Errorf("dataset: %w", err)
		case tokens == nil:
			tokens = n
		}
		for i := range tokens { // segments whose number of tokens is not the same for all models are left out
			if n[i] != tokens[i] {
				tokens[i] = 0
			}
		}
	}
	passages, err := prompt.NewPassages(c.Order, c.Segments, tokens)
	if err != nil {
		return fmt.Errorf("dataset: %s: %w", c.Name, err)
	}
	p.opt.Text = passages
	if err := p.build(); err != nil {
		return err
	}
	d := &report.Dataset{
		File: c.Name, Digest: c.Digest, Texts: c.Texts, Bytes: c.Bytes, LeftOut: c.LeftOut, Tokens: passages.Tokens(), Segments: len(c.Segments),
		CountedBy: by, Invented: p.found.Builder.DescribeText().Invented,
	}
	for _, n := range tokens {
		if n < 1 || n > prompt.MaxSegmentTokens {
			d.Unused++
		}
	}
	p.found.Dataset = d
	return p.checkDataset(ctx, d)
}

// checkDataset checks the engine's count for a prompt of text. Without the template's overhead, the right count is unknown.
func (p *preflight) checkDataset(ctx context.Context, d *report.Dataset) error {
	model := p.models[0]
	over, known := p.opt.Measured[model]
	if !known {
		return nil
	}
	n := int64(checkedTokens)
	if limit := p.contextOf(model); limit > 0 {
		n = min(n, limit/2)
	}
	counted, err := p.countPrompt(ctx, model, "dataset "+model, 0, p.found.Builder.TextCheck(model, n))
	if err != nil {
		return err
	}
	d.Checked, d.Counted = n, counted-int64(over.Prompt)
	if d.Counted != d.Checked {
		p.Warn("dataset: the engine counts %d tokens for a text that should have %d; prompts are wrong by the same share", d.Counted, d.Checked)
	}
	p.Note("dataset: prompts are made of %d tokens of %s; %.1f %% of a block are invented words", d.Tokens, d.File, 100*d.Invented)
	return nil
}

// askSegments asks the engine for the tokens of segments. Between two segments is a pivot: a word that is one token.
func (p *preflight) askSegments(ctx context.Context, model string, segments []string) ([]int, error) {
	for _, ask := range p.textWays() {
		tokens, err := p.askBetween(ctx, ask, model, segments)
		if err == nil || ctx.Err() != nil || !errors.Is(err, errUncounted) {
			return tokens, err
		}
	}
	return nil, errUncounted
}

func (p *preflight) askBetween(ctx context.Context, ask asking, model string, segments []string) ([]int, error) {
	tokens := make([]int, len(segments))
	left := make([]int, len(segments)) // segments that have not been asked for
	for i := range left {
		left[i] = i
	}
	for pivot := range strings.FieldsSeq(p.opt.Words.Text(2)) {
		pivot = " " + pivot
		var batch, other []int
		size := 0
		flush := func() error {
			if len(batch) == 0 {
				return nil
			}
			var text strings.Builder
			text.WriteString(p.opt.Words.Anchor() + pivot)
			for _, i := range batch {
				text.WriteString(segments[i] + pivot)
			}
			ids, _, err := ask(ctx, model, text.String())
			if err != nil {
				return errors.Join(errUncounted, err)
			}
			if err := pieces(ids, batch, tokens); err != nil {
				return err
			}
			batch, size = batch[:0], 0
			return nil
		}
		for _, i := range left {
			if strings.Contains(segments[i], pivot) { // its tokens may look like a pivot
				other = append(other, i)
				continue
			}
			batch, size = append(batch, i), size+len(segments[i])+len(pivot)
			if size >= segmentBytes {
				if err := flush(); err != nil {
					return nil, err
				}
			}
		}
		if err := flush(); err != nil {
			return nil, err
		}
		left = other
	}
	return tokens, nil // segments that contain both pivots have 0 tokens here: they are left out
}

// pieces counts the tokens between pivots. The last token is a pivot; it must occur once more than there are segments.
func pieces(ids []uint32, batch, tokens []int) error {
	if len(ids) == 0 {
		return errUncounted
	}
	id := ids[len(ids)-1]
	first := slices.Index(ids, id)
	at, n := first, 0
	for i := first + 1; i < len(ids); i++ {
		if ids[i] != id {
			continue
		}
		if n < len(batch) {
			tokens[batch[n]] = i - at - 1
		}
		at, n = i, n+1
	}
	if n != len(batch) {
		return errUncounted
	}
	return nil
}
