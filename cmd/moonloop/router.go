// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package main

// This file has the verb that shows how well a router uses the caches behind it.

import (
	"fmt"
	"html/template"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/moonloop/moonloop/internal/term"
	"github.com/moonloop/moonloop/study"
)

func newRouterCommand() *cobra.Command {
	var form answerFlags
	var capacity int64
	cmd := &cobra.Command{
		Use:   "router DIR...",
		Short: "Show how well a router uses the caches of the engines behind it",
		Args:  someInputs("one folder or more", "name folders that moonloop replay --out wrote"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := form.check(); err != nil {
				return err
			}
			runs, err := study.ReadRouters(args, capacity)
			if err != nil {
				return err
			}
			a := routerAnswer(runs)
			return form.write(cmd.OutOrStdout(), "moonloop router", strings.Join(args, ", "), map[string]any{"runs": runs}, a.text, a.page)
		},
	}
	f := cmd.Flags()
	add(f, &capacity, "cache-tokens", 0, whole(int64(0), int64(1)<<40))
	form.register(f)
	return cmd
}

var (
	routerHeader   = []string{"run", "policy", "instances", "cached", "as routed", "best routing found", "one infinite cache", "busiest / mean"}
	instanceHeader = []string{"run", "instance", "requests", "prompt tokens", "share", "cached", "as routed"}
)

// policyOf returns who routed the requests.
func policyOf(r *study.Router) string {
	if r.Balance == "" {
		return "router"
	}
	return "--balance " + r.Balance
}

func routerCells(r *study.Router) []string {
	share := func(n int64) string { return fmt.Sprintf("%.2f %%", 100*r.Share(n)) }
	cached := "unknown"
	if r.Cached != nil {
		cached = share(*r.Cached)
	}
	return []string{r.Dir, policyOf(r), strconv.Itoa(len(r.Instances)), cached, share(r.Routed), share(r.Best), share(r.Infinite), fmt.Sprintf("%.2f", r.Imbalance)}
}

func instanceCells(r *study.Router, i *study.Instance) []string {
	share := func(n, of int64) string { return fmt.Sprintf("%.1f %%", 100*float64(n)/float64(max(1, of))) }
	cached := "unknown"
	if i.Cached != nil {
		cached = share(*i.Cached, i.PromptTokens)
	}
	return []string{r.Dir, i.Name, strconv.FormatInt(i.Rows, 10), strconv.FormatInt(i.PromptTokens, 10), share(i.PromptTokens, r.PromptTokens), cached, share(i.Routed, i.PromptTokens)}
}

// routerNotes say where the hits of one infinite cache were lost.
func routerNotes(runs []*study.Router) (notes []string) {
	for _, r := range runs {
		points := func(n int64) string { return fmt.Sprintf("%.2f points", 100*r.Share(n)) }
		note := fmt.Sprintf("%s: one infinite cache would have %.2f %%; of that, the best routing found loses %s, this routing another %s", r.Dir, 100*r.Share(r.Infinite), points(r.Infinite-r.Best), points(r.Best-r.Routed))
		switch {
		case r.Cached == nil:
			note += "; the engines do not report cached tokens"
		case *r.Cached <= r.Routed:
			note += fmt.Sprintf(", and the engines another %s (evicted, or never kept)", points(r.Routed-*r.Cached))
		default:
			note += fmt.Sprintf("; but the engines had %s more than that (a warm cache, or a larger one than --cache-tokens)", points(*r.Cached-r.Routed))
		}
		notes = append(notes, note)
		if r.LeftOut > 0 {
			notes = append(notes, fmt.Sprintf("%s: %s left out: they failed, or their reply names no instance", r.Dir, term.Counted(r.LeftOut, "rows")))
		}
	}
	caches := "infinite caches"
	if c := runs[0].Capacity; c > 0 {
		caches = fmt.Sprintf("caches of %d tokens each", c)
	}
	return append(notes, fmt.Sprintf("simulated: %s, in blocks of %d tokens; shares of the prompt tokens", caches, runs[0].Block))
}

// routerAnswer returns the answer with its figures.
func routerAnswer(runs []*study.Router) *answer {
	all, each := grid{Header: routerHeader}, grid{Header: instanceHeader}
	for _, r := range runs {
		all.Rows = append(all.Rows, routerCells(r))
		for i := range r.Instances {
			each.Rows = append(each.Rows, instanceCells(r, &r.Instances[i]))
		}
	}
	return &answer{Parts: []part{
		{
			ID: "answer", Title: "Prompt tokens from the cache", Drawings: []drawing{{SVG: drawRouters(runs)}}, Table: all, Below: routerNotes(runs),
			Note: "Blue: what the engines had cached. Orange: what the caches of the engines could have had in addition, with the requests that each engine got. Pale: what the best routing found would add. The line ends at what one infinite cache would have.",
		},
		{ID: "instances", Title: "Instances", Table: each},
	}}
}

// drawRouters draws a bar for each run.
func drawRouters(runs []*study.Router) template.HTML {
	const width, left, right, line = 1000.0, 230.0, 90.0, 44.0
	height := line*float64(len(runs)) + 34
	x := func(share float64) float64 { return left + (width-left-right)*share }
	var b strings.Builder
	fmt.Fprintf(&b, `<svg viewBox="0 0 %g %g" role="img" aria-label="Share of the prompt tokens from the cache, for each run">`, width, height)
	for i := range 5 {
		at := float64(i) / 4
		fmt.Fprintf(&b, `<line class="axis" x1="%.1f" x2="%.1f" y1="6" y2="%.1f"/><text class="soft" x="%.1f" y="%.1f" text-anchor="middle">%g %%</text>`,
			x(at), x(at), height-26, x(at), height-8, 100*at)
	}
	for i, r := range runs {
		top := 10 + line*float64(i)
		fmt.Fprintf(&b, `<text x="%.1f" y="%.1f" text-anchor="end">%s</text>`, left-10, top+19, template.HTMLEscapeString(shortened(r.Dir+", "+policyOf(r), 34)))
		bar := func(class string, opacity, from, to float64) {
			if to > from {
				fmt.Fprintf(&b, `<rect class="%s" fill-opacity="%g" x="%.1f" y="%.1f" width="%.1f" height="26"/>`, class, opacity, x(from), top, x(to)-x(from))
			}
		}
		cached := r.Share(r.Routed)
		if r.Cached != nil {
			cached = min(r.Share(*r.Cached), 1)
		}
		bar("a", 1, 0, cached)
		bar("b", 1, cached, r.Share(r.Routed))
		bar("a", 0.3, max(cached, r.Share(r.Routed)), r.Share(r.Best))
		end := r.Share(r.Infinite)
		fmt.Fprintf(&b, `<line class="zero" x1="%.1f" x2="%.1f" y1="%.1f" y2="%.1f"/><line class="axis" x1="%.1f" x2="%.1f" y1="%.1f" y2="%.1f"/><text class="soft" x="%.1f" y="%.1f">%.1f %%</text>`,
			x(max(cached, r.Share(r.Best))), x(end), top+13, top+13, x(end), x(end), top+2, top+24, x(end)+6, top+18, 100*end)
	}
	b.WriteString("</svg>")
	return template.HTML(b.String()) //nolint:gosec // numbers, and names that are escaped
}

// shortened keeps the end of a name, which distinguishes folders.
func shortened(name string, most int) string {
	if r := []rune(name); len(r) > most {
		return "…" + string(r[len(r)-most+1:])
	}
	return name
}
