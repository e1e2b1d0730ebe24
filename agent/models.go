// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package agent

// This file settles which model each row asks for, and what each model's chat template adds to a prompt.

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/moonloop/moonloop/agent/load"
	"github.com/moonloop/moonloop/agent/prompt"
	"github.com/moonloop/moonloop/agent/send"
	"github.com/moonloop/moonloop/agent/telemetry"
	"github.com/moonloop/moonloop/mooncake"
	"github.com/moonloop/moonloop/semconv"
)

const (
	// maxMeasured bounds the models whose templates are measured, two requests each: those with the most rows.
	maxMeasured = 16
	// maxNamed bounds the models that a message names.
	maxNamed = 8
)

// oneModel returns the model that the configuration sends every row to, or "".
func (c *Config) oneModel() string {
	var extra struct{ Model string }
	_ = json.Unmarshal(c.Prompt.Extra, &extra) // what is wrong with it is said elsewhere
	return cmp.Or(extra.Model, c.Target.Model)
}

// chooseModel settles which model rows ask for that name none, and says what is odd about those that rows name.
func (r *run) chooseModel(ctx context.Context) (fallback string, err error) {
	listed, err := r.reach(ctx)
	if away := r.unreachable(ctx, err); away != nil {
		return "", away
	}
	named := slices.DeleteFunc(slices.Clone(r.stream.Info().Models), func(m load.ModelRows) bool { return m.Name == "" })
	all := len(named) > 0 && len(named) == len(r.stream.Info().Models)
	one := r.cfg.oneModel()
	needed := one == "" && !all // a model for the rows that name none
	switch {
	case err != nil && needed:
		return "", fmt.Errorf("engine %s: list its models: %w", r.engine(), withCures(err, r.listCures(err)))
	case err != nil: // an engine need not list its models to serve one
		if failed, _ := errors.AsType[*send.Error](err); failed == nil || failed.Status != http.StatusNotFound && failed.Status != http.StatusMethodNotAllowed {
			r.warn("engine %s does not list its models: %v", r.engine(), withCures(err, r.listCures(err)))
		}
	case len(listed) == 0 && needed:
		return "", fmt.Errorf("engine %s names no model; name one with --model", r.engine())
	}
	if needed {
		fallback = listed[0]
	}
	others := named
	switch {
	case one != "":
		others = slices.DeleteFunc(others, func(m load.ModelRows) bool { return m.Name == one })
		if len(others) > 0 {
			r.note("other models in %s (%s): every row goes to the one that the command line names", r.rowsOf(others), modelNames(others))
		}
	case len(listed) > 0:
		others = slices.DeleteFunc(others, func(m load.ModelRows) bool { return slices.Contains(listed, m.Name) })
		if len(others) > 0 {
			r.warn("models in %s that the engine does not list (%s): these rows may fail; it lists %s; --model NAME sends every row to one model",
				r.rowsOf(others), modelNames(others), names(listed))
		}
	}
	return fallback, nil
}

// mainModel is the model that telemetry and report name where they name one: that of every row, or that of the most rows of
// the look-ahead.
func (r *run) mainModel() string {
	most, rows := r.builder.Model(new(mooncake.Row)), 0
	for _, m := range r.stream.Info().Models {
		if m.Rows > rows {
			most, rows = r.builder.Model(&mooncake.Row{Model: m.Name}), m.Rows
		}
	}
	return most
}

// listCures says what to do about an engine that does not list its models.
func (r *run) listCures(err error) []string {
	failed, _ := errors.AsType[*send.Error](err)
	switch {
	case failed == nil:
		return nil
	case failed.Status == http.StatusUnauthorized, failed.Status == http.StatusForbidden:
		return []string{r.keyCure()}
	case failed.Status/100 == 3, errors.Is(failed, send.ErrPage): // its message says it
		return nil
	}
	cure := "is the URL an OpenAI-compatible engine's base URL?"
	if r.cfg.Target.Model == "" {
		cure += " If it is, name the model with --model"
	}
	return []string{cure}
}

// keyCure says what to do about an engine that wants a key.
func (r *run) keyCure() string {
	if r.cfg.Target.APIKey != "" {
		return "is the API key right? --api-key-env or --api-key-file gives it"
	}
	return "it wants an API key: --api-key-env or --api-key-file gives one"
}

// rowsOf says how many rows some models have, as far as the look-ahead tells.
func (r *run) rowsOf(models []load.ModelRows) string {
	n := 0
	for _, m := range models {
		n += m.Rows
	}
	if info := r.stream.Info(); !info.Whole {
		return fmt.Sprintf("%d of the first %d rows", n, info.Rows)
	}
	if n == 1 {
		return "1 row"
	}
	return fmt.Sprintf("%d rows", n)
}

func modelNames(models []load.ModelRows) string {
	list := make([]string, len(models))
	for i, m := range models {
		list[i] = m.Name
	}
	return names(list)
}

// names lists the first few names of models.
func names(list []string) string {
	var quoted []string
	for _, name := range list[:min(len(list), maxNamed)] {
		quoted = append(quoted, fmt.Sprintf("%.64q", name))
	}
	text := strings.Join(quoted, ", ")
	if more := len(list) - maxNamed; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// calibrate measures what the engine adds to the prompts of each model that the look-ahead shows, and builds with it. Models
// that come later, are too many, or are unknown to the engine are taken to be like the measured one with the most rows. Where the usual
// words are not one token each, it finds others.
func (r *run) calibrate(ctx context.Context) error {
	rows := make(map[string]int)
	for _, m := range r.stream.Info().Models {
		rows[r.builder.Model(&mooncake.Row{Model: m.Name})] += m.Rows
	}
	var models []string
	for _, m := range r.stream.Info().Models { // in their order, so that equals stay in it
		if name := r.builder.Model(&mooncake.Row{Model: m.Name}); !slices.Contains(models, name) {
			models = append(models, name)
		}
	}
	if len(models) == 0 { // only payloads
		models = []string{r.builder.Model(new(mooncake.Row))}
	}
	slices.SortStableFunc(models, func(a, b string) int { return cmp.Compare(rows[b], rows[a]) })
	models = models[:min(len(models), maxMeasured)]
	err := r.measureAll(ctx, models)
	for _, way := range []string{byTokenize, byUsage} {
		if !errors.Is(err, prompt.ErrNotStable) {
			break
		}
		found := r.findWords(ctx, way, models)
		switch {
		case found == nil:
			err = r.measureAll(ctx, models)
		case ctx.Err() != nil:
			return found
		case way == byUsage:
			err = fmt.Errorf("%w; no other words serve: %w", err, found)
		}
	}
	if err == nil && r.opt.Words != prompt.CommonLexicon() {
		r.noteWords()
	}
	return err
}

// noteWords says what prompts are made of, where it is not what they usually are.
func (r *run) noteWords() {
	l, by, letters := r.opt.Words, "/"+byTokenize, "letters"
	if r.found.Found == byUsage {
		by = "counts of prompts"
	}
	if l.Letters() == 1 {
		letters = "letter"
	}
	r.note("words: the usual ones are not one token each on this engine; prompts are made of %d others of %d %s (found by its %s in %d requests)",
		l.Len(), l.Letters(), letters, by, r.found.Requests)
}

// measureAll measures models, and builds with what came out.
func (r *run) measureAll(ctx context.Context, models []string) error {
	r.noTurns = nil
	measured := make(map[string]prompt.Overhead, len(models))
	var texts []string
	var unknown error
	for _, model := range models {
		over, err := r.measure(ctx, model)
		if failed, _ := errors.AsType[*send.Error](err); failed != nil && failed.Status == http.StatusNotFound {
			unknown = errors.Join(unknown, err) // rows of other models can still be sent
			continue
		}
		if err != nil {
			return err
		}
		if len(measured) == 0 {
			r.opt.Overhead, r.opt.TurnOverhead = over.Prompt, over.Turn
		}
		measured[model] = over
		texts = append(texts, fmt.Sprintf("%.64q %d", model, over.Prompt))
	}
	switch {
	case len(measured) == 0:
		return unknown
	case unknown != nil:
		r.warn("%v", unknown)
	}
	if len(models) > 1 {
		r.note("tokens that the chat template of each model adds to a prompt: %s", strings.Join(texts, ", "))
	}
	r.opt.Measured = measured
	return r.build()
}

// measure learns from two requests, three where prompts have several turns, how many tokens the engine adds to a prompt of a
// model, and proves that a generated word costs it exactly one. Where turns are only for live replies, an engine that does not
// take them, or does not count them as it should, is noted: such replies can be left out.
func (r *run) measure(ctx context.Context, model string) (over prompt.Overhead, err error) {
	delta := r.stream.Info().Sessions == mooncake.SessionDelta
	turns := (delta || r.carry != nil) && r.opt.Endpoint == prompt.Chat
	var counted []int64
	for i, req := range r.builder.Calibration(model, turns) {
		n, err := r.countPrompt(ctx, model, "calibration "+model, int64(i), req)
		if err != nil {
			if i < 2 || delta || ctx.Err() != nil {
				return over, err
			}
			r.noTurns, turns = err, false
			break
		}
		counted = append(counted, n)
	}
	if over.Prompt, err = prompt.Solve(counted[0], counted[1]); err != nil {
		return over, fmt.Errorf("calibration: %w", err)
	}
	if turns {
		if over.Turn, err = prompt.SolveTurn(counted[0], counted[2]); err != nil {
			if delta {
				return over, fmt.Errorf("calibration: %w", err)
			}
			r.noTurns = fmt.Errorf("calibration: %w", err)
		}
	}
	return over, nil
}

// countPrompt asks for one token of a reply, to learn how many the prompt of a request has. No engine records it by its traceparent,
// which what and i make.
func (r *run) countPrompt(ctx context.Context, model, what string, i int64, req send.Request) (int64, error) {
	var reply struct {
		ID    string
		Usage *struct {
			PromptTokens int64 `json:"prompt_tokens"`
		}
	}
	_, stop := r.tell(fmt.Sprintf("the reply to a calibration request (model %.64q)", model), 2*r.bound(send.CallLimit))
	defer stop()
	header := http.Header{"Traceparent": {unrecorded(r.cfg.RunID+" "+what, i)}}
	began := r.clk.Now()
	err := r.client.JSON(ctx, req.Path, header, req.Body, &reply)
	r.asked(model, r.client.Hidden(reply.ID), began)
	if err != nil {
		return 0, r.calibrationError(ctx, req.Path, model, err)
	}
	if reply.Usage == nil {
		return 0, errors.New("calibration: the engine counts no tokens (no usage in its reply); state its template's overhead with --overhead, or send token ids: --endpoint=completions --prompt=tokens")
	}
	return reply.Usage.PromptTokens, nil
}

// asked notes a request that the engine was asked something by, for its span.
func (r *run) asked(model, response string, began time.Duration) {
	r.apart = append(r.apart, telemetry.Apart{Name: semconv.SpanMeasure, Model: model, Response: response, From: began, To: r.clk.Now()})
}

// calibrationError says what was asked of the engine, what came, and what to do.
func (r *run) calibrationError(ctx context.Context, path, model string, err error) error {
	const skip = "--overhead N, the tokens that the engine's chat template adds to a prompt, skips calibration"
	var cures []string
	failed, _ := errors.AsType[*send.Error](err)
	switch {
	case ctx.Err() != nil, failed == nil:
	case failed.Status == http.StatusUnauthorized, failed.Status == http.StatusForbidden:
		cures = []string{r.keyCure()}
	case failed.Status == http.StatusNotFound:
		cures = []string{"does the engine serve this model under this path? --model NAME sends every row to another one"}
	case failed.Status/100 == 3, failed.Class == send.ClassProtocol: // its message says it
	case failed.Status == http.StatusServiceUnavailable:
		cures = []string{"is it still loading its model? --wait-ready 5m waits for it"}
	default:
		cures = []string{skip}
	}
	return fmt.Errorf("calibration: engine %s: POST %s, %.64q, a short prompt and 1 token of output: %w", r.engine(), path, model, withCures(err, cures))
}
