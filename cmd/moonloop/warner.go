// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"maps"
	"sync"
	"time"

	"github.com/moonloop/moonloop/internal/term"
)

// warner returns a function that writes warnings, but not one that it has written within this time. It can be called by several goroutines
// at once: those of replays, and those of OpenTelemetry's SDK.
func warner(w io.Writer, within time.Duration) func(text string) {
	var mu sync.Mutex
	said := map[string]time.Time{}
	return func(text string) {
		mu.Lock()
		defer mu.Unlock()
		maps.DeleteFunc(said, func(_ string, at time.Time) bool { return time.Since(at) > within })
		if _, known := said[text]; !known {
			said[text] = time.Now()
			fmt.Fprint(w, term.Note(w, "warning: "+text))
		}
	}
}
