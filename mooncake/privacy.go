// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package mooncake

// Privacy is the part of a sidecar for people who decide whether a trace may be published: what its rows reveal of the prompts, and how.
// The other facts for this decision are elsewhere in the sidecar: hash_keys has the fingerprints of the keys (never the keys), block_size,
// dropped counts the fields that were left out, rows and identity count the rows, sampling describes the part of the traffic, and digests
// show whether the rows were changed. So there is one metadata file, and no other file can contradict it.
type Privacy struct {
	// Mode is what the rows reveal of prompts: the mode of the row that reveals most.
	Mode PrivacyMode `json:"mode"`
	// ContentRows is the number of rows with text, HashedRows that of rows with block ids.
	ContentRows int64 `json:"content_rows"`
	HashedRows  int64 `json:"hashed_rows"`
	// HashAlgorithm is how ids were computed from text before they were numbered; empty if they were not, or if it is unknown.
	HashAlgorithm string `json:"hash_algorithm,omitempty"`
	// TimestampJitter is the maximum random change of timestamps, in ms, by the spread and the copies of transform. The draw of transform,
	// which gives conversations the times of others, does not count.
	TimestampJitter float64 `json:"timestamp_jitter_ms"`
}

// PrivacyMode says what rows reveal of prompts.
type PrivacyMode string

// The modes. Their names are those of Dynamo's proposal for traces of production (DEP-0016).
const (
	PrivacyPerfOnly  PrivacyMode = "perf-only"  // lengths and times
	PrivacyBlockHash PrivacyMode = "block-hash" // in addition, which prompts have the same beginning
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

// of returns what the counts say about a trace. It keeps the algorithm and the jitter that the sidecar may have already.
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
