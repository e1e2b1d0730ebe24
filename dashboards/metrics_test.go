// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/moonloop/moonloop/semconv"
	"go.yaml.in/yaml/v3"
)

// ofTheCollector are the Collector's own metrics, from other packages. test/collector finds them in a scrape of the distribution.
var ofTheCollector = []semconv.Metric{queueSize, queueCapacity, processMemory, processCPU}

// componentMetrics returns the series of the metrics that our components declare, in Prometheus' spelling.
func componentMetrics() map[string]bool {
	files, err := filepath.Glob("../*/metadata.yaml")
	if err != nil || len(files) < 3 {
		panic(fmt.Sprintf("%d components: %v", len(files), err))
	}
	all := map[string]bool{}
	for _, name := range files {
		content, err := os.ReadFile(name)
		if err != nil {
			panic(err)
		}
		var declared struct {
			Telemetry struct {
				Metrics map[string]struct {
					Unit                  string
					Sum, Gauge, Histogram *struct{}
				}
			}
		}
		if err := yaml.Unmarshal(content, &declared); err != nil {
			panic(err)
		}
		for name, m := range declared.Telemetry.Metrics {
			switch metric := own(name, m.Unit); {
			case m.Sum != nil:
				all[counter(metric)] = true
			case m.Gauge != nil:
				all[gauge(metric)] = true
			case m.Histogram != nil:
				all[classic(metric)] = true
			}
		}
	}
	return all
}

// allMetrics returns the metrics that package semconv declares, read from its source: the language has no list of a package's
// variables.
func allMetrics() (all []semconv.Metric) {
	files, err := filepath.Glob("../semconv/metrics_*.go")
	if err != nil {
		panic(err)
	}
	for _, name := range files {
		content, err := os.ReadFile(name)
		if err != nil {
			panic(err)
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, content, 0)
		if err != nil {
			panic(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			composite, ok := n.(*ast.CompositeLit)
			if !ok {
				return true
			}
			var m semconv.Metric
			for _, e := range composite.Elts {
				pair, ok := e.(*ast.KeyValueExpr)
				if !ok {
					return true
				}
				literal, ok := pair.Value.(*ast.BasicLit)
				if !ok || literal.Kind != token.STRING {
					continue
				}
				value, err := strconv.Unquote(literal.Value)
				if err != nil {
					panic(err)
				}
				switch pair.Key.(*ast.Ident).Name {
				case "Name":
					m.Name = value
				case "Unit":
					m.Unit = value
				}
			}
			if strings.Contains(m.Name, ".") {
				all = append(all, m)
			}
			return false
		})
	}
	return all
}
