// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/xml"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/moonloop/moonloop/study"
)

// Every CI system reads JUnit files: a failure is red, an error is red and says that the test itself could not be done, and a skipped test
// is neither.

type junitSuite struct {
	XMLName  xml.Name    `xml:"testsuite"`
	Name     string      `xml:"name,attr"`
	Tests    int         `xml:"tests,attr"`
	Failures int         `xml:"failures,attr"`
	Errors   int         `xml:"errors,attr"`
	Skipped  int         `xml:"skipped,attr"`
	Cases    []junitCase `xml:"testcase"`
}

type junitCase struct {
	Class   string        `xml:"classname,attr"`
	Name    string        `xml:"name,attr"`
	Failure *junitMessage `xml:"failure"`
	Error   *junitMessage `xml:"error"`
	Skipped *junitMessage `xml:"skipped"`
	Out     string        `xml:"system-out,omitempty"`
}

type junitMessage struct {
	Message string `xml:"message,attr"`
}

// add counts a case and its result.
func (s *junitSuite) add(c junitCase) {
	s.Tests++
	switch {
	case c.Failure != nil:
		s.Failures++
	case c.Error != nil:
		s.Errors++
	case c.Skipped != nil:
		s.Skipped++
	}
	s.Cases = append(s.Cases, c)
}

func (s *junitSuite) write(w io.Writer) error {
	b, err := xml.MarshalIndent(s, "", "  ")
	if err != nil {
		return err
	}
	_, err = io.WriteString(w, xml.Header+string(b)+"\n")
	return err
}

// comparisonJUnit returns a function that writes a suite with a case for each metric. Only the primary metric can fail; exploratory ones are
// skipped unless no difference was found.
func comparisonJUnit(c *study.Comparison) func(io.Writer) error {
	s := junitSuite{Name: "moonloop compare"}
	for i, r := range slices.Concat([]study.Result{c.Primary}, c.Exploratory) {
		text := answerText(r)
		one := junitCase{Class: "primary", Name: r.Metric.String(), Out: text}
		said := &junitMessage{text}
		switch {
		case i > 0:
			one.Class = "exploratory"
			if r.Answer != study.NoDifference {
				one.Skipped = said
			}
		case r.Answer == study.Slower:
			one.Failure = said
		case r.Answer == study.CannotTell:
			one.Error = said
			var out []string
			for _, l := range c.LeftOut {
				out = append(out, fmt.Sprintf("left out: %s: %s", l.Dir, l.Reason))
			}
			one.Out = strings.Join(append([]string{text}, out...), "\n")
		}
		s.add(one)
	}
	return s.write
}
