// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package processor

import (
	"context"
	"fmt"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/collector/processor"
	"go.opentelemetry.io/collector/processor/processorhelper"

	"github.com/moonloop/moonloop/processor/internal/metadata"
	"github.com/moonloop/moonloop/receiver/annotate"
)

// mooncakeProcessor annotates the telemetry of one pipeline.
type mooncakeProcessor struct {
	config      *Config
	settings    processor.Settings
	annotator   *annotate.Annotator
	telemetry   *metadata.TelemetryBuilder
	instruments annotate.Instruments
}

func newProcessor(set processor.Settings, cfg *Config) (*mooncakeProcessor, error) {
	a, err := cfg.Annotation.Annotator()
	if err != nil {
		return nil, err
	}
	t, err := metadata.NewTelemetryBuilder(set.TelemetrySettings)
	if err != nil {
		return nil, fmt.Errorf("metrics of the processor: %w", err)
	}
	return &mooncakeProcessor{config: cfg, settings: set, annotator: a, telemetry: t, instruments: annotate.Instruments{
		Spans: t.ProcessorMooncakeSpans, Sessions: t.ProcessorMooncakeSessions, WithoutTokens: t.ProcessorMooncakeWithoutTokens,
		CompletedUsage: t.ProcessorMooncakeCompletedUsage, TruncatedPrompts: t.ProcessorMooncakeTruncatedPrompts,
		GenAISpans: t.ProcessorMooncakeGenaiSpans, InferenceSpans: t.ProcessorMooncakeInferenceSpans,
		LogRecords: t.ProcessorMooncakeLogRecords, Dropped: t.ProcessorMooncakeDropped, RemovedValues: t.ProcessorMooncakeRemovedValues,
	}}, nil
}

func (p *mooncakeProcessor) options() []processorhelper.Option {
	return []processorhelper.Option{
		processorhelper.WithCapabilities(consumer.Capabilities{MutatesData: true}),
		processorhelper.WithStart(func(ctx context.Context, _ component.Host) error {
			p.annotator.Warn(p.settings.Logger)
			p.instruments.Begin(ctx)
			return nil
		}),
		processorhelper.WithShutdown(func(context.Context) error {
			p.telemetry.Shutdown()
			return nil
		}),
	}
}

// traces annotates and cleans spans.
func (p *mooncakeProcessor) traces(ctx context.Context, td ptrace.Traces) (ptrace.Traces, error) {
	p.instruments.Record(ctx, p.annotator.Traces(td))
	return td, nil
}

// logs cleans log records. Their prompts and requests are lost and counted, because a pipeline of logs accepts no spans.
func (p *mooncakeProcessor) logs(ctx context.Context, ld plog.Logs) (plog.Logs, error) {
	if p.config.Annotation.Content == annotate.ContentKeep {
		return ld, nil // unchanged, because a receiver after this processor may use their content
	}
	td, counts := p.annotator.Logs(ld)
	if spans := td.SpanCount(); spans > 0 {
		counts.Drop(annotate.ReasonNoPipeline, int64(spans))
	}
	p.instruments.Record(ctx, counts)
	return ld, nil
}
