// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package page

import (
	"fmt"
	"html/template"
	"io"
	"strings"
)

// Results over several runs are pages with the look of a run's page. They have no script: their charts are SVG, and their theme is the
// reader's.

var documentTemplate = template.Must(template.New("document").Parse(`<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{{.Policy}}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="referrer" content="no-referrer">
<title>{{.Title}} · {{.Product}}</title>
<style>{{.Style}}</style>
</head>
<body>
<header><div>
<p class="product">{{.Product}}</p>
<h1>{{.Title}}</h1>
</div></header>
<main>{{.Body}}</main>
</body>
</html>
`))

const drawingCSS = `
svg { display: block; width: 100%; height: auto; }
svg text { fill: var(--text); font: 12px system-ui, "DejaVu Sans", sans-serif; }
svg .soft { fill: var(--soft); }
svg .axis { stroke: var(--line); } svg .zero { stroke: var(--soft); stroke-dasharray: 3 3; } svg .band { fill: var(--grid); }
svg .a { fill: var(--a); } svg .b { fill: var(--b); } svg .bad { fill: var(--d); stroke: var(--d); } svg .good { fill: var(--valid); stroke: var(--valid); }
svg .open { fill: var(--soft); stroke: var(--soft); } svg line { stroke-width: 2; } svg .axis, svg .zero { stroke-width: 1; }
svg .curve { fill: none; stroke-width: 2; } svg .curve.a { stroke: var(--a); } svg .curve.b { stroke: var(--b); }
.scroll td.wrap { white-space: normal; }
`

// WriteDocument writes a page in this style, which needs no network, no other file and no script. The text of the body must be escaped.
func WriteDocument(w io.Writer, product, title string, body template.HTML) error {
	style := pageCSS + drawingCSS
	if _, dark, ok := strings.Cut(pageCSS, ":root.dark {"); ok {
		dark, _, _ = strings.Cut(dark, "}")
		style += "@media (prefers-color-scheme: dark) { :root {" + dark + "} }\n"
	}
	v := struct {
		Policy, Product, Title string
		Style                  template.CSS
		Body                   template.HTML
	}{"default-src 'none'; base-uri 'none'; form-action 'none'; style-src '" + hash(style) + "'", product, title, template.CSS(style), body} //nolint:gosec // our own
	if err := documentTemplate.Execute(w, v); err != nil {
		return fmt.Errorf("the page cannot be written: %w", err)
	}
	return nil
}

// SaveDocument writes such a page to a file, which it replaces when the page is complete.
func SaveDocument(name, product, title string, body template.HTML) error {
	return save(name, func(w io.Writer) error { return WriteDocument(w, product, title, body) })
}
