// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package foreign

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// Format is a format of public traces.
type Format string

// The formats.
const (
	// Bailian is JSON lines of Alibaba's qwen-bailian-usagetraces-anon: seconds, blocks of 16 tokens, chats with parents.
	Bailian Format = "bailian"
	// BurstGPT is the CSV of HPMLL/BurstGPT, with or without the columns Session ID and Elapsed time: seconds from a day 0.
	BurstGPT Format = "burstgpt"
	// Azure is the CSV of AzurePublicDataset's LLM inference traces of 2023 and 2024, and the multimodal one of 2025: dates with
	// a fraction of seven digits, or six and an offset.
	Azure Format = "azure"
)

// ParseFormat reads the name of a format.
func ParseFormat(name string) (Format, error) {
	switch f := Format(name); f {
	case Bailian, BurstGPT, Azure:
		return f, nil
	}
	return "", fmt.Errorf("format %.40q: want %s, %s or %s", name, Bailian, BurstGPT, Azure)
}

// Detect tells the format from the first line of a file, or as much of its beginning as there is. ok is false when it is none of
// them.
func Detect(head []byte) (f Format, ok bool) {
	line, _, _ := bytes.Cut(bytes.TrimLeft(bytes.TrimPrefix(head, utf8BOM), " \t\r\n"), []byte{'\n'})
	if bytes.HasPrefix(line, []byte{'{'}) {
		keys := Keys(line)
		return Bailian, keys["chat_id"] && keys["parent_chat_id"]
	}
	if len(line) > maxHeader {
		return "", false
	}
	names, err := splitCSV(string(bytes.TrimRight(line, "\r")), nil)
	if err != nil {
		return "", false
	}
	has := make(map[string]bool, len(names))
	for _, name := range names {
		has[columnName(name)] = true
	}
	switch {
	case has["contexttokens"] && has["generatedtokens"]:
		return Azure, true
	case has["request tokens"] && has["response tokens"]:
		return BurstGPT, true
	}
	return "", false
}

// maxHeader is the length of the longest line of column names, in bytes.
const maxHeader = 4096

// columnName is a column's name as it is compared.
func columnName(s string) string { return strings.ToLower(strings.TrimSpace(s)) }

// Keys returns the keys of the JSON object that a file begins with, as far as the object is there: enough to tell formats of JSON
// lines apart.
func Keys(head []byte) map[string]bool {
	keys := make(map[string]bool)
	dec := jsontext.NewDecoder(bytes.NewReader(bytes.TrimPrefix(head, utf8BOM)))
	if dec.PeekKind() != '{' {
		return keys
	}
	_, err := dec.ReadToken()
	for err == nil && dec.PeekKind() == '"' {
		var name jsontext.Token
		if name, err = dec.ReadToken(); err == nil {
			keys[name.String()] = true
			err = dec.SkipValue()
		}
	}
	return keys
}

var utf8BOM = []byte("\xef\xbb\xbf")
