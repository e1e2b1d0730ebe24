// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package agent

// This file finds words that are one token each on an engine where the usual ones are not.

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/bits"
	"net/http"
	"slices"
	"strings"

	"github.com/moonloop/moonloop/agent/prompt"
	"github.com/moonloop/moonloop/agent/report"
	"github.com/moonloop/moonloop/agent/send"
)

const (
	// maxProbes bounds the requests that look for words by the engine's count of a prompt, for each model.
	maxProbes = 64
	// enoughProbed is the number of words with which such a look ends.
	enoughProbed = 32
	// maxOwn bounds the token ids that an engine is asked the text of.
	maxOwn = 8192
	// firstOwn is where words begin in a vocabulary: bytes and control tokens come before them.
	firstOwn = 256
)

// How the words of a run were found; see report.Words.
const (
	wordsUsual     = "usual"
	wordsUnchecked = "unchecked"
	byTokenize     = "tokenize"
	byUsage        = "usage"
)

// errNoWords says that a way found nothing that a prompt could be made of.
var errNoWords = errors.New("too few words are one token each")

// words finds the words of prompts on one model. A unit is a word with what stands before it; every prompt begins with an anchor.
type words struct {
	// ask returns the tokens of a text, count the number of those of a prompt, with what stands around it. One of them is enough.
	ask   func(text string) ([]uint32, error)
	count func(text string) (int64, error)
	text  func(ids []uint32) (string, error) // of tokens; nil: the engine's own words are not wanted

	all   bool   // words of every length are wanted, since another model may take some of them only
	asked int    // requests
	known uint32 // the greatest token id that the engine has named
}

// anchors are the first words of prompts that may be tried. A letter is a token in every vocabulary.
var anchors = []string{prompt.CommonLexicon().Anchor(), "a"}

// pivots are units that no candidate begins with or is: between two of them, the tokens of a candidate can be told apart.
var pivots = []string{" A", " .", ".", "\n"}

// byTokens returns the units of a pool, and of the engine's own vocabulary, that are one token each by the engine's tokenizer, and an
// anchor.
func (w *words) byTokens(pool []string) (good []string, anchor string, err error) {
	const n = 9
	for _, pivot := range pivots {
		ids, err := w.tokens(anchors[0] + strings.Repeat(pivot, n))
		switch {
		case err != nil:
			return nil, "", err
		case len(ids) == 0: // not the engine's way to be asked
			return nil, "", errNoWords
		case len(ids) < n, slices.ContainsFunc(ids[len(ids)-n+1:], func(id uint32) bool { return id != ids[len(ids)-1] }):
			continue // the pivot is not one token
		}
		good, err = w.around(pool, pivot, ids[len(ids)-1])
		switch {
		case errors.Is(err, errNoWords):
			continue
		case err != nil:
			return nil, "", err
		case len(ids) == 1+n:
			return good, anchors[0], nil
		}
		other, err := w.tokens(anchors[1] + strings.Repeat(pivot, n))
		if err == nil && len(other) < len(ids) {
			return good, anchors[1], nil
		}
		return good, anchors[0], err
	}
	return nil, "", errNoWords
}

// around returns the units that are one token each, by a pivot whose token is known.
func (w *words) around(pool []string, pivot string, id uint32) (good []string, err error) {
	spaced, bare := bySpace(pool)
	if good, err = w.between(spaced, pivot, id); err != nil {
		return nil, err
	}
	if own, err := w.between(w.own(spaced), pivot, id); err == nil {
		good = append(good, own...)
	}
	if len(good) >= prompt.LeastWords || len(bare) == 0 {
		return good, nil
	}
	// Letters alone are good where none of them merge.
	once, err := w.tokens(anchors[0] + strings.Join(bare, ""))
	if err != nil {
		return nil, err
	}
	twice, err := w.tokens(anchors[0] + strings.Repeat(strings.Join(bare, ""), 2))
	if len(twice)-len(once) == len(bare) {
		good = append(good, bare...)
	}
	return good, err
}

// tokens asks for the tokens of a text.
func (w *words) tokens(text string) ([]uint32, error) {
	w.asked++
	ids, err := w.ask(text)
	for _, id := range ids {
		w.known = max(w.known, id)
	}
	return ids, err
}

// between returns the units that are one token between two pivots.
func (w *words) between(pool []string, pivot string, id uint32) (good []string, err error) {
	if len(pool) == 0 {
		return nil, nil
	}
	ids, err := w.tokens(anchors[0] + pivot + strings.Join(pool, pivot) + pivot)
	if err != nil {
		return nil, err
	}
	var lengths []int
	last := -1
	for i, got := range ids {
		if got != id {
			continue
		}
		if last >= 0 {
			lengths = append(lengths, i-last-1)
		}
		last = i
	}
	if len(lengths) != len(pool) {
		return nil, errNoWords
	}
	for i, n := range lengths {
		if n == 1 {
			good = append(good, pool[i])
		}
	}
	return good, nil
}

// own returns words of the engine's own vocabulary that are not in the pool, as far as it says them. Only ids below one that it has
// named are asked about: nobody knows what becomes of an engine that is asked about others.
func (w *words) own(pool []string) (more []string) {
	var ids []uint32
	for id := uint32(firstOwn); id < w.known && len(ids) < maxOwn; id++ {
		ids = append(ids, id)
	}
	if len(ids) == 0 || w.text == nil {
		return nil
	}
	w.asked++
	text, err := w.text(ids)
	if err != nil {
		return nil // what the pool has must do
	}
	seen := make(map[string]bool, len(pool))
	for _, unit := range pool {
		seen[unit] = true
	}
	for word := range strings.FieldsSeq(text) {
		unit := " " + word
		if len(word) <= prompt.MostLetters && !seen[unit] && !strings.ContainsFunc(word, func(c rune) bool { return c < 'a' || c > 'z' }) {
			more = append(more, unit)
			seen[unit] = true
		}
	}
	return more
}

// bySpace returns the units with a space before the word, and those without.
func bySpace(pool []string) (spaced, bare []string) {
	for _, unit := range pool {
		if strings.HasPrefix(unit, " ") {
			spaced = append(spaced, unit)
		} else {
			bare = append(bare, unit)
		}
	}
	return spaced, bare
}

// byCounts returns units of a pool that are one token each, as far as some counts of prompts tell, and an anchor. A prompt of n units
// has n tokens more than none if each is one.
func (w *words) byCounts(pool []string) (good []string, anchor string, err error) {
	// What stands around the units: of a first group, once costs as much more than that as twice costs more than once.
	first := slices.Collect(slices.Chunk(pool, 16))[0]
	once, err := w.cost(anchors[0], first)
	if err != nil {
		return nil, "", err
	}
	twice, err := w.cost(anchors[0], slices.Concat(first, first))
	if err != nil {
		return nil, "", err
	}
	base := 2*once - twice
	excess := func(units []string) (int64, error) {
		n, err := w.cost(anchors[0], units)
		return n - base - int64(len(units)), err
	}
	kinds := make([]kind, 0, 8)
	for _, units := range byKind(pool) {
		extra, err := excess(units)
		if err != nil {
			return nil, "", err
		}
		kinds = append(kinds, kind{units, extra})
	}
	slices.SortStableFunc(kinds, kind.compare)
	for _, k := range kinds {
		// The kind that promises most gets most of what may be asked.
		found, err := w.split(k, w.asked+(maxProbes-1-w.asked)*2/3, excess)
		if err != nil {
			return nil, "", err
		}
		good = append(good, found...)
		if len(found) >= enoughProbed && !w.all {
			break
		}
	}
	if len(good) == 0 {
		return nil, "", errNoWords
	}
	other, err := w.cost(anchors[1], first)
	if err == nil && other < once {
		return good, anchors[1], nil
	}
	return good, anchors[0], err
}

// cost asks how many tokens a prompt of units has.
func (w *words) cost(anchor string, units []string) (int64, error) {
	w.asked++
	return w.count(anchor + strings.Join(units, ""))
}

// kind is units of one length, and how many tokens they cost beyond one each.
type kind struct {
	units []string
	extra int64
}

// bad returns the least share of units that are several tokens: no token is shorter than a byte.
func (k kind) bad() float64 {
	return float64(k.extra) / float64(len(k.units)*max(1, len(k.units[0])-1))
}

func (k kind) compare(o kind) int {
	return cmp.Or(cmp.Compare(k.bad(), o.bad()), cmp.Compare(len(o.units), len(k.units)))
}

// split returns those of the units that are one token each, as far as it finds them with no more requests than until so many have been
// sent in all.
func (w *words) split(k kind, until int, excess func([]string) (int64, error)) (good []string, err error) {
	const (
		few      = 4
		mixed    = 1. / 16 // a share of bad units among which halves without one are rare
		hopeless = 5       // groups without a good one
	)
	switch {
	case k.extra == 0:
		return k.units, nil
	// Fewer tokens than words are words that merge, as letters alone do.
	case k.extra < 0, k.bad() >= 1, w.asked >= until, k.units[0][0] != ' ':
		return nil, nil
	case k.bad() >= mixed, len(k.units) <= few:
		empty := 0
		for some := range slices.Chunk(k.units, few) {
			if w.asked >= until || empty == hopeless || len(good) >= enoughProbed {
				break
			}
			found, err := w.tell(some, excess)
			if err != nil {
				return nil, err
			}
			if empty++; len(found) > 0 {
				empty = 0
			}
			good = append(good, found...)
		}
		return good, nil
	}
	half := len(k.units) / 2
	extra, err := excess(k.units[:half])
	if err != nil {
		return nil, err
	}
	parts := []kind{{k.units[:half], extra}, {k.units[half:], k.extra - extra}}
	slices.SortStableFunc(parts, kind.compare)
	for _, part := range parts {
		if len(good) >= enoughProbed {
			break
		}
		found, err := w.split(part, until, excess)
		if err != nil {
			return nil, err
		}
		good = append(good, found...)
	}
	return good, nil
}

// tell tells a few units apart in one request: the first stands there once, each other five times as often as the one before, so that
// the tokens too many, in base 5, are those of each. A unit of five bytes costs at most four.
func (w *words) tell(units []string, excess func([]string) (int64, error)) (good []string, err error) {
	const radix = 5
	var text []string
	for i, times := 0, 1; i < len(units); i, times = i+1, times*radix {
		text = append(text, slices.Repeat(units[i:i+1], times)...)
	}
	extra, err := excess(text)
	if err != nil || extra < 0 {
		return nil, err
	}
	for _, unit := range units {
		if extra%radix == 0 {
			good = append(good, unit)
		}
		extra /= radix
	}
	return good, nil
}

// byKind sorts units by what stands before the word and by its length, each in their order.
func byKind(pool []string) (kinds [][]string) {
	at := make(map[[2]int]int)
	for _, unit := range pool {
		k := [2]int{strings.Count(unit, " "), len(unit)}
		if _, known := at[k]; !known {
			at[k] = len(kinds)
			kinds = append(kinds, nil)
		}
		kinds[at[k]] = append(kinds[at[k]], unit)
	}
	return kinds
}

// lexicon makes a lexicon of units: of the kind that has the most, and of several such the first. It needs so many at least.
func lexicon(units []string, anchor string, least int) (*prompt.Lexicon, error) {
	var best []string
	for _, k := range byKind(units) {
		if n := min(len(k), prompt.MostWords); n > len(best) && (strings.HasPrefix(k[0], " ") || len(best) < least) {
			best = k[:n]
		}
	}
	if len(best) < least {
		return nil, fmt.Errorf("%w: %d are, %d at least are needed", errNoWords, len(best), least)
	}
	space := ""
	if strings.HasPrefix(best[0], " ") {
		space = " "
	}
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

// findWords looks in one way for words that are one token each on all models, has prompts made of them, and says so.
func (r *run) findWords(ctx context.Context, way string, models []string) error {
	said := report.Words{Found: way}
	pool, anchor := prompt.Candidates(), ""
	for i, model := range models {
		good, first, err := r.sift(ctx, way, model, pool, len(models) > 1, &said.Requests)
		failed, _ := errors.AsType[*send.Error](err)
		switch {
		case failed != nil && failed.Status == http.StatusNotFound && len(models) > i+1 && ctx.Err() == nil:
			continue // an unknown model; the calibration speaks of it
		case err != nil:
			return err
		case anchor != anchors[1]:
			anchor = first
		}
		pool = good
	}
	least := prompt.MinWords(r.opt.BlockSize)
	if r.opt.FineBlockSize > 0 {
		least = max(least, prompt.MinWords(r.opt.FineBlockSize))
	}
	l, err := lexicon(pool, anchor, least)
	if err != nil {
		return err
	}
	r.opt.Words, r.found = l, said
	return r.build()
}

// sift returns the units of a pool that are one token each on a model, and an anchor. asked grows by the requests.
func (r *run) sift(ctx context.Context, way, model string, pool []string, several bool, asked *int) (good []string, anchor string, err error) {
	if way == byUsage {
		w := &words{all: several}
		w.count = func(text string) (int64, error) {
			return r.countPrompt(ctx, model, "words "+model, int64(*asked+w.asked), r.builder.TextProbe(model, text))
		}
		good, anchor, err = w.byCounts(pool)
		*asked += w.asked
		return good, anchor, err
	}
	for _, ask := range []asking{r.askPrompt, r.askContent} {
		w := &words{
			ask: func(text string) ([]uint32, error) {
				ids, _, err := ask(ctx, model, text)
				return ids, err
			},
		}
		if !several { // the words of one vocabulary are not those of another
			w.text = func(ids []uint32) (string, error) { return r.askDetokenize(ctx, model, ids) }
		}
		good, anchor, err = w.byTokens(pool)
		if *asked += w.asked; err == nil || ctx.Err() != nil {
			break
		}
	}
	return good, anchor, err
}
