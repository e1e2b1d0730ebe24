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

// warningCore forwards each warning and error of a Collector component to the user, as one line.
type warningCore struct {
	zapcore.LevelEnabler
	warn func(string)
	said *sync.Map // when each message was last forwarded
}

// refusal is the beginning of the Collector's message when the exporter refuses a batch. It comes with every batch, and its advice cannot
// be followed here, so it is dropped; [tally] reports refusals instead.
const refusal = "Exporting failed."

// sayAgain is the minimum time between two lines with the same message.
const sayAgain = 30 * time.Second

// With ignores the fields, which identify the component, because there is only one of each kind.
func (c warningCore) With([]zapcore.Field) zapcore.Core { return c }

// Check adds this core if the level is enabled.
func (c warningCore) Check(entry zapcore.Entry, checked *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if c.Enabled(entry.Level) {
		return checked.AddCore(entry, c)
	}
	return checked
}

// Write forwards an entry.
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

// Sync does nothing.
func (c warningCore) Sync() error { return nil }
