// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package preflight

// This file finds words that are one token each on an engine for which the usual ones are not.

import (
	"context"
	"errors"
	"fmt"
	"math/bits"
	"net/http"
	"slices"
	"strings"

	"github.com/moonloop/moonloop/agent/prompt"
	"github.com/moonloop/moonloop/agent/report"
)

// How the words of a run were found; see report.Words.
const (
	Usual      = "usual"     // the usual ones, one token each here
	Unchecked  = "unchecked" // the usual ones, or none, unchecked
	ByTokenize = "tokenize"  // by the engine's tokenizer
	ByUsage    = "usage"     // by its counts of prompts
)

// errNoWords is the error of a method that found no words for prompts.
var errNoWords = errors.New("too few words are one token each")

// words finds the words of prompts on one model. A unit is a word with its leading space, if any; every prompt begins with an anchor.
type words struct {
	// ask returns the tokens of a text; count returns the number of tokens of a prompt, including those around the text. One of the two
	// functions is enough.
	ask   func(text string) ([]uint32, error)
	count func(text string) (int64, error)
	text  func(ids []uint32) (string, error) // of tokens; nil: the engine's own words are not needed

	all    bool   // words of every length are needed, because another model may accept only some of them
	asked  int    // requests
	known  uint32 // the greatest token id that the engine has shown
	around int64  // tokens around the units of a prompt, in its count
	err    error  // of the first question that failed; later questions are not asked
}

// anchors are candidates for the first word of prompts. A letter is a token in every vocabulary.
var anchors = []string{prompt.CommonLexicon().Anchor(), "a"}

// findWords looks with one method for words that are one token each on all models, uses them for prompts, and records the method.
func (p *preflight) findWords(ctx context.Context, way string, models []string) error {
	said := report.Words{Found: way}
	pool, anchor := prompt.Candidates(), ""
	for i, model := range models {
		good, first, asked, err := p.sift(ctx, way, model, pool, len(models) > 1)
		said.Requests += asked
		switch {
		case failure(err).Status == http.StatusNotFound && len(models) > i+1 && ctx.Err() == nil:
			continue // an unknown model; the calibration reports it
		case err != nil:
			return err
		case anchor != anchors[1]:
			anchor = first
		}
		pool = good
	}
	least := prompt.MinWords(p.opt.BlockSize)
	if p.opt.FineBlockSize > 0 {
		least = max(least, prompt.MinWords(p.opt.FineBlockSize))
	}
	l, err := lexicon(pool, anchor, least)
	if err != nil {
		return err
	}
	p.opt.Words, p.found.Words = l, said
	return p.build()
}

// sift returns the units of a pool that are one token each on a model, an anchor, and the number of requests that this needed.
func (p *preflight) sift(ctx context.Context, way, model string, pool []string, several bool) (good []string, anchor string, asked int, err error) {
	if way == ByUsage {
		w := &words{all: several}
		w.count = func(text string) (int64, error) {
			return p.countPrompt(ctx, model, "words "+model, int64(w.asked), p.found.Builder.TextProbe(model, text))
		}
		good, anchor, err = w.byCounts(pool)
		return good, anchor, w.asked, err
	}
	for _, ask := range []asking{p.askPrompt, p.askContent} {
		w := &words{ask: func(text string) ([]uint32, error) {
			ids, _, err := ask(ctx, model, text)
			return ids, err
		}}
		if !several { // the words of one vocabulary are not those of another
			w.text = func(ids []uint32) (string, error) { return p.askDetokenize(ctx, model, ids) }
		}
		good, anchor, err = w.byTokens(pool)
		if asked += w.asked; err == nil || ctx.Err() != nil {
			break
		}
	}
	return good, anchor, asked, err
}

// byKind groups units by their leading space and length, in their order.
func byKind(pool []string) (kinds [][]string) {
	for _, unit := range pool {
		i := slices.IndexFunc(kinds, func(k []string) bool { return len(k[0]) == len(unit) && (k[0][0] == ' ') == (unit[0] == ' ') })
		if i < 0 {
			i, kinds = len(kinds), append(kinds, nil)
		}
		kinds[i] = append(kinds[i], unit)
	}
	return kinds
}

// lexicon makes a lexicon from the largest group of units, or the first of several largest ones. It needs at least this many units.
func lexicon(units []string, anchor string, least int) (*prompt.Lexicon, error) {
	var best []string
	for _, k := range byKind(units) {
		if n := min(len(k), prompt.MostWords); n > len(best) && (k[0][0] == ' ' || len(best) < least) {
			best = k[:n]
		}
	}
	if len(best) < least {
		return nil, fmt.Errorf("%w: %d are, at least %d are needed", errNoWords, len(best), least)
	}
	space := best[0][:strings.LastIndex(best[0], " ")+1]
	var list []string
	for _, unit := range best[:1<<(bits.Len(uint(len(best)))-1)] {
		list = append(list, strings.TrimPrefix(unit, space))
	}
	l, err := prompt.NewLexicon(anchor, space, list)
	if err != nil {
		return nil, fmt.Errorf("words found on the engine: %w", err)
	}
	return l, nil
}
