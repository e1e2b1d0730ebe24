// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package export

import (
	"archive/zip"
	"bufio"
	"encoding/xml"
	"fmt"
	"io"
	"math"
	"regexp"
	"strconv"
	"strings"
)

// Bounds of Excel.
const (
	sheetRows = 1 << 20
	cellChars = 1<<15 - 1
)

// workbook writes tables as Office Open XML (ECMA-376), one after another, with the little of that format that they need. A library of all
// of it took a tenth of the time in which the command is compiled.
type workbook struct {
	zip    *zip.Writer
	sheets []string
}

// sheet is the last sheet of a workbook. Its errors appear when it is closed.
type sheet struct {
	part *bufio.Writer
	rows int
}

const (
	xmlHead = `<?xml version="1.0" encoding="UTF-8" standalone="yes"?>` + "\n"
	mainNS  = `xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main"`
	// relations, and what is related, are named alike in two places.
	packageNS  = "http://schemas.openxmlformats.org/package/2006/"
	documentNS = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
	typePrefix = "application/vnd.openxmlformats-officedocument.spreadsheetml."
)

// sheet adds a sheet with a header, which stays in view. It claims no extent, to which readers of streams would keep.
func (b *workbook) sheet(name string, header []string) (*sheet, error) {
	b.sheets = append(b.sheets, name)
	part, err := b.zip.Create(fmt.Sprintf("xl/worksheets/sheet%d.xml", len(b.sheets)))
	if err != nil {
		return nil, err
	}
	s := &sheet{part: bufio.NewWriter(part)}
	_, _ = s.part.WriteString(xmlHead + `<worksheet ` + mainNS + `><sheetViews><sheetView workbookViewId="0">` +
		`<pane ySplit="1" topLeftCell="A2" activePane="bottomLeft" state="frozen"/></sheetView></sheetViews><sheetData>`)
	cells := make([]any, len(header))
	for i, h := range header {
		cells[i] = h
	}
	s.add(cells)
	return s, nil
}

// add adds a row of strings, bool, int, int64, float64, and pointers to the latter two. Nil, an empty string and what is no number are empty
// cells.
func (s *sheet) add(cells []any) {
	s.rows++
	_, _ = fmt.Fprintf(s.part, `<row r="%d">`, s.rows)
	for i, cell := range cells {
		kind, value := cellOf(cell)
		if value == "" {
			continue
		}
		_, _ = fmt.Fprintf(s.part, `<c r="%s%d" t="%s">`, letters(i), s.rows, kind)
		if kind == "inlineStr" {
			_, _ = s.part.WriteString(`<is><t xml:space="preserve">`)
			_ = xml.EscapeText(s.part, []byte(value))
			_, _ = s.part.WriteString(`</t></is></c>`)
			continue
		}
		_, _ = s.part.WriteString(`<v>` + value + `</v></c>`)
	}
	_, _ = s.part.WriteString(`</row>`)
}

// close ends the sheet.
func (s *sheet) close() error {
	_, _ = s.part.WriteString(`</sheetData></worksheet>`)
	return s.part.Flush()
}

// escaped is what a reader of a cell's text would take for a character by its number.
var escaped = regexp.MustCompile(`_(x[0-9A-Fa-f]{4}_)`)

// cellOf returns a value's type and text in a sheet. Text is never a formula.
func cellOf(cell any) (kind, value string) {
	switch v := cell.(type) {
	case string:
		if len(v) > cellChars {
			v = strings.ToValidUTF8(v[:cellChars], "")
		}
		return "inlineStr", escaped.ReplaceAllString(v, "_x005F_$1")
	case bool:
		if v {
			return "b", "1"
		}
		return "b", "0"
	case int:
		return "n", strconv.Itoa(v)
	case int64:
		return "n", strconv.FormatInt(v, 10)
	case *int64:
		if v != nil {
			return cellOf(*v)
		}
	case float64:
		if !math.IsNaN(v) && !math.IsInf(v, 0) {
			return "n", strconv.FormatFloat(v, 'f', -1, 64)
		}
	case *float64:
		if v != nil {
			return cellOf(*v)
		}
	}
	return "", ""
}

// letters names a column: A to Z, AA to ZZ, and so on.
func letters(column int) string {
	last := string(rune('A' + column%26))
	if column < 26 {
		return last
	}
	return letters(column/26-1) + last
}

// close writes what tells readers where the sheets are, and ends the file.
func (b *workbook) close() error {
	var types, sheets, relations strings.Builder
	for i, name := range b.sheets {
		n := i + 1
		_, _ = fmt.Fprintf(&types, `<Override PartName="/xl/worksheets/sheet%d.xml" ContentType="%sworksheet+xml"/>`, n, typePrefix)
		_, _ = fmt.Fprintf(&sheets, `<sheet name="%s" sheetId="%d" r:id="rId%d"/>`, name, n, n)
		_, _ = fmt.Fprintf(&relations, `<Relationship Id="rId%d" Type="%s/worksheet" Target="worksheets/sheet%d.xml"/>`, n, documentNS, n)
	}
	for _, part := range []struct{ name, content string }{
		{"xl/workbook.xml", `<workbook ` + mainNS + ` xmlns:r="` + documentNS + `"><bookViews><workbookView/></bookViews><sheets>` + sheets.String() + `</sheets></workbook>`},
		{"xl/_rels/workbook.xml.rels", `<Relationships xmlns="` + packageNS + `relationships">` + relations.String() + `</Relationships>`},
		{"_rels/.rels", `<Relationships xmlns="` + packageNS + `relationships"><Relationship Id="rId1" Type="` + documentNS + `/officeDocument" Target="xl/workbook.xml"/></Relationships>`},
		{"[Content_Types].xml", `<Types xmlns="` + packageNS + `content-types"><Default Extension="rels" ContentType="application/vnd.openxmlformats-package.relationships+xml"/>` +
			`<Override PartName="/xl/workbook.xml" ContentType="` + typePrefix + `sheet.main+xml"/>` + types.String() + `</Types>`},
	} {
		w, err := b.zip.Create(part.name)
		if err != nil {
			return err
		}
		if _, err := io.WriteString(w, xmlHead+part.content); err != nil {
			return err
		}
	}
	return b.zip.Close()
}
