// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package simulator

import (
	"errors"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/moonloop/moonloop/internal/splitmix"
)

// Fault names a way to misbehave, or a shape of reply that some engine has and that clients must accept: "rate-limit", "cut". [FaultNames]
// has all of them.
type Fault string

// Headers by which a single request asks for something special.
const (
	HeaderFault     = "X-Simulate-Fault"      // the name of a fault
	HeaderToolCalls = "X-Simulate-Tool-Calls" // 1: reply with a tool call, if the request has tools
)

// Faults says which requests are served badly. A fault is drawn from the seed and the request's sequence number, so
// a run that sends its requests in the same order meets the same faults.
type Faults struct {
	// Rates is the share, 0 to 1, of requests that meet each fault; together at most 1.
	Rates map[Fault]float64
	// After is the number of tokens before a stream breaks, at most all of them; 0 is half of the reply.
	After int
	// RetryAfter is the time that the faults "rate-limit", "unavailable" and "overloaded" ask clients to wait, rounded up to seconds; 0 is
	// [DefaultRetryAfter].
	RetryAfter time.Duration
	// StallFor is how long a stream with the fault "stall" is silent before it continues (0: until the client leaves), and how long the
	// fault "slow-accept" leaves the request's body unread (0: until [Config].BodyTimeout ends the wait).
	StallFor time.Duration
}

// errAbort makes the handler drop the connection.
var errAbort = errors.New("the connection is to be dropped")

// errBroken ends a reply that a fault has already finished in its own way.
var errBroken = errors.New("a fault ended the reply")

// FaultNames returns the names of all faults in a fixed order, with a short description and the effect of each. Faults with the same effect
// are neighbours.
func FaultNames() (names []Fault, about, effects []string) {
	for _, k := range faultTable {
		names, about, effects = append(names, k.name), append(about, k.about), append(effects, k.effect())
	}
	return names, about, effects
}

// effect says what happens to the reply.
func (k *faultKind) effect() string {
	switch {
	case k.refuse != nil:
		return "another reply is sent, or none"
	case k.mid != nil:
		return "the stream breaks"
	}
	return "the reply is complete, but unusual, like the replies of some real engines"
}

func faultNamed(name Fault) *faultKind {
	if i := slices.IndexFunc(faultTable, func(k faultKind) bool { return k.name == name }); i >= 0 {
		return &faultTable[i]
	}
	return nil
}

func (f *Faults) validate(bad func(wrong bool, format string, args ...any)) {
	sum := 0.0
	for name, rate := range f.Rates {
		short := cut(string(name), maxName)
		bad(faultNamed(name) == nil, "unknown fault %q: use %s", short, faultList())
		bad(!isShare(rate), "the rate of fault %q is %v: must be a share between 0 and 1", short, rate)
		sum += rate
	}
	bad(sum > 1+1e-9, "the fault rates add up to %v: must be at most 1", sum)
}

func faultList() string {
	names, _, _ := FaultNames()
	var list []string
	for _, name := range names {
		list = append(list, string(name))
	}
	return strings.Join(list, ", ")
}

// fault returns the fault that a request meets, or nil: the one that its header names, else one drawn by the rates.
func (c *Config) fault(seq uint64, header http.Header) (*faultKind, *apiError) {
	if name := header.Get(HeaderFault); name != "" {
		kind := faultNamed(Fault(name))
		if kind == nil {
			return nil, badRequest("", "header %s names no fault: use %s", HeaderFault, faultList())
		}
		return kind, nil
	}
	if len(c.Faults.Rates) == 0 {
		return nil, nil
	}
	// Faults have random numbers of their own: replies must not depend on the rates.
	u := splitmix.Uniform(splitmix.Next(splitmix.Next(c.Seed^0x6661756c74) + seq))
	for i := range faultTable {
		rate := c.Faults.Rates[faultTable[i].name]
		if u < rate {
			return &faultTable[i], nil
		}
		u -= rate
	}
	return nil, nil
}

// position returns the number of tokens before a stream of n tokens breaks.
func (f *Faults) position(n int) int {
	if f.After > 0 {
		return min(f.After, n)
	}
	return max(1, n/2)
}
