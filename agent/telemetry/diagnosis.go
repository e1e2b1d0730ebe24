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

// diagnosis explains errors of an exporter that contain one of the words, with advice.
type diagnosis struct {
	protocol string // empty: any
	words    []string
	what     string // empty: the error is clear enough
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

// maxErrorText is the maximum length of an error text in a report, because a receiver may answer with a whole page.
const maxErrorText = 512

// errorText returns an error's text for a report: shortened, without the values of headers, and with advice if the cause is about
// certificates and keys.
func errorText(err error) string {
	text := send.Hidden(err.Error(), otlpSecrets())
	return bounded(text) + remedy(text)
}

// bounded cuts a text after maxErrorText bytes.
func bounded(text string) string {
	if len(text) > maxErrorText {
		text = strings.ToValidUTF8(text[:maxErrorText], "") + "…"
	}
	return text
}

// remedy returns advice for an error, "" if there is none.
func remedy(text string) string {
	for _, d := range diagnoses {
		if d.what == "" && says(text, d.words...) {
			return " (" + d.cure + ")"
		}
	}
	return ""
}
