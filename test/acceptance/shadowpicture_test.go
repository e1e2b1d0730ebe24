// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package acceptance

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// This file draws what TestAcceptanceShadow measured: docs/shadow.svg.

const (
	pictureStep = 10 * time.Second // requests within this time are counted together
	pictureLeft = 62.0
	pictureWide = 760.0
	panelHigh   = 150.0
)

// picture draws production's and the replay's requests over the event time, and the lag of each ten seconds.
func (l *shadowLoop) picture(truth, seen []shadowTruth, rows map[string]*shadowRow) error {
	first := truth[0].at
	steps := int(truth[len(truth)-1].at.Sub(first)/pictureStep) + 1
	step := func(at time.Time) int { return int(at.Sub(first) / pictureStep) }
	production, replay, lag := make([]float64, steps), make([]float64, steps), make([]float64, steps)
	for _, r := range truth {
		production[step(r.at)]++
		if row := rows[r.span]; row != nil && row.sent > 0 {
			lag[step(r.at)] = max(lag[step(r.at)], row.lateness)
		}
	}
	for _, r := range seen {
		if i := step(r.at.Add(-l.delay)); i >= 0 && i < steps {
			replay[i]++
		}
	}
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %g 430" font-family="system-ui, sans-serif" font-size="12">
<rect width="100%%" height="100%%" fill="#ffffff"/>
`, pictureWide)
	x := func(i float64) float64 { return pictureLeft + (pictureWide-pictureLeft-20)*i/float64(max(1, steps-1)) }
	panel := func(top float64, title, unit string, series ...[]float64) {
		most := 1.0
		for _, s := range series {
			for _, v := range s {
				most = max(most, v)
			}
		}
		most *= 1.1
		y := func(v float64) float64 { return top + panelHigh*(1-v/most) }
		fmt.Fprintf(&b, `<text x="%g" y="%g" font-weight="600" fill="#222222">%s</text>`+"\n", pictureLeft, top-10, title)
		for i := range 3 {
			v := most * float64(i) / 2
			fmt.Fprintf(&b, `<path d="M%g %.1f H%g" stroke="#dddddd"/><text x="%g" y="%.1f" text-anchor="end" fill="#555555">%.3g%s</text>`+"\n",
				pictureLeft, y(v), pictureWide-20, pictureLeft-6, y(v)+4, v, unit)
		}
		for n, s := range series {
			var d strings.Builder
			for i, v := range s {
				fmt.Fprintf(&d, "%c%.1f %.1f", "ML"[min(i, 1)], x(float64(i)), y(v))
			}
			fmt.Fprintf(&b, `<path d="%s" fill="none" stroke="%s" stroke-width="%g"/>`+"\n", d.String(), []string{"#2a6fbb", "#d9822b"}[n], []float64{3, 1.4}[n])
		}
	}
	panel(50, "Requests in ten seconds: production (blue), the replay (orange), without the delay", "", production, replay)
	panel(250, "Lag: the maximum of each ten seconds", " ms", lag)
	for n, k := range l.kills {
		at := k.from // will be the event time at which the kill shows
		if k.part == "shadow" || k.part == "engine under test" {
			at = at.Add(-l.delay)
		}
		i := float64(at.Sub(first)) / float64(pictureStep)
		fmt.Fprintf(&b, `<path d="M%.1f 50 V400" stroke="#b03030" stroke-dasharray="4 3"/><text x="%.1f" y="%d" fill="#b03030">%s killed</text>`+"\n", x(i), x(i)+4, 62+14*(n%2), k.part)
	}
	for minute := 0; minute*6 < steps; minute += max(1, steps/60) {
		fmt.Fprintf(&b, `<text x="%.1f" y="420" text-anchor="middle" fill="#555555">%d min</text>`+"\n", x(float64(minute*6)), minute)
	}
	b.WriteString("</svg>\n")
	return os.WriteFile(filepath.Join(l.dir, "shadow.svg"), []byte(b.String()), 0o644)
}
