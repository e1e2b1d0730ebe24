// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package acceptance

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"text/tabwriter"
)

// figure is one line of the table at the end.
type figure struct{ run, what, got, want, verdict string }

// figures are collected by the tests, which run one after the other.
var figures []figure

func TestMain(m *testing.M) {
	if app := os.Getenv(appVariable); app != "" {
		os.Exit(runShadowApp(app))
	}
	code := m.Run()
	printFigures()
	os.Exit(code)
}

func printFigures() {
	if len(figures) == 0 {
		return
	}
	table := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "\nRUN\t\tFIGURE\tMEASURED\tMUST BE")
	for _, f := range figures {
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\n", f.run, f.verdict, f.what, f.got, f.want)
	}
	_ = table.Flush()
}

// note adds a figure to the table without a requirement.
func note(t *testing.T, what string, got any) {
	t.Helper()
	figures = append(figures, figure{strings.TrimPrefix(t.Name(), "TestAcceptance"), what, fmt.Sprint(got), "", ""})
}

// equal adds to the table a figure that must have one value.
func equal[T comparable](t *testing.T, what string, got, want T) {
	t.Helper()
	judge(t, what, got, fmt.Sprint(want), got == want)
}

// below adds to the table a figure that must be below a limit.
func below(t *testing.T, what string, got, limit float64) {
	t.Helper()
	judge(t, what, fmt.Sprintf("%.3g", got), fmt.Sprintf("< %g", limit), got < limit)
}

func judge(t *testing.T, what string, got any, want string, ok bool) {
	t.Helper()
	verdict := "ok"
	if !ok {
		verdict = "WRONG"
		t.Errorf("%s: %v, must be %s", what, got, want)
	}
	figures = append(figures, figure{strings.TrimPrefix(t.Name(), "TestAcceptance"), what, fmt.Sprint(got), want, verdict})
}
