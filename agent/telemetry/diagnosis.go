// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package telemetry

import (
	_ "embed"
	"strings"

	"github.com/moonloop/moonloop/agent/send"
)

//go:embed diagnoses.txt
var diagnosesText string

// diagnosis is what an error of an exporter means that has one of the words, and what to do.
type diagnosis struct {
	protocol string // empty: of each
	words    []string
	what     string // empty: the error says it well enough
	cure     string
}

// diagnoses are the lines of diagnoses.txt.
var diagnoses = func() (list []diagnosis) {
	for line := range strings.Lines(diagnosesText) {
		if columns := strings.Split(strings.TrimSuffix(line, "\n"), "\t"); len(columns) == 4 {
			list = append(list, diagnosis{columns[0], strings.Split(columns[1], ", "), columns[2], columns[3]})
		}
	}
	return list
}()

// maxErrorText bounds the error text of a report: a receiver may answer with a whole page.
const maxErrorText = 512

// errorText is what a report says of an error: bounded, without the values of headers, and with a word on what to do where
// the cause is one of certificates and keys.
func errorText(err error) string {
	text := send.Hidden(err.Error(), otlpSecrets())
	return bounded(text) + remedy(text)
}

// bounded cuts a text that is too long for a line.
func bounded(text string) string {
	if len(text) > maxErrorText {
		text = strings.ToValidUTF8(text[:maxErrorText], "") + "…"
	}
	return text
}

// remedy returns what to do about an error, "" where that is not known.
func remedy(text string) string {
	for _, d := range diagnoses {
		if d.what == "" && says(text, d.words...) {
			return " (" + d.cure + ")"
		}
	}
	return ""
}
