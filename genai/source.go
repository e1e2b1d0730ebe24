// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package genai

import "go.opentelemetry.io/collector/pdata/pcommon"

// form is the form of a prompt or a reply in telemetry.
type form uint8

const (
	formNone     form = iota
	formDocument      // one attribute: JSON, structured or plain text
	formText          // one attribute that is text even if it looks like JSON
	formFlat          // attributes below a prefix
	formEvents        // span events, one per message
	formMessage       // a log record's body, one message
	formParts         // for a reply: an attribute with the text, one with the calls
	formList          // for a reply: among the events of a prompt, in one attribute
	formChoice        // for a reply: the attributes of a span event, or the body of a log record
)

// source is the location of a prompt or a reply in the telemetry. It refers to buffers of the reader, too.
type source struct {
	reader     *Reader
	form       form
	value      pcommon.Value // not for formFlat, formEvents and formChoice; for formParts the text
	attributes pcommon.Map
	prefix     string // of formFlat, and of flattened messages that can replace a document
}

// Present reports whether there may be content. It may still turn out to have no text.
func (s *source) Present() bool { return s.form != formNone }

// choose makes a value the source, unless there is one.
func (s *source) choose(v pcommon.Value, form form) {
	if !s.Present() {
		s.value, s.form = v, form
	}
}
