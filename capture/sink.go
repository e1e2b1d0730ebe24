// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/moonloop/moonloop/capture/journal"
	"github.com/moonloop/moonloop/mooncake"
)

// Files returns a sink that writes production to the trace file of that name, and each run to a file next to it, which [RunFile] names.
func Files(name string) Sink {
	return func(p Partition) (TraceWriter, error) {
		if p.Replay {
			return mooncake.Create(RunFile(name, p.Run))
		}
		return mooncake.Create(name)
	}
}

// In the name of a run's trace, the run's id is between runPrefix and the result of endings.
const runPrefix = ".run-"

// hashed matches the end of names that a hash distinguishes.
var hashed = regexp.MustCompile(`-[0-9a-f]{16}$`)

// RunFile returns the name of a run's trace next to that of production: out.run-ID.jsonl next to out.jsonl. Two ids never have the same
// file, even on file systems that ignore case: characters that are not allowed in a file name become _, and an id that has such characters
// or capitals, is long, or ends like a hash, gets a hash of it at the end (64 bits of SHA-256).
func RunFile(name string, run journal.Name) string {
	name, ending := endings(name)
	safe := strings.Map(func(r rune) rune {
		switch {
		case 'a' <= r && r <= 'z', 'A' <= r && r <= 'Z', '0' <= r && r <= '9', r == '-', r == '_', r == '.':
			return r
		}
		return '_'
	}, run.String())
	capital := strings.ToLower(safe) != safe
	if safe != run.String() || capital || len(safe) > 64 || safe == "" || strings.HasSuffix(safe, ".") || hashed.MatchString(safe) {
		h := sha256.Sum256([]byte(run.String()))
		safe = safe[:min(len(safe), 64)] + "-" + hex.EncodeToString(h[:8])
	}
	return name + runPrefix + safe + ending
}

// RunFiles returns the existing traces of runs next to that of production, and their sidecars.
func RunFiles(name string) ([]string, error) {
	entries, err := os.ReadDir(filepath.Dir(name))
	if err != nil {
		return nil, err
	}
	stem, ending := endings(filepath.Base(name))
	var names []string
	for _, e := range entries {
		rest, ok := strings.CutPrefix(e.Name(), stem+runPrefix)
		if ok && (strings.HasSuffix(rest, ending) || strings.HasSuffix(rest, ".meta.json")) {
			names = append(names, filepath.Join(filepath.Dir(name), e.Name()))
		}
	}
	return names, nil
}

// endings splits the name of a trace before the endings that tell its format.
func endings(name string) (stem, ending string) {
	for _, suffix := range []string{".gz", ".zst", ".zstd"} {
		if s, ok := strings.CutSuffix(name, suffix); ok {
			name, ending = s, suffix
			break
		}
	}
	if s, ok := strings.CutSuffix(name, ".jsonl"); ok {
		name, ending = s, ".jsonl"+ending
	}
	return name, ending
}
