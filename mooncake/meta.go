// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package mooncake

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"time"

	"github.com/moonloop/moonloop/internal/atomicfile"
)

// MetaSchema is the version of the sidecar that this package writes, and the highest one that it reads.
const MetaSchema = 1

// maxMeta bounds a sidecar, in bytes.
const maxMeta = 16 << 20

// Meta is the sidecar of a trace: what its rows cannot say. The sidecar of X.jsonl (or X.jsonl.gz) is X.meta.json. All
// fields but Schema may be zero, which means unknown. Keys that this version does not know are ignored.
type Meta struct {
	Schema int    `json:"schema"`
	Tool   string `json:"tool,omitempty"` // what wrote the trace, with its version
	Rows   int64  `json:"rows,omitempty"`

	BlockSize int `json:"block_size,omitempty"` // tokens per hash id
	// FineBlockSize is the number of tokens per id of hash_ranges, a divisor of BlockSize; 0 where rows have none.
	FineBlockSize int         `json:"fine_block_size,omitempty"`
	SessionMode   SessionMode `json:"session_mode,omitempty"` // what rows of one session_id hold

	// TimeUnit is the unit of timestamps: ms, s or us; empty is ms. Delays are milliseconds whatever it says.
	TimeUnit string `json:"time_unit,omitempty"`
	// TimeBase is the instant of timestamp 0.
	TimeBase time.Time `json:"time_base,omitzero"`
	// Identity counts rows by what their ids were made from: trace, engine, tokens, text, structure, lengths.
	Identity map[string]int64 `json:"identity,omitempty"`
	// ObservedCache sets what production's engine had cached beside what the trace predicts; nil where telemetry does not say.
	ObservedCache *ObservedCache `json:"observed_cache,omitempty"`
	// HashDomains are the domains that the ids came from before they were renumbered: 8 hexadecimal digits each.
	HashDomains []string `json:"hash_domains,omitempty"`
	// HashKeys are the fingerprints of the keys under which the ids were made, as far as they are known: 8 hexadecimal
	// digits each, sorted. Prompts hashed under two keys never match, whatever they have in common.
	HashKeys []string `json:"hash_keys,omitempty"`
	// Digests are those of the rows as written.
	Digests Digests `json:"digests,omitzero"`
	// Dropped counts what is not in the trace, by reason.
	Dropped []Dropped `json:"dropped,omitempty"`
	// Transformations are what was done to the trace since it was captured or generated, in order.
	Transformations []Transformation `json:"transformations,omitempty"`
}

// Dropped counts what was left out for one reason.
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
}

// IsZero reports whether no digest was taken.
func (d Digests) IsZero() bool { return d == Digests{} }

// MetaName returns the name of a trace's sidecar: without the suffix of a compression, .meta.json in the place
// of .jsonl.
func MetaName(trace string) string {
	for _, suffix := range []string{".gz", ".zst", ".zstd", ".bz2"} {
		if s, ok := strings.CutSuffix(trace, suffix); ok {
			trace = s
			break
		}
	}
	return strings.TrimSuffix(trace, ".jsonl") + ".meta.json"
}

// ReadMeta reads and validates a sidecar.
func ReadMeta(r io.Reader) (*Meta, error) {
	data, err := io.ReadAll(io.LimitReader(r, maxMeta+1))
	if err != nil {
		return nil, fmt.Errorf("sidecar cannot be read: %w; remove or rename it if it is none", err)
	}
	if len(data) > maxMeta {
		return nil, fmt.Errorf("sidecar is larger than %d bytes: it is not one; remove or rename it", maxMeta)
	}
	m := new(Meta)
	if err := json.Unmarshal(data, m); err != nil {
		if te, ok := errors.AsType[*json.UnmarshalTypeError](err); ok { // without the names of Go's types
			field := te.Field
			if field != "" {
				field += ": "
			}
			return nil, fmt.Errorf("sidecar is not valid: %s%s is of the wrong type or out of range; correct it, or remove the sidecar if the trace needs none", field, te.Value)
		}
		if _, ok := errors.AsType[*time.ParseError](err); ok {
			err = errors.New("time_base: want a time such as 2026-11-21T15:04:05Z")
		}
		return nil, fmt.Errorf("sidecar is not valid: %w; correct it, or remove it if the trace needs none", err)
	}
	if err := m.Validate(); err != nil {
		return nil, err
	}
	return m, nil
}

// LoadMeta reads the sidecar of a trace file. It returns nil when there is none.
func LoadMeta(trace string) (*Meta, error) {
	name := MetaName(trace)
	f, err := os.Open(name) //nolint:gosec // the user names the trace that it belongs to
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

// Write writes the sidecar as indented JSON. A Schema of 0 is written as [MetaSchema].
func (m *Meta) Write(w io.Writer) error {
	out := *m
	if out.Schema == 0 {
		out.Schema = MetaSchema
	}
	if err := out.Validate(); err != nil {
		return err
	}
	data, err := json.MarshalIndent(&out, "", "  ")
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
		return errors.New("sidecar has no schema version: it is not the sidecar of a trace, or damaged; remove it or write it anew")
	case m.Schema > MetaSchema:
		return fmt.Errorf("sidecar has schema version %d, this program knows %d: use a newer program", m.Schema, MetaSchema)
	case m.TimeUnit != "" && units[m.TimeUnit] == 0:
		return fmt.Errorf("sidecar: time_unit %s must be ms, s or us; correct it, or leave it out for ms", word(m.TimeUnit))
	case m.BlockSize < 0 || m.BlockSize > MaxBlockSize:
		return fmt.Errorf("sidecar: block_size %d must be above 0 and at most %d; correct it, or leave it out", m.BlockSize, MaxBlockSize)
	case m.FineBlockSize < 0 || m.FineBlockSize > MaxBlockSize:
		return fmt.Errorf("sidecar: fine_block_size %d must be above 0 and at most %d; correct it, or leave it out", m.FineBlockSize, MaxBlockSize)
	case m.BlockSize > 0 && checkFine(m.FineBlockSize, m.BlockSize) != nil:
		return fmt.Errorf("sidecar: fine_block_size %d must divide block_size %d and be below it; correct it, or leave it out", m.FineBlockSize, m.BlockSize)
	case m.Rows < 0:
		return fmt.Errorf("sidecar: rows %d must be 0 or more; correct it, or leave it out", m.Rows)
	}
	for what, n := range m.Identity {
		if n < 0 {
			return fmt.Errorf("sidecar: identity %s: %d must be 0 or more; correct it, or leave it out", word(what), n)
		}
	}
	for _, d := range m.Dropped {
		if d.Count < 0 {
			return fmt.Errorf("sidecar: dropped %s: %d must be 0 or more; correct it, or leave it out", word(d.Reason), d.Count)
		}
	}
	return nil
}

// CheckBlockSize reports a block size that contradicts the sidecar. 0 contradicts nothing, nor does any size a sidecar that
// gives none, or no sidecar (nil).
func (m *Meta) CheckBlockSize(given int) error {
	if m == nil || m.BlockSize == 0 || given == 0 || given == m.BlockSize {
		return nil
	}
	return fmt.Errorf("block size %d contradicts the trace's sidecar, which says %d: leave it out, or correct the sidecar",
		given, m.BlockSize)
}

// CheckFineBlockSize reports a fine block size that contradicts the sidecar, like CheckBlockSize.
func (m *Meta) CheckFineBlockSize(given int) error {
	if m == nil || m.FineBlockSize == 0 || given == 0 || given == m.FineBlockSize {
		return nil
	}
	return fmt.Errorf("fine block size %d contradicts the trace's sidecar, which says %d: leave it out, or correct the sidecar",
		given, m.FineBlockSize)
}

// CheckSessionMode reports a session mode that contradicts the sidecar, like CheckBlockSize. Only full and delta can
// contradict each other.
func (m *Meta) CheckSessionMode(given SessionMode) error {
	definite := func(s SessionMode) bool { return s == SessionFull || s == SessionDelta }
	if m == nil || !definite(given) || !definite(m.SessionMode) || given == m.SessionMode {
		return nil
	}
	return fmt.Errorf("session mode %s contradicts the trace's sidecar, which says %s: leave it out, or correct the sidecar",
		given, m.SessionMode)
}

// units are the units of timestamps, by name.
var units = map[string]time.Duration{"ms": time.Millisecond, "s": time.Second, "us": time.Microsecond}

// ParseUnit reads the name of a unit of timestamps: ms, s or us.
func ParseUnit(name string) (time.Duration, error) {
	if u, known := units[name]; known {
		return u, nil
	}
	return 0, fmt.Errorf("time unit %s: want ms, s or us", word(name))
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

// Unit returns the length of one timestamp unit; 0 when the sidecar does not say, or there is none (nil).
func (m *Meta) Unit() time.Duration {
	if m == nil {
		return 0
	}
	return units[m.TimeUnit]
}

// CheckTimeUnit reports a unit of timestamps that contradicts the sidecar, like CheckBlockSize.
func (m *Meta) CheckTimeUnit(given time.Duration) error {
	if u := m.Unit(); u == 0 || given == 0 || given == u {
		return nil
	}
	return fmt.Errorf("time unit %s contradicts the trace's sidecar, which says %s: leave it out, or correct the sidecar",
		UnitName(given), m.TimeUnit)
}

// Save writes the sidecar of a trace, whole or not at all, readable by its owner alone.
func (m *Meta) Save(trace string) error {
	f, err := atomicfile.Create(MetaName(trace), atomicfile.Regular)
	if err != nil {
		return fmt.Errorf("sidecar cannot be written: %w", err)
	}
	if err := m.Write(f); err != nil {
		return errors.Join(err, f.Discard())
	}
	if err := f.Commit(); err != nil {
		return errors.Join(fmt.Errorf("sidecar was not written: %w", err), f.Discard())
	}
	return nil
}

// CheckRows reports that the trace does not have the number of rows that its sidecar gives.
func (m *Meta) CheckRows(rows int64) error {
	if m == nil || m.Rows == 0 || m.Rows == rows {
		return nil
	}
	return fmt.Errorf("the trace has %d rows, its sidecar says %d: one of the two was changed or cut; take a whole copy, or correct the sidecar", rows, m.Rows)
}
