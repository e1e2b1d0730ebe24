// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package annotate

import (
	_ "embed"
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

// Names beyond those of the GenAI dialects, apart by white space.
var (
	// allowedNames are those of ids, models, reasons and addresses.
	//
	//go:embed names/allowed.txt
	allowedNames string
	// addressNames hold URLs. A query is what somebody searches for, or a key; user and password stand before the host.
	//
	//go:embed names/addresses.txt
	addressNames string
	// deniedNames hold text on telemetry that is not of GenAI.
	//
	// An exception rises through every span above the request that it comes from, and providers and HTTP clients quote the
	// request in its message, which is also the first line of the stack trace. Statements and parameters of a database are
	// how an application stores its conversations; their summary, operation and collection stay. Headers and queries are
	// where keys are.
	//
	//go:embed names/denied.txt
	deniedNames string
)

// ruleOf is what becomes of the names of the GenAI dialects.
var ruleOf = [...]rule{
	genai.NameFact:    {verdict: allowed},
	genai.NameWord:    {verdict: allowed, shape: word},
	genai.NameReason:  {verdict: allowed, shape: reason},
	genai.NameNumber:  {verdict: allowed, shape: numeric},
	genai.NameContent: {verdict: denied},
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
	r.add(banned, anything, c.Deny...)
	r.add(allowed, anything, c.SessionKeys...)
	r.add(allowed, word, c.ClassKeys...)
	r.add(own, anything, ownPrefix+"*")
	for name, kind := range genai.Names() {
		r.add(ruleOf[kind].verdict, ruleOf[kind].shape, name)
	}
	r.add(allowed, reason, "exception.type")
	r.add(allowed, address, semconv.URLPath)
	r.add(unknown, address, semconv.URLFull)
	r.add(allowed, anything, semconv.ServerAddress, semconv.ServerPort, semconv.HTTPRequestMethod, semconv.HTTPRequestResendCount,
		semconv.HTTPRoute, semconv.ServiceName, semconv.ServiceVersion, semconv.ServiceInstanceID)
	r.add(unknown, address, strings.Fields(addressNames)...)
	r.add(allowed, anything, strings.Fields(allowedNames)...)
	r.add(denied, anything, strings.Fields(deniedNames)...)
	return r
}

// add adds rules. The first one of a name counts.
func (r *rules) add(v verdict, s shape, names ...string) {
	for _, name := range names {
		if prefix, ok := strings.CutSuffix(name, "*"); ok {
			r.prefixes[prefix[0]] = append(r.prefixes[prefix[0]], rule{name, v, s})
			continue
		}
		to, key := r.exact, name
		if last, ok := strings.CutPrefix(name, "*."); ok {
			to, key = r.words, last
		}
		if _, ok := to[key]; !ok {
			to[key] = rule{name, v, s}
		}
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
	return r.words[name[strings.LastIndexByte(name, '.')+1:]]
}
