// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package annotate

import (
	"cmp"
	"strings"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/collector/pdata/xpdata/entity"
)

// removedName replaces a name that is so long that it may be a text.
const removedName = "removed"

// The names under which values that are not attributes, and values without a rule, are counted.
const (
	otherName     = "other"
	labelName     = "(attribute name)"
	labelSpan     = "(span name)"
	labelEvent    = "(event name)"
	labelScope    = "(scope)"
	labelMetric   = "(metric)"
	labelSchema   = "(schema url)"
	labelState    = "(trace state)"
	labelStatus   = "(status message)"
	labelBody     = "(body)"
	labelSeverity = "(severity text)"
	labelEntity   = "(entity)"
)

// manner says how attributes are cleaned.
type manner struct {
	strictly bool // for GenAI telemetry: remove everything that is not on the allow-list
	onSpan   bool // for a span; only spans have our large attributes
}

func (w *worker) removed(what string) { count(&w.counts.Removed, what, 1) }

// bound replaces a text that is longer than limit bytes, and counts this under a label.
func (w *worker) bound(text string, limit int, set func(string), replacement, label string) {
	if len(text) > limit {
		set(replacement)
		w.removed(label)
	}
}

// withSchema is telemetry with a schema URL.
type withSchema interface {
	SchemaUrl() string
	SetSchemaUrl(string)
}

// cleanResource cleans the resource of spans, logs or metrics. Entities contain only names; one with a name that is too long is removed.
func (w *worker) cleanResource(of interface {
	withSchema
	Resource() pcommon.Resource
},
) {
	if w.keeps() {
		return
	}
	w.bound(of.SchemaUrl(), maxName, of.SetSchemaUrl, "", labelSchema)
	w.cleanAttributes(of.Resource().Attributes(), manner{})
	entity.ResourceEntityRefs(of.Resource()).RemoveIf(func(ref entity.EntityRef) bool {
		long := len(ref.Type()) > maxName || len(ref.SchemaUrl()) > maxName || longer(ref.IdKeys()) || longer(ref.DescriptionKeys())
		if long {
			w.removed(labelEntity)
		}
		return long
	})
}

// longer reports whether one of the names is too long.
func longer(names pcommon.StringSlice) bool {
	for _, name := range names.All() {
		if len(name) > maxName {
			return true
		}
	}
	return false
}

// cleanScope cleans an instrumentation scope.
func (w *worker) cleanScope(of interface {
	withSchema
	Scope() pcommon.InstrumentationScope
},
) {
	if w.keeps() {
		return
	}
	scope := of.Scope()
	w.bound(of.SchemaUrl(), maxName, of.SetSchemaUrl, "", labelSchema)
	w.bound(scope.Name(), maxName, scope.SetName, removedName, labelScope)
	w.bound(scope.Version(), maxName, scope.SetVersion, "", labelScope)
	w.cleanAttributes(scope.Attributes(), manner{})
}

// cleanSpan cleans a span; strictly if it is GenAI telemetry.
func (w *worker) cleanSpan(span ptrace.Span, genAI bool) {
	w.bound(span.Name(), maxName, span.SetName, removedName, labelSpan)
	w.bound(span.Status().Message(), 0, span.Status().SetMessage, "", labelStatus) // it repeats the message of an exception, see deniedNames
	w.bound(span.TraceState().AsRaw(), maxState, span.TraceState().FromRaw, "", labelState)
	if w.chain.Bytes = 0; genAI {
		w.noteText(span.Attributes())
	}
	w.cleanAttributes(span.Attributes(), manner{genAI, true})
	for _, event := range span.Events().All() {
		name := event.Name()
		w.bound(name, maxName, event.SetName, removedName, labelEvent)
		if attributes := event.Attributes(); !harmless(attributes) || w.rules.bans {
			w.cleanAttributes(attributes, manner{strictly: genAI || strings.HasPrefix(name, genAIPrefix) || ofGenAI(attributes)})
		}
	}
	for _, link := range span.Links().All() {
		w.bound(link.TraceState().AsRaw(), maxState, link.TraceState().FromRaw, "", labelState)
		w.cleanAttributes(link.Attributes(), manner{strictly: genAI})
	}
}

const genAIPrefix = "gen_ai."

// ofGenAI reports whether attributes belong to GenAI telemetry.
func ofGenAI(attributes pcommon.Map) bool {
	for name := range attributes.All() {
		if strings.HasPrefix(name, genAIPrefix) {
			return true
		}
	}
	return false
}

// harmless reports whether all attributes are numbers, and their names too short to be texts, as in a token event.
func harmless(attributes pcommon.Map) bool {
	for name, value := range attributes.All() {
		if len(name) > maxName || !number(value.Type()) {
			return false
		}
	}
	return true
}

// number reports whether values of a type contain no text.
func number(t pcommon.ValueType) bool {
	switch t {
	case pcommon.ValueTypeInt, pcommon.ValueTypeDouble, pcommon.ValueTypeBool, pcommon.ValueTypeEmpty:
		return true
	default:
		return false
	}
}

// cleanLog cleans a log record; strictly if it is GenAI telemetry, whose body is content.
func (w *worker) cleanLog(log plog.LogRecord, genAI bool) {
	if w.keeps() {
		return
	}
	w.bound(log.EventName(), maxName, log.SetEventName, removedName, labelEvent)
	w.bound(log.SeverityText(), maxName, log.SetSeverityText, "", labelSeverity)
	w.cleanAttributes(log.Attributes(), manner{strictly: genAI})
	if body := log.Body(); !genAI {
		w.cleanBody(body, maxDepth)
	} else if !number(body.Type()) {
		w.removeBody(body)
	}
}

func (w *worker) removeBody(value pcommon.Value) {
	pcommon.NewValueEmpty().MoveTo(value)
	w.removed(labelBody)
}

// cleanBody removes denied values from a body at any depth, and values that are nested too deeply.
func (w *worker) cleanBody(value pcommon.Value, depth int) {
	switch t := value.Type(); {
	case t != pcommon.ValueTypeMap && t != pcommon.ValueTypeSlice:
	case depth == 0:
		w.removeBody(value)
	case t == pcommon.ValueTypeSlice:
		for _, member := range value.Slice().All() {
			w.cleanBody(member, depth-1)
		}
	default:
		value.Map().RemoveIf(func(name string, member pcommon.Value) bool {
			r := w.rules.of(name)
			if r.forbids(member) {
				w.removed(labelBody)
				return true
			}
			w.mend(r, member)
			w.cleanBody(member, depth-1)
			return false
		})
	}
}

// forbids reports whether a value must be removed because of its name.
func (r rule) forbids(value pcommon.Value) bool {
	return r.verdict == banned || r.verdict == denied && !number(value.Type())
}

// cleanAttributes removes attributes. The strict way, for GenAI telemetry, keeps numbers, and short texts with names on the allow-list. The
// other way keeps everything except long values and those in the deny-table.
func (w *worker) cleanAttributes(attributes pcommon.Map, how manner) {
	attributes.RemoveIf(func(name string, value pcommon.Value) bool {
		if len(name) > maxName {
			w.removed(labelName)
			return true
		}
		if number(value.Type()) && !w.rules.bans {
			return false
		}
		r := w.rules.of(name)
		if w.stays(r, name, value, how) {
			w.mend(r, value)
			return false
		}
		w.removed(cmp.Or(r.name, otherName))
		return true
	})
}

// stays reports whether an attribute is kept.
func (w *worker) stays(r rule, name string, value pcommon.Value, how manner) bool {
	switch {
	case r.forbids(value):
		return false
	case number(value.Type()):
		return true
	case r.verdict == own:
		return w.isOurs(name, value, how)
	case how.strictly:
		return r.verdict == allowed && r.short(value)
	default:
		return w.bytesLeft(value, maxValue, maxDepth) >= 0
	}
}

// maxDepth is the maximum nesting of values; deeper ones are removed.
const maxDepth = 16

// bytesLeft returns how many of a number of bytes remain after a value with everything in it. The result is below 0 if the value is too
// large, nested deeper than depth, or contains a denied name.
func (w *worker) bytesLeft(value pcommon.Value, bytes, depth int) int {
	if depth == 0 {
		return -1
	}
	switch value.Type() {
	case pcommon.ValueTypeStr:
		bytes -= len(value.Str())
	case pcommon.ValueTypeBytes:
		bytes -= value.Bytes().Len()
	case pcommon.ValueTypeSlice:
		for _, member := range value.Slice().All() {
			if bytes = w.bytesLeft(member, bytes, depth-1); bytes < 0 {
				break
			}
		}
	case pcommon.ValueTypeMap:
		for name, member := range value.Map().All() {
			r := w.rules.of(name)
			if r.forbids(member) {
				return -1
			}
			w.mend(r, member)
			if bytes = w.bytesLeft(member, bytes-len(name), depth-1); bytes < 0 {
				break
			}
		}
	default:
		bytes -= 8
	}
	return bytes
}
