// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package demo

import (
	"math/rand/v2"
	"strconv"
	"strings"
)

// Prose writes what people ask a harbour's assistant, and what that is told to be. Equal seeds write equal texts.
type Prose struct{ *rand.Rand }

// NewProse returns the writer of a seed.
func NewProse(seed uint64) Prose {
	return Prose{rand.New(rand.NewPCG(seed, 0x6861_7262_6f75_72))} //nolint:gosec // must be repeatable
}

// The words of a harbour. A % in a phrase is a number that makes the sentence one of a kind.
var (
	proseWho = []string{
		"the harbour master", "our night shift", "the pilot of tug %", "crew %", "the customs desk", "a driver at gate %",
		"the owner of container %", "berth planner %", "the tide office", "the crane operator on quay %", "a passenger of ferry %",
		"the agent of the Corinna %", "warehouse %", "the ice patrol", "the cold store at pier %", "the duty engineer",
	}
	proseDid = []string{
		"moved", "inspected", "asked about", "signed for", "refused", "weighed", "lost sight of", "delayed", "released",
		"photographed", "repaired", "booked", "cancelled", "paid for", "forgot to report", "split",
	}
	proseWhat = []string{
		"the reefer with seal %", "a pallet of lamp oil", "the mooring at bollard %", "% crates of lemons", "the manifest of voyage %",
		"the spare hawser", "the fuel bunker invoice %", "two horses and a piano", "the gangway of lane %", "a drum of paint",
		"the radar log from page %", "a parcel without an address", "the ballast report %", "a coil of copper wire", "the lifeboat drill",
	}
	proseWhen = []string{
		"before the morning tide", "at %:40", "while the bridge was open", "after the storm of week %", "on the second try",
		"an hour late", "during the strike", "without a permit", "in heavy fog", "as rule % demands", "twice",
		"although lane % was closed", "as soon as the rain had stopped", "against the advice of the pilot",
	}
	proseRule = []string{
		"When {who} {did} {what}, ask for the voyage number first.",
		"Never promise a berth to anyone who {did} {what}; form % is for that.",
		"A report that {who} {did} {what} is urgent: put it first.",
		"If it is said that {who} {did} {what}, quote tariff % and nothing else.",
		"Complaints that {who} {did} {what} go to desk %; say so in one line.",
	}
	proseAsk = []string{
		"Summarise this for the morning meeting.", "What do I have to do first, and who pays for it?", "Is that covered by our tariff?",
		"Write a short and friendly answer to them.", "Which of these entries contradict each other?", "Make a table of the delays, longest first.",
	}
)

// pick returns one of the phrases, with a number in the place of each %.
func (p Prose) pick(phrases []string) string {
	phrase := phrases[p.IntN(len(phrases))]
	for strings.Contains(phrase, "%") {
		phrase = strings.Replace(phrase, "%", strconv.Itoa(1+p.IntN(999)), 1)
	}
	return phrase
}

// sentence is an entry of a log.
func (p Prose) sentence() string {
	s := p.pick(proseWho) + " " + p.pick(proseDid) + " " + p.pick(proseWhat) + ", " + p.pick(proseWhen)
	if p.IntN(2) == 0 {
		s += ", " + p.pick(proseWhen)
	}
	return strings.ToUpper(s[:1]) + s[1:] + "."
}

// rule is a sentence of a system prompt.
func (p Prose) rule() string {
	return strings.NewReplacer("{who}", p.pick(proseWho), "{did}", p.pick(proseDid), "{what}", p.pick(proseWhat)).Replace(p.pick(proseRule))
}

// text appends sentences until there are about so many words.
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

// System is a system prompt of about so many words.
func (p Prose) System(words int) string {
	return "You are the assistant of a harbour. Be brief, be exact, and keep to these rules.\n" + p.text(words, p.rule)
}

// Question is a user's message of about so many words: a log, and what to do with it.
func (p Prose) Question(words int) string {
	return p.text(words, p.sentence) + "\n\n" + p.pick(proseAsk)
}
