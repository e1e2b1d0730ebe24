// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package page

import (
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"strings"
	"sync"
)

// Results over several runs are pages with the look of a run's page. They have no script: their charts are SVG, and they follow the
// reader's choice of a light or a dark theme.

var (
	//go:embed assets/document.html
	documentHTML string
	//go:embed assets/drawing.css
	drawingCSS string
)

var documentTemplate = sync.OnceValue(func() *template.Template { return template.Must(template.New("document").Parse(documentHTML)) })

// writeDocument writes a page in this style, which needs no network, no other file and no script. The text of the body must be escaped.
func writeDocument(w io.Writer, product, title string, body template.HTML) error {
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
	if err := documentTemplate().Execute(w, v); err != nil {
		return fmt.Errorf("the page cannot be written: %w", err)
	}
	return nil
}

// SaveDocument writes such a page to a file, which it replaces when the page is complete.
func SaveDocument(name, product, title string, body template.HTML) error {
	return save(name, func(w io.Writer) error { return writeDocument(w, product, title, body) })
}
