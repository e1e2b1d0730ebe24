// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"sync"

	"github.com/moonloop/moonloop/capture"
	"github.com/moonloop/moonloop/internal/term"
)

// compileProgress is how far a compile is.
type compileProgress struct {
	bytes int64 // of all journals

	mu          sync.Mutex
	stage       capture.Stage
	done, total int64
}

// update notes a stage.
func (p *compileProgress) update(stage capture.Stage, done, total int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stage, p.done, p.total = stage, done, total
}

// show is what a view shows of it.
func (p *compileProgress) show() (text string, part float64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stage == "" {
		return "", -1
	}
	if p.stage == capture.StageRead {
		return fmt.Sprintf("%s: %s of %s", p.stage, term.Size(p.done), term.Size(p.bytes)), -1
	}
	return fmt.Sprintf("%s: %s of %s", p.stage, term.Comma(p.done), term.Comma(p.total)), -1
}
