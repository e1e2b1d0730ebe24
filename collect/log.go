// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package collect

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap/zapcore"
)

// warningCore passes warnings and errors of Collector components on to people, as one line each.
type warningCore struct {
	zapcore.LevelEnabler
	warn func(string)
	said *sync.Map // messages, by the time when they were passed on
}

// refusal begins what the Collector's library says when the exporter refuses a batch: with advice that nobody can follow
// here, again for each batch. [tally] says it instead.
const refusal = "Exporting failed."

// sayAgain is how long the same message is not repeated.
const sayAgain = 30 * time.Second

// With leaves fields that say which component it is out: there is one of each.
func (c warningCore) With([]zapcore.Field) zapcore.Core { return c }

// Check asks for what the level lets through.
func (c warningCore) Check(entry zapcore.Entry, checked *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if c.Enabled(entry.Level) {
		return checked.AddCore(entry, c)
	}
	return checked
}

// Write passes an entry on.
func (c warningCore) Write(entry zapcore.Entry, fields []zapcore.Field) error {
	if strings.HasPrefix(entry.Message, refusal) {
		return nil
	}
	if before, ok := c.said.Load(entry.Message); ok && entry.Time.Sub(before.(time.Time)) < sayAgain {
		return nil
	}
	c.said.Store(entry.Message, entry.Time)
	values := zapcore.NewMapObjectEncoder()
	for _, f := range fields {
		f.AddTo(values)
	}
	var text strings.Builder
	text.WriteString(entry.Message)
	for _, name := range slices.Sorted(maps.Keys(values.Fields)) {
		fmt.Fprintf(&text, ", %s %v", name, values.Fields[name])
	}
	c.warn(text.String())
	return nil
}

// Sync has nothing to do.
func (c warningCore) Sync() error { return nil }
