// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package annotate

import (
	"strings"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/collector/pdata/xpdata/entity"

	"github.com/moonloop/moonloop/semconv"
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
}

func (c *cleaner) removed(what string) { count(&c.counts.Removed, what, 1) }

// resource cleans what stands around spans or logs. Entities only name attributes.
func (c *cleaner) resource(resource pcommon.Resource) {
	c.attributes(resource.Attributes(), false)
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
	c.attributes(scope.Attributes(), false)
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
func (c *cleaner) span(span ptrace.Span, strict bool) {
	if len(span.Name()) > maxName {
		span.SetName(removedName)
		c.removed(labelSpan)
	}
	if span.Status().Message() != "" { // rises with its exception, see deniedNames
		span.Status().SetMessage("")
		c.removed(labelStatus)
	}
	c.state(span.TraceState())
	c.attributes(span.Attributes(), strict)
	events := span.Events()
	for i := range events.Len() {
		event := events.At(i)
		name := event.Name()
		if len(name) > maxName {
			event.SetName(removedName)
			c.removed(labelEvent)
		}
		if attributes := event.Attributes(); !harmless(attributes) || c.rules.bans {
			c.attributes(attributes, strict || strings.HasPrefix(name, "gen_ai."))
		}
	}
	links := span.Links()
	for i := range links.Len() {
		c.state(links.At(i).TraceState())
		c.attributes(links.At(i).Attributes(), strict)
	}
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
func (c *cleaner) log(log plog.LogRecord, strict bool) {
	if len(log.EventName()) > maxName {
		log.SetEventName(removedName)
		c.removed(labelEvent)
	}
	if len(log.SeverityText()) > maxName {
		log.SetSeverityText("")
		c.removed(labelSeverity)
	}
	c.attributes(log.Attributes(), strict)
	body := log.Body()
	switch {
	case strict && !number(body.Type()):
		pcommon.NewValueEmpty().MoveTo(body)
		c.removed(labelBody)
	case body.Type() == pcommon.ValueTypeMap:
		body.Map().RemoveIf(func(name string, value pcommon.Value) bool {
			r := c.rules.of(name)
			if goes := r.verdict >= denied || c.deniedWithin(value, maxDepth); !goes {
				return false
			}
			c.removed(labelBody)
			return true
		})
	}
}

// attributes removes what is not to be seen. The strict way, for GenAI telemetry, leaves numbers, and short texts
// under names that the allow-list has; the other leaves all but what the deny-table has and what is long.
func (c *cleaner) attributes(attributes pcommon.Map, strict bool) {
	attributes.RemoveIf(func(name string, value pcommon.Value) bool {
		if len(name) > maxName {
			c.removed(labelName)
			return true
		}
		if number(value.Type()) && !c.rules.bans {
			return false
		}
		r := c.rules.of(name)
		var goes bool
		switch {
		case r.verdict == banned:
			goes = true
		case number(value.Type()):
		case r.verdict == denied:
			goes = true
		case strict:
			goes = r.verdict != allowed || !short(name, value)
		default:
			_, fits := c.size(value, maxValue, maxDepth)
			goes = !fits
		}
		if !goes {
			return false
		}
		if r.name == "" {
			r.name = otherName
		}
		c.removed(r.name)
		return true
	})
}

// maxDepth is how deep values may be nested; deeper ones are removed.
const maxDepth = 16

// short reports whether a value under an allowed name is no text: one string or a few, numbers, or what the
// annotations hold.
func short(name string, value pcommon.Value) bool {
	switch value.Type() {
	case pcommon.ValueTypeStr:
		return len(value.Str()) <= maxName
	case pcommon.ValueTypeBytes:
		n := value.Bytes().Len()
		return name == semconv.Cells && n%8 == 0
	case pcommon.ValueTypeSlice:
		unbounded, left := series(name), maxName
		for _, member := range value.Slice().All() {
			switch t := member.Type(); {
			case number(t):
				if !unbounded {
					left -= 8
				}
			case t == pcommon.ValueTypeStr && !unbounded:
				left -= len(member.Str())
			default:
				return false
			}
			if left < 0 {
				return false
			}
		}
		return true
	default:
		return false
	}
}

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
			if c.rules.of(name).verdict >= denied {
				return 0, false
			}
			if bytes, fits = c.size(member, bytes-len(name), depth-1); !fits {
				return 0, false
			}
		}
	default:
		bytes -= 8
	}
	return bytes, bytes >= 0
}

// deniedWithin reports whether a map within a value has a denied name, or is nested too deep to tell.
func (c *cleaner) deniedWithin(value pcommon.Value, depth int) bool {
	switch value.Type() {
	case pcommon.ValueTypeSlice:
		for _, member := range value.Slice().All() {
			if depth == 0 || c.deniedWithin(member, depth-1) {
				return true
			}
		}
	case pcommon.ValueTypeMap:
		for name, member := range value.Map().All() {
			if depth == 0 || c.rules.of(name).verdict >= denied || c.deniedWithin(member, depth-1) {
				return true
			}
		}
	default:
	}
	return false
}
