// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package mooncake

import (
	"bytes"
	"errors"
	"io"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

// errSyntax is the error for a text that is not exactly one JSON object.
var errSyntax = errors.New("invalid JSON")

// syntax describes an error of the tokenizer without its context, which could contain text of the prompt; nil for no error.
func (p *parser) syntax(err error) *RowError {
	if err == nil {
		return nil
	}
	out := &RowError{Rule: "is not valid JSON", Advice: "write one JSON object on each line", Err: errSyntax}
	se, located := errors.AsType[*jsontext.SyntacticError](err)
	switch {
	case errors.Is(err, jsontext.ErrDuplicateName):
		out.Rule, out.Advice = "a key occurs twice in one object", "keep one of the two"
		if located && se.JSONPointer.Parent() == "" { // deeper keys may be prompt text
			out.Field = strings.Trim(word(se.JSONPointer.LastToken()), `"`)
		}
	case errors.Is(err, io.ErrUnexpectedEOF):
		out.Rule = "the row's JSON object does not end"
		out.Advice = "the file may be cut off, or a quote or bracket of the row may be missing"
		if !bytes.HasPrefix(bytes.TrimSpace(p.line), []byte("{")) {
			out.Rule, out.Advice = "the row's JSON does not end, and it is not an object", "write one JSON object on each line"
		}
		p.place = 0
	case located:
		p.place = int(min(max(0, se.ByteOffset), int64(len(p.line))))
		out.Rule = "is not valid JSON at byte " + strconv.FormatInt(p.byteOfLine(), 10)
		if at := p.place; at < len(p.line) {
			if what, advice := stumble(p.line[at:]); what != "" {
				out.Rule += ": " + what
				out.Advice = advice
			}
		}
	}
	return out
}

// byteOfLine returns the position of p.place on its line, in bytes from 1.
func (p *parser) byteOfLine() int64 {
	before := p.line[:p.place]
	if ended := bytes.LastIndexByte(before, '\n'); ended >= 0 {
		return int64(len(before) - ended)
	}
	return p.column + int64(len(before)) + 1
}

// linesBefore returns how many lines of the row end before p.place.
func (p *parser) linesBefore() int64 {
	return int64(bytes.Count(p.line[:max(0, p.place)], []byte{'\n'}))
}

// stumbles are common beginnings of text at which a line stops being JSON, each with advice.
var stumbles = []struct {
	begins       []string
	what, advice string
}{
	{
		[]string{"NaN", "Infinity", "-Infinity", "nan", "inf", "-inf", "None", "undefined"},
		"JSON has no such value",
		"write null, or leave the key out",
	},
	{[]string{"True", "False"}, "JSON has true and false in lower case", "write the file with a JSON library"},
	{[]string{"'"}, "a single quote", "JSON has double quotes; write the file with a JSON library"},
	{[]string{"//", "#", "/*"}, "a comment", "JSON has none; remove it, or read without strict"},
	{[]string{"...", "…"}, "dots", "an example leaves something out here; put it in, or remove the dots"},
	{[]string{"}", "]"}, "a comma or colon before it that nothing follows", "remove the comma, or add the value"},
	{[]string{string(utf8BOM)}, "a byte order mark within the file", "remove it; files may have been joined"},
	{[]string{"\x00"}, "a NUL byte", "the file is damaged, or not UTF-8; copy or convert it anew"},
	{[]string{"[", "{"}, "arrays or objects nested too deeply, or one where none can be", "correct the row"},
	{[]string{"\r"}, "a carriage return within the row", "end lines with LF or CR LF"},
}

// stumble describes how a line continues. It does not quote the line, which may be prompt text.
func stumble(rest []byte) (what, advice string) {
	for _, s := range stumbles {
		if slices.ContainsFunc(s.begins, func(begin string) bool { return bytes.HasPrefix(rest, []byte(begin)) }) {
			return s.what, s.advice
		}
	}
	if r, size := utf8.DecodeRune(rest); r == utf8.RuneError && size <= 1 {
		return "a byte that is not UTF-8", "convert the file to UTF-8, for instance from Latin-1"
	}
	return "", ""
}
