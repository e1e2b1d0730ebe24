// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package mooncake

// Privacy is the part of a sidecar for those who decide whether a trace may leave: what its rows let out of the prompts, and how. The
// other parts of such a manifest are where they were needed already: hash_keys names the keys (never what they are), block_size, dropped
// counts the fields that were left out, rows and identity count the rows, sampling says of which part of the traffic they are, and digests tell whether they are still the same. So one
// file lies beside the trace, and nothing in it can contradict another file.
type Privacy struct {
	// Mode is what the rows tell of prompts: the worst that one of them does.
	Mode PrivacyMode `json:"mode"`
	// ContentRows are those that hold text, HashedRows those with ids of blocks.
	ContentRows int64 `json:"content_rows"`
	HashedRows  int64 `json:"hashed_rows"`
	// HashAlgorithm is how ids were made of text before they were numbered; empty where they were not, or nobody knows.
	HashAlgorithm string `json:"hash_algorithm,omitempty"`
	// TimestampJitter is by how much, at most, times were changed at random, in ms: by transform's spread and copies, and nothing else here.
	TimestampJitter float64 `json:"timestamp_jitter_ms"`
}

// PrivacyMode is what rows tell of prompts.
type PrivacyMode string

// The modes, by the names of Dynamo's proposal for traces of production (DEP-0016).
const (
	PrivacyPerfOnly  PrivacyMode = "perf-only"  // lengths and times
	PrivacyBlockHash PrivacyMode = "block-hash" // which prompts begin alike, too
	PrivacyContent   PrivacyMode = "content"    // text
)

// add counts a row that is written.
func (p *Privacy) add(row *Row) {
	if row.Kind() != KindLength {
		p.ContentRows++
	}
	if row.HashIDs != nil || row.HashRanges != nil {
		p.HashedRows++
	}
}

// of completes the count for a sidecar that may know the algorithm already.
func (p Privacy) of(m *Meta) *Privacy {
	if m.Privacy != nil {
		p.HashAlgorithm, p.TimestampJitter = m.Privacy.HashAlgorithm, m.Privacy.TimestampJitter
	}
	switch {
	case p.ContentRows > 0:
		p.Mode = PrivacyContent
	case p.HashedRows > 0:
		p.Mode = PrivacyBlockHash
	default:
		p.Mode = PrivacyPerfOnly
	}
	return &p
}
