// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package annotate

import (
	"context"
	"errors"

	"go.opentelemetry.io/collector/config/configopaque"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.uber.org/zap"

	"github.com/moonloop/moonloop/mooncake"
	"github.com/moonloop/moonloop/semconv"
)

// This file has what the annotating components of a Collector have in common: their settings, their metrics and their warnings.

// CollectorConfig has the settings of a [Config] as a Collector's configuration names them.
type CollectorConfig struct {
	// BlockSize is the number of tokens per block id, 1 to [MaxBlockSize]. Default 512.
	BlockSize int `mapstructure:"block_size"`
	// HashKey is the secret under which prompts and session ids are hashed, used literally: see [ParseKey]. Empty = a random one for this
	// process.
	HashKey configopaque.String `mapstructure:"hash_key"`
	// Content says what happens to text: drop, the default, or keep.
	Content Policy `mapstructure:"content"`
	// SessionKeys are the full names of attributes with a session id, best first. They take precedence over the known ones.
	SessionKeys []string `mapstructure:"session_keys"`
	// ClassKeys are the full names of attributes with the class of a request, likewise. Headers are named http.request.header.NAME.
	ClassKeys []string `mapstructure:"class_keys"`
	// Deny are attributes that are removed from all telemetry, in addition to the known ones. A trailing * matches all names with that
	// beginning.
	Deny []string `mapstructure:"deny"`
	// MessageEnds says whether spans record the ends of the prompt's messages and of the reply. Default true.
	MessageEnds bool `mapstructure:"message_ends"`
	// PromptOrder says, for models, in which order their chat templates write a prompt. The first match applies.
	PromptOrder []ModelOrder `mapstructure:"prompt_order"`
}

// DefaultCollectorConfig returns the default settings.
func DefaultCollectorConfig() CollectorConfig {
	return CollectorConfig{BlockSize: mooncake.BlockSize, Content: ContentDrop, MessageEnds: true}
}

// Config returns the configuration of an [Annotator], or all errors of the settings.
func (c *CollectorConfig) Config() (Config, error) {
	key, err := ParseKey(string(c.HashKey))
	config := Config{
		BlockSize:       c.BlockSize,
		Key:             key,
		Content:         c.Content,
		SessionKeys:     c.SessionKeys,
		ClassKeys:       c.ClassKeys,
		Deny:            c.Deny,
		OmitMessageEnds: !c.MessageEnds,
		PromptOrder:     c.PromptOrder,
	}
	if c.BlockSize == 0 { // only in a [Config], 0 means the default
		err = errors.Join(err, blockSizeError(0))
	}
	return config, errors.Join(err, config.Validate())
}

// Annotator returns an annotator with these settings, or all errors of the settings.
func (c *CollectorConfig) Annotator() (*Annotator, error) {
	config, err := c.Config()
	if err != nil {
		return nil, err
	}
	return New(config)
}

// Warn logs settings that work but are probably not intended.
func (a *Annotator) Warn(logger *zap.Logger) {
	if a.config.Key.IsZero() {
		logger.Warn("hash_key is empty: prompts and sessions are hashed under a random key, so nothing matches what another "+
			"Collector wrote, or this one before a restart; set it to the same 32 bytes or more on all of them, "+
			"for instance to ${env:MOONLOOP_HASH_KEY}",
			zap.String("key_fingerprint", a.fingerprint))
	}
	if a.keeps() {
		logger.Warn("content is keep: the text of prompts and replies stays on spans, logs and metrics")
	}
}

// Instruments are the metrics in which a component reports its [Counts], each with one attribute or none. Metrics of what the component
// does not do are nil.
type Instruments struct {
	Spans, Sessions, WithoutTokens, CompletedUsage, TruncatedPrompts, MetricPoints, CarrierSpans metric.Int64Counter

	GenAISpans     metric.Int64Counter // by dialect
	InferenceSpans metric.Int64Counter // by identity; "annotated" = annotated before
	LogRecords     metric.Int64Counter // by kind
	Dropped        metric.Int64Counter // by reason
	RemovedValues  metric.Int64Counter // by key
}

// Begin creates counters with known attributes before they count anything. Otherwise a rate would miss the first event, and an alert could
// not distinguish zero events from a component that does not count. The counters by dialect and by rule of removal are not created: there
// are too many of them, and most never count.
func (i *Instruments) Begin(ctx context.Context) {
	begin := func(counter metric.Int64Counter, key string, values ...string) {
		for _, value := range values {
			if counter != nil {
				counter.Add(ctx, 0, metric.WithAttributeSet(attribute.NewSet(attribute.String(key, value))))
			}
		}
	}
	for _, counter := range []metric.Int64Counter{
		i.Spans, i.Sessions, i.WithoutTokens, i.CompletedUsage, i.TruncatedPrompts, i.MetricPoints, i.CarrierSpans,
	} {
		if counter != nil {
			counter.Add(ctx, 0)
		}
	}
	begin(i.InferenceSpans, "identity", semconv.IdentityEngine, semconv.IdentityTokens, semconv.IdentityText, semconv.IdentityNone, kindAnnotated)
	begin(i.LogRecords, "kind", kindContent, kindRequest, kindAnnotated, kindOther)
	for _, reason := range reasons {
		begin(i.Dropped, "reason", string(reason))
	}
}

// Kinds of log records, as values of an attribute; kindAnnotated is also an identity.
const (
	kindContent   = "content"
	kindRequest   = "request"
	kindAnnotated = "annotated"
	kindOther     = "other"
)

// Record adds the counts of one call.
func (i *Instruments) Record(ctx context.Context, n Counts) {
	add := func(to metric.Int64Counter, n int64, attributes ...attribute.KeyValue) {
		if n > 0 && to != nil {
			to.Add(ctx, n, metric.WithAttributeSet(attribute.NewSet(attributes...)))
		}
	}
	add(i.Spans, n.Spans)
	add(i.Sessions, n.Sessions)
	add(i.WithoutTokens, n.WithoutTokens)
	add(i.CompletedUsage, n.Completed)
	add(i.TruncatedPrompts, n.Truncated)
	add(i.MetricPoints, n.Points)
	add(i.CarrierSpans, n.Carriers+n.RequestSpans)
	add(i.InferenceSpans, n.Annotated, attribute.String("identity", kindAnnotated))
	add(i.LogRecords, n.ContentLogs, attribute.String("kind", kindContent))
	add(i.LogRecords, n.RequestLogs, attribute.String("kind", kindRequest))
	add(i.LogRecords, n.AnnotatedLogs, attribute.String("kind", kindAnnotated))
	add(i.LogRecords, n.OtherLogs(), attribute.String("kind", kindOther))
	for dialect, n := range n.Dialects {
		add(i.GenAISpans, n, attribute.String("dialect", string(dialect)))
	}
	for identity, n := range n.Identities {
		add(i.InferenceSpans, n, attribute.String("identity", identity))
	}
	for reason, n := range n.Dropped {
		add(i.Dropped, n, attribute.String("reason", string(reason)))
	}
	for rule, n := range n.Removed {
		add(i.RemovedValues, n, attribute.String("key", rule))
	}
}
