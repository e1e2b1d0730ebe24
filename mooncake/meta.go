// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package mooncake

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/moonloop/moonloop/internal/atomicfile"
	"github.com/moonloop/moonloop/internal/jsonrows"
)

// MetaSchema is the version of the sidecar that this package writes, and the highest one that it reads.
const MetaSchema = 1

// maxMeta is the maximum size of a sidecar, in bytes.
const maxMeta = 16 << 20

// Meta is the sidecar of a trace. It has what the rows cannot express. The sidecar of X.jsonl (or X.jsonl.gz) is X.meta.json. All fields
// but Schema may be zero, which means unknown unless the field says otherwise. Keys that this version does not know are ignored.
type Meta struct {
	Schema int    `json:"schema"`
	Tool   string `json:"tool,omitempty"` // the program that wrote the trace, with its version
	Rows   int64  `json:"rows,omitzero"`

	BlockSize int `json:"block_size,omitzero"` // tokens per hash id
	// FineBlockSize is the number of tokens per id of hash_ranges, a divisor of BlockSize; 0 if rows have none.
	FineBlockSize int         `json:"fine_block_size,omitzero"`
	SessionMode   SessionMode `json:"session_mode,omitzero"` // what the rows of one session_id contain

	// TimeUnit is the unit of timestamps in the file: ms, s, us or ns; if it is empty, the size of the numbers shows the unit ([ReaderOptions].Unit).
	// Delays are always in milliseconds.
	TimeUnit string `json:"time_unit,omitempty"`
	// TimeBase is the time of timestamp 0.
	TimeBase time.Time `json:"time_base,omitzero"`
	// Identity counts rows by the source of their ids: trace, engine, tokens, text, structure, lengths.
	Identity map[string]int64 `json:"identity,omitempty"`
	// ObservedCache compares what production's engine had cached with what the trace predicts; nil if telemetry does not have it.
	ObservedCache *ObservedCache `json:"observed_cache,omitzero"`
	// HashDomains are the domains (package blockhash) that the ids had before the ids were renumbered: 8 hexadecimal digits each.
	HashDomains []string `json:"hash_domains,omitempty"`
	// HashKeys are the fingerprints of the keys with which the ids were made, as far as they are known: 8 hexadecimal digits each, sorted.
	// Prompts hashed with two keys never match, even if they are equal.
	HashKeys []string `json:"hash_keys,omitempty"`
	// Privacy describes what the trace reveals of the prompts; nil if it was not determined.
	Privacy *Privacy `json:"privacy,omitempty"`
	// Digests are those of the rows as written.
	Digests Digests `json:"digests,omitzero"`
	// Trunk is the top of the prefix forest. Shards of a replay use it to decide which rows belong together. Nil if it is unknown.
	Trunk *Trunk `json:"trunk,omitempty"`
	// Sampling says which part of production's requests is in the trace; nil if all of them are, or if this is unknown. More than one entry
	// is a mixture, see [Meta.MixedSampling].
	Sampling []Sampling `json:"sampling,omitempty"`
	// Dropped counts what was left out of the trace, by reason; empty if nothing was.
	Dropped []Dropped `json:"dropped,omitempty"`
	// Transformations lists what was done to the trace after it was captured or generated, in order; empty if nothing was.
	Transformations []Transformation `json:"transformations,omitempty"`
}

// Dropped counts items that were left out for one reason.
type Dropped struct {
	What   string `json:"what"` // rows, spans, ...
	Reason string `json:"reason"`
	Count  int64  `json:"count"`
}

// Transformation is one step that made or changed a trace.
type Transformation struct {
	Name       string         `json:"name"`
	Parameters map[string]any `json:"parameters,omitempty"`
	Effect     string         `json:"effect,omitempty"` // one sentence
	// Before and After are figures of the input rows and the output rows; Sources are those of the traces that were joined. They are nil if
	// they were not computed.
	Before  *TraceFigures  `json:"before,omitempty"`
	After   *TraceFigures  `json:"after,omitempty"`
	Sources []TraceFigures `json:"sources,omitempty"`
}

// TraceFigures describe the rows between two steps.
type TraceFigures struct {
	Rows int64 `json:"rows"`
	// Span is the time from the first to the last timestamp, in ms; Rate is in rows per second.
	Span float64 `json:"span_ms"`
	Rate float64 `json:"rate_per_second"`
	// GapCV is the coefficient of variation of the gaps between consecutive arrivals. RandomCV is that of random (Poisson) arrivals at the
	// same rate and clock resolution.
	GapCV    float64 `json:"gap_cv"`
	RandomCV float64 `json:"gap_cv_of_random_arrivals"`
	Input    float64 `json:"input_length_mean"`
	Output   float64 `json:"output_length_mean"`
	// BlockHits and TokenHits are the shares of the blocks and the prompt tokens that hit in an infinite cache.
	BlockHits float64 `json:"infinite_cache_block_hits"`
	TokenHits float64 `json:"infinite_cache_token_hits"`
}

// IsZero reports whether there are no digests.
func (d Digests) IsZero() bool { return d == Digests{} }

// MetaName returns the name of a trace's sidecar: the suffix of a compression is removed, and .jsonl is replaced by .meta.json.
func MetaName(trace string) string {
	if ext := path.Ext(trace); slices.Contains([]string{".gz", ".zst", ".zstd", ".bz2"}, ext) {
		trace = strings.TrimSuffix(trace, ext)
	}
	return strings.TrimSuffix(trace, ".jsonl") + ".meta.json"
}

// ReadMeta reads and validates a sidecar.
func ReadMeta(r io.Reader) (*Meta, error) {
	data, err := io.ReadAll(io.LimitReader(r, maxMeta+1))
	if err != nil {
		return nil, fmt.Errorf("sidecar cannot be read: %w; remove or rename it if it is not a sidecar", err)
	}
	if len(data) > maxMeta {
		return nil, fmt.Errorf("the file is larger than %d bytes, so it is not a sidecar; remove or rename it", maxMeta)
	}
	m := new(Meta)
	if err := json.Unmarshal(data, m); err != nil {
		if _, ok := errors.AsType[*time.ParseError](err); ok {
			err = errors.New("time_base: want a time such as 2026-11-21T15:04:05Z")
		}
		return nil, fmt.Errorf("sidecar is not valid: %w; correct it, or remove it if the trace needs none", jsonrows.Explain(err))
	}
	if err := m.Validate(); err != nil {
		return nil, err
	}
	return m, nil
}

// LoadMeta reads the sidecar of a trace file. It returns nil if there is none.
func LoadMeta(trace string) (*Meta, error) {
	name := MetaName(trace)
	f, err := atomicfile.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("sidecar cannot be opened: %w", err)
	}
	m, err := ReadMeta(f)
	if err = errors.Join(err, f.Close()); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return m, nil
}

// Write writes the sidecar as indented JSON. It sets a Schema of 0 to [MetaSchema].
func (m *Meta) Write(w io.Writer) error {
	m.Schema = cmp.Or(m.Schema, MetaSchema)
	if err := m.Validate(); err != nil {
		return err
	}
	data, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return fmt.Errorf("sidecar cannot be written: %w", err)
	}
	if _, err := w.Write(append(data, '\n')); err != nil {
		return fmt.Errorf("sidecar was not written: %w", err)
	}
	return nil
}

// Validate reports what makes the sidecar unusable: a schema that this version does not know, or values out
// of range.
func (m *Meta) Validate() error {
	switch {
	case m.Schema < 1:
		return errors.New("sidecar has no schema version: it belongs to no trace, or it is damaged; remove it, or write it again")
	case m.Schema > MetaSchema:
		return fmt.Errorf("sidecar has schema version %d, this program knows %d: use a newer program", m.Schema, MetaSchema)
	}
	bad := func(what string, value any, rule string) error {
		return fmt.Errorf("sidecar: %s %v must %s; correct it, or leave it out", what, value, rule)
	}
	sizes := fmt.Sprintf("be above 0 and at most %d", MaxBlockSize)
	switch {
	case m.TimeUnit != "" && units[m.TimeUnit] == 0:
		return fmt.Errorf("sidecar: time_unit %s must be ms, s, us or ns; correct it, or leave it out", word(m.TimeUnit))
	case m.BlockSize < 0 || m.BlockSize > MaxBlockSize:
		return bad("block_size", m.BlockSize, sizes)
	case m.FineBlockSize < 0 || m.FineBlockSize > MaxBlockSize:
		return bad("fine_block_size", m.FineBlockSize, sizes)
	case m.BlockSize > 0 && checkFine(m.FineBlockSize, m.BlockSize) != nil:
		return bad("fine_block_size", m.FineBlockSize, fmt.Sprintf("divide block_size %d and be below it", m.BlockSize))
	case m.Rows < 0:
		return bad("rows", m.Rows, "be 0 or more")
	}
	if err := m.Trunk.check(); err != nil {
		return err
	}
	for what, n := range m.Identity {
		if n < 0 {
			return bad("identity "+word(what)+":", n, "be 0 or more")
		}
	}
	for _, s := range m.Sampling {
		if err := s.check(); err != nil {
			return err
		}
	}
	for _, d := range m.Dropped {
		if d.Count < 0 {
			return bad("dropped "+word(d.Reason)+":", d.Count, "be 0 or more")
		}
	}
	return nil
}

// orZero returns the values in the sidecar; they are zero if there is no sidecar (nil).
func (m *Meta) orZero() Meta {
	if m == nil {
		return Meta{}
	}
	return *m
}

// contradiction returns an error if a setting differs from the sidecar's. The zero value means unknown, and contradicts nothing.
func contradiction[T comparable](what string, given, said T) error {
	var unknown T
	if given == unknown || said == unknown || given == said {
		return nil
	}
	return fmt.Errorf("%s %v contradicts the trace's sidecar, which says %v: leave it out, or correct the sidecar", what, given,
		said)
}

// CheckSessionMode returns an error if a session mode contradicts the sidecar. Only full and delta can contradict each other.
func (m *Meta) CheckSessionMode(given SessionMode) error {
	said := m.orZero().SessionMode
	if given == SessionNone || said == SessionNone {
		return nil
	}
	return contradiction("session mode", given, said)
}

// CheckRows returns an error if the trace does not have the number of rows that its sidecar gives.
func (m *Meta) CheckRows(rows int64) error {
	if said := m.orZero().Rows; said != 0 && said != rows {
		return fmt.Errorf("the trace has %d rows, its sidecar says %d: "+
			"one of the two was changed or cut; use a complete copy, or correct the sidecar", rows, said)
	}
	return nil
}

// units are the units of timestamps, by name.
var units = map[string]time.Duration{"ms": time.Millisecond, "s": time.Second, "us": time.Microsecond, "ns": time.Nanosecond}

// ParseUnit reads the name of a unit of timestamps: ms, s, us or ns.
func ParseUnit(name string) (time.Duration, error) {
	if u, known := units[name]; known {
		return u, nil
	}
	return 0, fmt.Errorf("time unit %s: want ms, s, us or ns", word(name))
}

// UnitName returns the name that [ParseUnit] reads, or the empty string.
func UnitName(unit time.Duration) string {
	for name, u := range units {
		if u == unit {
			return name
		}
	}
	return ""
}

// Unit returns the length of one timestamp unit; 0 if the sidecar does not have it, or is nil.
func (m *Meta) Unit() time.Duration { return units[m.orZero().TimeUnit] }

// Save writes the sidecar of a trace, whole or not at all. Only its owner can read it.
func (m *Meta) Save(trace string) error {
	if err := atomicfile.Write(MetaName(trace), atomicfile.Regular, m.Write); err != nil {
		return fmt.Errorf("sidecar cannot be written: %w", err)
	}
	return nil
}
