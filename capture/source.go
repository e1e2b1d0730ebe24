// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"github.com/moonloop/moonloop/capture/journal"
)

// Source is a journal to compile.
type Source struct {
	Name string                        // for errors
	Open func() (io.ReadCloser, error) // Compile opens several sources at once
	Size int64                         // bytes; 0 is unknown. Cores and shards divide the journals by it.
	// Optional is for files that nobody named, such as all those of a folder: one that turns out not to be a journal, or that was removed
	// meanwhile, as the retention of a running Collector does, is left out and counted, instead of ending the call with an error.
	Optional bool
}

// FileSource returns the source of a journal file, or of the part of the file that has been written so far.
func FileSource(name string) Source {
	return Source{Name: name, Open: func() (io.ReadCloser, error) { return os.Open(name) }} //nolint:gosec // the user names the journal
}

// Reading is what was found in a journal in addition to its records.
type Reading struct {
	LeftOut *LeftOut // the journal was not read, for this reason; nil: it was read
	Bytes   int64    // that were read
	// Damage lists stretches of damage, at most the first 100; DamageCount and DamageBytes count all of them.
	Damage      []journal.Damage
	DamageCount int64
	DamageBytes int64
	Torn        journal.Torn
}

// LeftOut is an optional journal that was not read.
type LeftOut struct {
	Journal string `json:"journal"`
	Bytes   int64  `json:"bytes"` // as far as they are known
	Removed bool   `json:"removed"`
	Reason  string `json:"reason"`
}

// Read calls visit with each record of a journal, as in the journal and decoded; both are valid until visit returns. An error of visit ends
// the walk. Damaged places are passed over and counted. Progress, unless nil, is called from time to time with the bytes that were read.
func (s *Source) Read(ctx context.Context, progress func(bytes int64), visit func([]byte, *journal.Decoder) error) (found Reading, err error) {
	f, err := s.Open()
	if err != nil {
		if s.leaveOut(err, &found) {
			return found, nil
		}
		return found, fmt.Errorf("journal cannot be opened: %w", err)
	}
	defer f.Close() //nolint:errcheck // only read
	r := journal.NewReader(s.Name, f)
	for n := 0; ; n++ {
		if n%1024 == 0 {
			if ctx.Err() != nil {
				return found, context.Cause(ctx)
			}
			if progress != nil {
				progress(r.Offset())
			}
		}
		b, d, err := r.NextEncoded()
		if damage, ok := errors.AsType[*journal.Damage](err); ok {
			found.DamageCount++
			found.DamageBytes += damage.Bytes
			if len(found.Damage) < maxDamage {
				found.Damage = append(found.Damage, *damage)
			}
			continue
		}
		if errors.Is(err, io.EOF) {
			found.Bytes, found.Torn = r.Offset(), r.Torn()
			return found, nil
		}
		if err != nil {
			if n == 0 && s.leaveOut(err, &found) {
				return found, nil
			}
			return found, err
		}
		if err := visit(b, d); err != nil {
			return found, err
		}
	}
}

// leaveOut reports whether an error is a reason to leave the journal out: the first error of opening or reading an optional one.
func (s *Source) leaveOut(err error, found *Reading) bool {
	removed := errors.Is(err, fs.ErrNotExist)
	if !s.Optional || !removed && !errors.Is(err, journal.ErrNotJournal) {
		return false
	}
	found.LeftOut = &LeftOut{s.Name, s.Size, removed, err.Error()}
	return true
}
