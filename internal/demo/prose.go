// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package demo

import (
	_ "embed"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
)

// Prose generates questions for a harbour's assistant, and the assistant's system prompts. Equal seeds give equal texts.
type Prose struct{ *rand.Rand }

// NewProse returns the Prose of a seed.
func NewProse(seed uint64) Prose {
	return Prose{rand.New(rand.NewPCG(seed, 0x6861_7262_6f75_72))} //nolint:gosec // must be repeatable
}

// proseText has lists of phrases about a harbour, each below the list's name. Each % in a phrase becomes a random number, so that sentences
// are almost always different.
//
//go:embed prose.txt
var proseText string

// phrases returns the lists by their names.
var phrases = sync.OnceValue(func() map[string][]string {
	lists := map[string][]string{}
	for list := range strings.SplitSeq(strings.TrimSpace(proseText), "\n\n") {
		lines := strings.Split(list, "\n")
		lists[lines[0]] = lines[1:]
	}
	return lists
})

// pick returns a phrase of a list, with a number in place of each %.
func (p Prose) pick(list string) string {
	all := phrases()[list]
	phrase := all[p.IntN(len(all))]
	for strings.Contains(phrase, "%") {
		phrase = strings.Replace(phrase, "%", strconv.Itoa(1+p.IntN(999)), 1)
	}
	return phrase
}

// sentence is an entry of a log.
func (p Prose) sentence() string {
	s := p.pick("who") + " " + p.pick("did") + " " + p.pick("what") + ", " + p.pick("when")
	if p.IntN(2) == 0 {
		s += ", " + p.pick("when")
	}
	return strings.ToUpper(s[:1]) + s[1:] + "."
}

// rule is a sentence of a system prompt.
func (p Prose) rule() string {
	return strings.NewReplacer("{who}", p.pick("who"), "{did}", p.pick("did"), "{what}", p.pick("what")).Replace(p.pick("rule"))
}

// text joins sentences up to about this many words.
func (p Prose) text(words int, sentence func() string) string {
	var b strings.Builder
	for n := 0; n < words; {
		s := sentence()
		n += 1 + strings.Count(s, " ")
		b.WriteString(s)
		b.WriteByte("  \n"[p.IntN(3)])
	}
	return strings.TrimSpace(b.String())
}

// System returns a system prompt of about this many words.
func (p Prose) System(words int) string {
	return "You are the assistant of a harbour. Be brief, be exact, and keep to these rules.\n" + p.text(words, p.rule)
}

// Question returns a user's message of about this many words: a log, and an instruction for it.
func (p Prose) Question(words int) string {
	return p.text(words, p.sentence) + "\n\n" + p.pick("ask")
}
