// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"github.com/grafana/grafana-foundation-sdk/go/common"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
	"github.com/grafana/grafana-foundation-sdk/go/prometheus"
	"github.com/grafana/grafana-foundation-sdk/go/stat"
	"github.com/grafana/grafana-foundation-sdk/go/table"
	"github.com/grafana/grafana-foundation-sdk/go/timeseries"
)

// board is a dashboard: what it is for, what its user can choose, and rows of panels.
type board struct {
	uid, title, description string
	from                    string // time range that it opens with
	variables               []variable
	annotations             []annotation
	rows                    []row
}

// variable is a choice at the top of a dashboard: the values of a label.
type variable struct {
	name, label, description string
	metric                   string // that has the label; Prometheus' name, with a selector
	by                       string // the label
	multi                    bool   // several can be chosen, all by default
}

// annotation marks instants on all charts.
type annotation struct{ name, expr, title, color string }

// row is a heading with its panels.
type row struct {
	title  string
	panels []panel
}

// panel is a question and the queries that answer it.
type panel struct {
	title, description string
	unit               string // Grafana's name of the unit
	kind               kind
	wide               uint32 // of 24 columns; 0 is a third for a chart, a sixth for a number, half for a list
	max                float64
	logarithmic        bool
	queries            []query
	steps              []step // colours from a value on
}

type kind uint8

const (
	chart  kind = iota // over time
	number             // now
	list               // a table of labels and values
)

type query struct {
	expr, legend string
	exemplars    bool
}

type step struct {
	from  float64
	color string
}

// source is the variable that names the data source.
const source = "${datasource}"

func (b board) build() (dashboard.Dashboard, error) {
	builder := dashboard.NewDashboardBuilder(b.title).
		Uid(b.uid).
		Description(b.description).
		Tags([]string{"moonloop", "llm"}).
		Timezone("browser").
		Time(b.from, "now").
		Refresh("10s").
		Tooltip(dashboard.DashboardCursorSyncCrosshair).
		Editable().
		WithVariable(dashboard.NewDatasourceVariableBuilder("datasource").Label("Data source").Type("prometheus"))
	for _, v := range b.variables {
		builder.WithVariable(dashboard.NewQueryVariableBuilder(v.name).
			Label(v.label).
			Description(v.description).
			Datasource(ref()).
			Query(dashboard.StringOrMap{String: new("label_values(" + v.metric + ", " + v.by + ")")}).
			Refresh(dashboard.VariableRefreshOnTimeRangeChanged).
			Sort(dashboard.VariableSortAlphabeticalDesc).
			Multi(v.multi).
			IncludeAll(v.multi))
	}
	for _, a := range b.annotations {
		builder.Annotation(dashboard.NewAnnotationQueryBuilder().
			Name(a.name).Datasource(ref()).Enable(true).IconColor(a.color).Expr(a.expr))
	}
	for _, r := range b.rows {
		builder.WithRow(dashboard.NewRowBuilder(r.title))
		for _, p := range r.panels {
			p.add(builder)
		}
	}
	return builder.Build()
}

func ref() common.DataSourceRef {
	return common.DataSourceRef{Type: new("prometheus"), Uid: new(source)}
}

// add appends a panel in the form of its kind.
func (p panel) add(builder *dashboard.DashboardBuilder) {
	switch p.kind {
	case number:
		b := stat.NewPanelBuilder().Title(p.title).Description(p.description).Datasource(ref()).Unit(p.unit).
			Height(4).Span(p.span(4)).NoValue("–").Thresholds(p.thresholds())
		for _, q := range p.queries {
			b.WithTarget(q.target().Instant())
		}
		builder.WithPanel(b)
	case list:
		b := table.NewPanelBuilder().Title(p.title).Description(p.description).Datasource(ref()).Unit(p.unit).
			Height(8).Span(p.span(12)).NoValue("–").
			WithTransformation(dashboard.DataTransformerConfig{Id: "labelsToFields", Options: map[string]any{"mode": "columns"}}).
			WithTransformation(dashboard.DataTransformerConfig{Id: "merge", Options: map[string]any{}})
		for _, q := range p.queries {
			b.WithTarget(q.target().Instant().Format(prometheus.PromQueryFormatTable))
		}
		builder.WithPanel(b)
	default:
		b := timeseries.NewPanelBuilder().Title(p.title).Description(p.description).Datasource(ref()).Unit(p.unit).
			Height(8).Span(p.span(8)).NoValue("–").Min(0).LineWidth(1.5).FillOpacity(6).ShowPoints(common.VisibilityModeNever).
			Legend(common.NewVizLegendOptionsBuilder().DisplayMode(common.LegendDisplayModeList).Placement(common.LegendPlacementBottom).ShowLegend(true)).
			Tooltip(common.NewVizTooltipOptionsBuilder().Mode(common.TooltipDisplayModeMulti))
		if p.max > 0 {
			b.Max(p.max)
		}
		if p.logarithmic {
			b.ScaleDistribution(common.NewScaleDistributionConfigBuilder().Type(common.ScaleDistributionLog).Log(10))
		}
		for _, q := range p.queries {
			b.WithTarget(q.target().Range())
		}
		builder.WithPanel(b)
	}
}

func (p panel) span(usual uint32) uint32 {
	if p.wide > 0 {
		return p.wide
	}
	return usual
}

func (p panel) thresholds() *dashboard.ThresholdsConfigBuilder {
	steps := []dashboard.Threshold{{Color: "text"}}
	for _, s := range p.steps {
		steps = append(steps, dashboard.Threshold{Value: new(s.from), Color: s.color})
	}
	return dashboard.NewThresholdsConfigBuilder().Mode(dashboard.ThresholdsModeAbsolute).Steps(steps)
}

func (q query) target() *prometheus.DataqueryBuilder {
	return prometheus.NewDataqueryBuilder().Expr(q.expr).LegendFormat(q.legend).Exemplar(q.exemplars).Datasource(ref())
}
