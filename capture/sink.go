// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"encoding/hex"
	"hash/fnv"
	"strings"

	"github.com/moonloop/moonloop/mooncake"
)

// Files is a sink that writes production to the trace file of that name and each run to one beside it, by [RunFile].
func Files(name string) Sink {
	return func(p Partition) (TraceWriter, error) {
		if p.Replay {
			return mooncake.Create(RunFile(name, p.Run))
		}
		return mooncake.Create(name)
	}
}

// RunFile returns the name of a run's trace beside that of production: out.run-ID.jsonl beside out.jsonl. Characters of
// the id that do not belong into a file name become _, and a hash then tells such ids apart.
func RunFile(name string, run Name) string {
	ending := ""
	for _, suffix := range []string{".gz", ".zst", ".zstd"} {
		if s, ok := strings.CutSuffix(name, suffix); ok {
			name, ending = s, suffix
			break
		}
	}
	if s, ok := strings.CutSuffix(name, ".jsonl"); ok {
		name, ending = s, ".jsonl"+ending
	}
	safe := strings.Map(func(r rune) rune {
		switch {
		case 'a' <= r && r <= 'z', 'A' <= r && r <= 'Z', '0' <= r && r <= '9', r == '-', r == '_', r == '.':
			return r
		}
		return '_'
	}, run.s)
	if safe != run.s || len(safe) > 64 || safe == "" {
		h := fnv.New64a()
		_, _ = h.Write([]byte(run.s)) // never fails
		safe = safe[:min(len(safe), 64)] + "-" + hex.EncodeToString(h.Sum(nil))
	}
	return name + ".run-" + safe + ending
}
