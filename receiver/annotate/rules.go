// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package annotate

import (
	_ "embed"
	"strings"

	"github.com/moonloop/moonloop/genai"
	"github.com/moonloop/moonloop/semconv"
)

// The limits of a value that is kept.
const (
	maxName  = 256  // bytes of a name, and of a value in GenAI telemetry: a longer one is a text
	maxValue = 1024 // bytes of a value in other telemetry, with everything in it
	maxState = 512  // bytes of a trace state, the size that W3C asks everyone to propagate
)

const ownPrefix = "mooncake."

// verdict says what happens to an attribute because of its name.
type verdict uint8

const (
	unknown verdict = iota // kept in other telemetry if it is short; removed from GenAI telemetry
	allowed                // kept if it is short, and has the right form
	own                    // one of ours: kept if it has the form that we write
	denied                 // removed, unless it is a number
	banned                 // removed, including numbers, because the configuration says so
)

// shape is the form of a value.
type shape uint8

const (
	anything shape = iota
	word           // one word, by [genai.IsWord]
	numeric        // a number or a flag; a text must contain one
	reason         // one word; other values are replaced by [semconv.ErrorOther]
	address        // a URL, whose parts that may contain text are removed
)

// rule is a name, or the beginning or end of names, with its verdict.
type rule struct {
	name    string // as in the counts
	verdict verdict
	shape   shape
}

// Names in addition to those of the GenAI dialects, separated by white space.
var (
	// allowedNames are those of ids, models, reasons and addresses.
	//
	//go:embed names/allowed.txt
	allowedNames string
	// addressNames are those of URLs. A query may be a search term or a key; user and password come before the host.
	//
	//go:embed names/addresses.txt
	addressNames string
	// deniedNames are names of texts in telemetry other than GenAI.
	//
	// An exception propagates through every span above its request, and providers and HTTP clients quote the request in its message, which
	// is also the first line of the stack trace. Applications store conversations with statements and parameters of a database; their
	// summary, operation and collection are kept. Headers and queries may contain keys.
	//
	//go:embed names/denied.txt
	deniedNames string
)

// ruleOf has the verdicts for the names of the GenAI dialects.
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
	words    map[string]rule // by the part after the last dot of a name
	bans     bool
}

// newRules returns the rules of a configuration: first its denied names, then its session and class keys, then exact names, then beginnings
// of names, then their ends.
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

// add adds rules. The rule that was added first for a name applies.
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
