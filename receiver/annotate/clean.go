// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package annotate

import (
	"strings"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/collector/pdata/xpdata/entity"

	"github.com/moonloop/moonloop/blockhash"
)

// removedName takes the place of a name that is so long that it may be a text.
const removedName = "removed"

// What the counts call values that are no attributes, and those that no table knows.
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

// cleaner removes text from telemetry, and counts what it removes.
type cleaner struct {
	rules  *rules
	counts *Counts
	twin   func(session string) string
	chain  blockhash.Chain // of which the length is that of the text of the span at hand
}

// manner says how attributes are cleaned.
type manner uint8

const (
	strictly manner = 1 << iota // of GenAI telemetry: what the allow-list does not have goes
	onSpan                      // of a span, which alone has the large ones of ours
)

// strict returns the manner for what is of GenAI telemetry or not.
func strict(genAI bool) manner {
	if genAI {
		return strictly
	}
	return 0
}

func (c *cleaner) removed(what string) { count(&c.counts.Removed, what, 1) }

// resource cleans what stands around spans or logs. Entities only name attributes.
func (c *cleaner) resource(resource pcommon.Resource) {
	c.attributes(resource.Attributes(), 0)
	entity.ResourceEntityRefs(resource).RemoveIf(func(ref entity.EntityRef) bool {
		long := len(ref.Type()) > maxName || len(ref.SchemaUrl()) > maxName || longer(ref.IdKeys()) || longer(ref.DescriptionKeys())
		if long {
			c.removed(labelEntity)
		}
		return long
	})
}

// longer reports whether a name is longer than one may be.
func longer(names pcommon.StringSlice) bool {
	for _, name := range names.All() {
		if len(name) > maxName {
			return true
		}
	}
	return false
}

// scope cleans an instrumentation scope.
func (c *cleaner) scope(scope pcommon.InstrumentationScope) {
	if name := scope.Name(); len(name) > maxName {
		scope.SetName(removedName)
		c.removed(labelScope)
	}
	if version := scope.Version(); len(version) > maxName {
		scope.SetVersion("")
		c.removed(labelScope)
	}
	c.attributes(scope.Attributes(), 0)
}

// withSchema is telemetry that names its schema.
type withSchema interface {
	SchemaUrl() string
	SetSchemaUrl(string)
}

// schema cleans a schema URL.
func (c *cleaner) schema(of withSchema) {
	if len(of.SchemaUrl()) > maxName {
		of.SetSchemaUrl("")
		c.removed(labelSchema)
	}
}

// span cleans a span; strictly one of GenAI telemetry.
func (c *cleaner) span(span ptrace.Span, genAI bool) {
	if len(span.Name()) > maxName {
		span.SetName(removedName)
		c.removed(labelSpan)
	}
	if span.Status().Message() != "" { // rises with its exception, see deniedNames
		span.Status().SetMessage("")
		c.removed(labelStatus)
	}
	c.state(span.TraceState())
	if c.chain.Bytes = 0; genAI {
		c.textOf(span.Attributes())
	}
	c.attributes(span.Attributes(), strict(genAI)|onSpan)
	events := span.Events()
	for i := range events.Len() {
		event := events.At(i)
		name := event.Name()
		if len(name) > maxName {
			event.SetName(removedName)
			c.removed(labelEvent)
		}
		if attributes := event.Attributes(); !harmless(attributes) || c.rules.bans {
			c.attributes(attributes, strict(genAI || strings.HasPrefix(name, genAIPrefix) || ofGenAI(attributes)))
		}
	}
	links := span.Links()
	for i := range links.Len() {
		c.state(links.At(i).TraceState())
		c.attributes(links.At(i).Attributes(), strict(genAI))
	}
}

const genAIPrefix = "gen_ai."

// ofGenAI reports whether attributes are those of GenAI telemetry.
func ofGenAI(attributes pcommon.Map) bool {
	for name := range attributes.All() {
		if strings.HasPrefix(name, genAIPrefix) {
			return true
		}
	}
	return false
}

// harmless reports whether attributes are numbers under names that are no texts, as those of a token's event are.
func harmless(attributes pcommon.Map) bool {
	for name, value := range attributes.All() {
		if len(name) > maxName || !number(value.Type()) {
			return false
		}
	}
	return true
}

// number reports whether a value of a type holds no text.
func number(t pcommon.ValueType) bool {
	switch t {
	case pcommon.ValueTypeInt, pcommon.ValueTypeDouble, pcommon.ValueTypeBool, pcommon.ValueTypeEmpty:
		return true
	default:
		return false
	}
}

func (c *cleaner) state(state pcommon.TraceState) {
	if len(state.AsRaw()) > maxState {
		state.FromRaw("")
		c.removed(labelState)
	}
}

// log cleans a log record; strictly one of GenAI telemetry, whose body is content.
func (c *cleaner) log(log plog.LogRecord, genAI bool) {
	if len(log.EventName()) > maxName {
		log.SetEventName(removedName)
		c.removed(labelEvent)
	}
	if len(log.SeverityText()) > maxName {
		log.SetSeverityText("")
		c.removed(labelSeverity)
	}
	c.attributes(log.Attributes(), strict(genAI))
	if body := log.Body(); !genAI {
		c.prune(body, maxDepth)
	} else if !number(body.Type()) {
		pcommon.NewValueEmpty().MoveTo(body)
		c.removed(labelBody)
	}
}

// prune removes from a body what is denied, however deep, and what is too deep to tell.
func (c *cleaner) prune(value pcommon.Value, depth int) {
	t := value.Type()
	if t != pcommon.ValueTypeMap && t != pcommon.ValueTypeSlice {
		return
	}
	if depth == 0 {
		pcommon.NewValueEmpty().MoveTo(value)
		c.removed(labelBody)
		return
	}
	if t == pcommon.ValueTypeSlice {
		for _, member := range value.Slice().All() {
			c.prune(member, depth-1)
		}
		return
	}
	value.Map().RemoveIf(func(name string, member pcommon.Value) bool {
		r := c.rules.of(name)
		if r.forbids(member) {
			c.removed(labelBody)
			return true
		}
		c.mend(r, member)
		c.prune(member, depth-1)
		return false
	})
}

// forbids reports whether a value goes because of its name.
func (r rule) forbids(value pcommon.Value) bool {
	return r.verdict == banned || r.verdict == denied && !number(value.Type())
}

// attributes removes what is not to be seen. The strict way, for GenAI telemetry, leaves numbers, and short texts
// under names that the allow-list has; the other leaves all but what the deny-table has and what is long.
func (c *cleaner) attributes(attributes pcommon.Map, how manner) {
	attributes.RemoveIf(func(name string, value pcommon.Value) bool {
		if len(name) > maxName {
			c.removed(labelName)
			return true
		}
		if number(value.Type()) && !c.rules.bans {
			return false
		}
		r := c.rules.of(name)
		if c.stays(r, name, value, how) {
			c.mend(r, value)
			return false
		}
		if r.name == "" {
			r.name = otherName
		}
		c.removed(r.name)
		return true
	})
}

// stays reports whether an attribute is to be seen.
func (c *cleaner) stays(r rule, name string, value pcommon.Value, how manner) bool {
	switch {
	case r.forbids(value):
		return false
	case number(value.Type()):
		return true
	case r.verdict == own:
		return c.ours(name, value, how)
	case how&strictly != 0:
		return r.verdict == allowed && r.short(value)
	default:
		_, fits := c.size(value, maxValue, maxDepth)
		return fits
	}
}

// maxDepth is how deep values may be nested; deeper ones are removed.
const maxDepth = 16

// size returns what is left of a number of bytes after all that a value holds. fits is false where that is not enough,
// where it is nested deeper than depth, or where a name within is denied.
func (c *cleaner) size(value pcommon.Value, bytes, depth int) (left int, fits bool) {
	if depth == 0 {
		return 0, false
	}
	switch value.Type() {
	case pcommon.ValueTypeStr:
		bytes -= len(value.Str())
	case pcommon.ValueTypeBytes:
		bytes -= value.Bytes().Len()
	case pcommon.ValueTypeSlice:
		for _, member := range value.Slice().All() {
			if bytes, fits = c.size(member, bytes, depth-1); !fits {
				return 0, false
			}
		}
	case pcommon.ValueTypeMap:
		for name, member := range value.Map().All() {
			r := c.rules.of(name)
			if r.forbids(member) {
				return 0, false
			}
			c.mend(r, member)
			if bytes, fits = c.size(member, bytes-len(name), depth-1); !fits {
				return 0, false
			}
		}
	default:
		bytes -= 8
	}
	return bytes, bytes >= 0
}
