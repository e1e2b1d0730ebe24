// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package annotate

import (
	"strings"

	"github.com/moonloop/moonloop/genai"
	"github.com/moonloop/moonloop/semconv"
)

// What may be left of a value.
const (
	maxName  = 256  // bytes of a name, and of a value on GenAI telemetry: more is a text
	maxValue = 1024 // bytes of a value on other telemetry, nested ones together
	maxState = 512  // bytes of a trace state, which is what W3C asks everybody to pass on
)

const ownPrefix = "mooncake."

// verdict says what becomes of an attribute because of its name.
type verdict uint8

const (
	unknown verdict = iota // stays on other telemetry where it is short, goes from GenAI telemetry
	allowed                // stays where it is short, and of its shape
	own                    // one of ours: stays where it is what we write
	denied                 // goes, unless it is a number
	banned                 // goes, numbers too: the configuration says so
)

// shape says what a value of a name looks like.
type shape uint8

const (
	anything shape = iota
	word           // one word, by [genai.IsWord]
	numeric        // a number or a flag, if it is a text
	reason         // one word; [semconv.ErrorOther] takes the place of others
	address        // a URL, whose ends that may hold text are cut off
)

// rule is a name, or the beginning or end of names, with what becomes of it.
type rule struct {
	name    string // as the counts show it
	verdict verdict
	shape   shape
}

// rules is the allow-list and the deny-table.
type rules struct {
	exact    map[string]rule
	prefixes [256][]rule     // by first byte of the names, banned ones first
	words    map[string]rule // by what stands behind the last dot of a name
	bans     bool
}

// newRules returns the rules of a configuration: what it denies comes first, then what it calls a session, then
// exact names, then beginnings of names, then their ends.
func newRules(c Config) *rules {
	r := &rules{exact: map[string]rule{}, words: map[string]rule{}, bans: len(c.Deny) > 0}
	for _, name := range c.Deny {
		r.put(name, banned, anything)
	}
	for _, name := range c.SessionKeys {
		r.put(name, allowed, anything)
	}
	r.put(ownPrefix+"*", own, anything)
	for name, kind := range genai.Names() {
		switch kind {
		case genai.NameContent:
			r.put(name, denied, anything)
		case genai.NameWord:
			r.put(name, allowed, word)
		case genai.NameReason:
			r.put(name, allowed, reason)
		case genai.NameNumber:
			r.put(name, allowed, numeric)
		case genai.NameFact:
			r.put(name, allowed, anything)
		}
	}
	r.put("exception.type", allowed, reason)
	r.put(semconv.URLPath, allowed, address)
	for _, name := range addressNames {
		r.put(name, unknown, address)
	}
	for _, name := range allowedNames {
		r.put(name, allowed, anything)
	}
	for _, name := range deniedNames {
		r.put(name, denied, anything)
	}
	return r
}

// put adds a rule. The first one of a name counts.
func (r *rules) put(name string, v verdict, s shape) {
	if prefix, ok := strings.CutSuffix(name, "*"); ok {
		r.prefixes[prefix[0]] = append(r.prefixes[prefix[0]], rule{name, v, s})
		return
	}
	to, key := r.exact, name
	if last, ok := strings.CutPrefix(name, "*."); ok {
		to, key = r.words, last
	}
	if _, ok := to[key]; !ok {
		to[key] = rule{name, v, s}
	}
}

// of returns the rule of a name, the zero rule if there is none.
func (r *rules) of(name string) rule {
	if name == "" {
		return rule{}
	}
	exact, ok := r.exact[name]
	if ok && !r.bans {
		return exact
	}
	for _, p := range r.prefixes[name[0]] {
		if strings.HasPrefix(name, p.name[:len(p.name)-1]) && (!ok || p.verdict == banned && exact.verdict != banned) {
			return p
		}
	}
	if ok {
		return exact
	}
	if dot := strings.LastIndexByte(name, '.'); dot >= 0 {
		return r.words[name[dot+1:]]
	}
	return rule{}
}
