// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package page

import (
	"fmt"
	"html"
	"strings"
	"testing"

	"github.com/moonloop/moonloop/agent/measure"
	"github.com/moonloop/moonloop/agent/report/lines"
)

// A figure of the final table is on the page, too, without a line in this package.
func TestFiguresOfTheTable(t *testing.T) {
	var values strings.Builder
	want := 0
	for id, d := range measure.Definitions() {
		if id.Single() {
			fmt.Fprintf(&values, `,%q:{"unit":%q,"avg":1}`, d.Tag, d.Unit)
		} else {
			fmt.Fprintf(&values, `,%q:{"unit":%q,"avg":1,"min":1,"max":1,"p50":1,"p90":1,"p99":1}`, d.Tag, d.Unit)
		}
		if d.Console {
			want++
		}
	}
	summary := strings.Replace(smallSummary, `"time_to_first_token":{"unit":"ms","avg":20,"min":10,"max":40,"p50":20,"p90":35,"p99":40,"count":3}`,
		strings.TrimPrefix(values.String(), ","), 1)
	r := load(t, folder(t, map[string]string{summaryFile: summary, lines.File: line(0, 0, 1, 1, 2)}))
	page := render(t, r)
	for _, d := range measure.Definitions() {
		if d.Console && !strings.Contains(page, fmt.Sprintf(`<th scope="row">%s</th>`, html.EscapeString(d.Title))) {
			t.Errorf("%s is not on the page", d.Title)
		}
	}
	if got := len(r.rows()); got != want+1 {
		t.Errorf("%d figures; want %d, and the lateness", got, want)
	}
	broken := strings.Replace(smallSummary, `"avg":20`, `"avg":"x"`, 1)
	_, err := Load(folder(t, map[string]string{summaryFile: broken, lines.File: line(0, 0, 1, 1, 2)}), 0)
	if err == nil || !strings.Contains(err.Error(), "time_to_first_token") {
		t.Errorf("%v does not name the broken figure", err)
	}
}

// Only a run has a steady state: one within another is not looked at. Otherwise the time to read a summary would grow with their number.
func TestOneSteadyState(t *testing.T) {
	tag := measure.TTFT.String()
	summary := fmt.Sprintf(`{%q:{"avg":1},"steady_state":{%q:{"avg":2},"steady_state":{%q:{"avg":3}}}}`, tag, tag, tag)
	figures, err := summaryFigures([]byte(summary))
	if err != nil || figures[measure.TTFT].Avg == nil || *figures[measure.TTFT].Avg != 2 {
		t.Errorf("%+v, %v", figures, err)
	}
}
