// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package mooncake

// This file is about graphs: rows that follow other rows, as the requests of an agent do.

import (
	"fmt"
	"slices"
)

// MaxWaitFor is the maximum number of rows that one row waits for.
const MaxWaitFor = 1024

// Evidence says how an edge of a graph was found. A greater value is more reliable.
type Evidence uint8

// The kinds of evidence.
const (
	// EvidenceTime: one row ended before the other began; their spans show no other relation.
	EvidenceTime Evidence = iota + 1
	// EvidenceSession: in addition, both belong to one session, in different OTel traces.
	EvidenceSession
	// EvidenceParent: one row ended before the other began, and both are steps of the same agent, workflow or tool.
	EvidenceParent
	// EvidenceToolCall: one row's reply called a tool, and the other row belongs to that call, or was given its result, by the call's id.
	EvidenceToolCall
	// EvidenceLink: a span link connects them.
	EvidenceLink
)

var evidences = [...]string{"", "time", "session", "parent", "tool_call", "link"}

// String returns the name of the kind of evidence.
func (e Evidence) String() string {
	if int(e) >= len(evidences) {
		return fmt.Sprintf("evidence %d", uint8(e))
	}
	return evidences[e]
}

// ParseEvidence reads the name of a kind of evidence. ok is false for an unknown name.
func ParseEvidence(name string) (e Evidence, ok bool) {
	at := slices.Index(evidences[:], name)
	return Evidence(max(at, 0)), at > 0 //nolint:gosec // of six
}

// EvidenceNames returns the names of kinds of evidence, nil for none.
func EvidenceNames(all []Evidence) (names []string) {
	for _, e := range all {
		names = append(names, e.String())
	}
	return names
}

// texts reads an array of strings.
func (p *parser) texts(field string, to *[]string) *RowError {
	if k := p.dec.PeekKind(); k != '[' {
		_, e := p.value(field, '[') // null, or an error
		return e
	}
	if _, err := p.dec.ReadToken(); err != nil {
		return p.syntax(err)
	}
	*to = []string{}
	for p.dec.PeekKind() != ']' {
		var s string
		if k := p.dec.PeekKind(); k != '"' && k != 0 {
			return fault(field, element(len(*to)), "is not a string", correctOrOmit)
		}
		if e := p.text(field, &s); e != nil {
			return e
		}
		if len(*to) == MaxWaitFor {
			return tooManyPredecessors(field)
		}
		*to = append(*to, s)
	}
	_, err := p.dec.ReadToken()
	return p.syntax(err)
}

// evidence reads wait_evidence. An unknown kind is an error.
func (p *parser) evidence(r *Row) *RowError {
	var names []string
	if e := p.texts("wait_evidence", &names); e != nil || names == nil {
		return e
	}
	r.Evidence = []Evidence{}
	for i, name := range names {
		e, ok := ParseEvidence(name)
		if !ok {
			return fault("wait_evidence", element(i), "is none of time, session, parent, tool_call and link", correctOrOmit)
		}
		r.Evidence = append(r.Evidence, e)
	}
	return nil
}

func tooManyPredecessors(field string) *RowError {
	advice := "leave out rows that another row of the list waits for"
	if field == "wait_evidence" {
		advice = onePerPredecessor
	}
	return fault(field, "", fmt.Sprintf("has more than %d elements", MaxWaitFor), advice)
}

// onePerPredecessor is the advice for a wait_evidence of another length than wait_for.
const onePerPredecessor = "give one for each row in wait_for, or leave it out"

// faultGraph returns what is wrong with a row's tool_wait_ms, wait_for and wait_evidence. A row must not wait for itself, or for a row
// without a name.
func faultGraph(r *Row) *RowError {
	const rule, advice = "must be a finite number of milliseconds, 0 or more and at most 2^53", correctOrOmit
	if e := faultTime("tool_wait_ms", r.ToolWait, rule, advice); e != nil {
		return e
	}
	switch at := slices.Index(r.WaitFor, ""); {
	case at >= 0:
		return fault("wait_for", element(at), "is empty", "name rows by their request_id")
	case len(r.WaitFor) > MaxWaitFor:
		return tooManyPredecessors("wait_for")
	case r.RequestID != "" && slices.Contains(r.WaitFor, r.RequestID):
		return fault("wait_for", "", "names the row itself, which then never starts", correctOrOmit)
	case r.Evidence != nil && len(r.Evidence) != len(r.WaitFor):
		return fault("wait_evidence", "", fmt.Sprintf("has %d elements, and wait_for has %d", len(r.Evidence), len(r.WaitFor)),
			onePerPredecessor)
	}
	return nil
}
