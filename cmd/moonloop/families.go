// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package main

import "strings"

// This file lists the flags of other tools that are unrelated to the replay of a trace, by their purpose, so that none of their flags is
// unknown. Each family has one reason, and one line in the documentation.

// family is a group of other tools' flags that have no equivalent here, for one reason.
type family struct {
	tools string
	about string
	state string // ignored or refused
	note  string
	// flags are their names, followed by "=" for a flag with a value, "=…" for one with several.
	flags string
}

// Reasons that several families share.
const (
	ofTrace   = "a replay sends the lengths in the trace: moonloop generate makes a trace with lengths of your choice, and moonloop transform scales those of a trace"
	oneByOne  = "a run has one setting: start a run for each, and use moonloop report or moonloop compare to compare them; moonloop search finds the highest load that an engine can handle"
	itsClient = "its client can send the files that --out DIR has"
	noImages  = "put the images or sounds into messages or payload of the trace's rows"
)

var families = []family{
	{
		aiperf, "texts and lengths of synthetic prompts", refused, ofTrace,
		`prompt-input-tokens-mean= synthetic-input-tokens-mean= isl= prompt-input-tokens-stddev= synthetic-input-tokens-stddev= isl-stddev=
		prompt-output-tokens-stddev= output-tokens-stddev= osl-stddev= seq-dist= sequence-distribution= random-range-ratio= random-corpus-style=
		prompt-batch-size= batch-size-text= batch-size=`,
	},
	{
		aiperf, "prefixes of synthetic prompts", refused, "the trace determines what prompts share: moonloop generate makes a trace with a system prompt, and moonloop transform --prefix-scale and --roots change a trace",
		`system-prompt= system-prompt-file= prompt-prefix-pool-size= prefix-prompt-pool-size= num-prefix-prompts= prompt-prefix-length=
		prefix-prompt-length= shared-system-prompt-length= user-context-prompt-length=`,
	},
	{aiperf, "the text that prompts are made of", refused, "--dataset FILE makes prompts from your text", `prompt-corpus=`},
	{
		aiperf, "synthetic conversations", refused, "turns and the delays between them come from the trace: moonloop generate makes a trace with sessions",
		`conversation-turn-mean= session-turns-mean= conversation-turn-stddev= session-turns-stddev=
		conversation-turn-delay-mean= session-turn-delay-mean= conversation-turn-delay-stddev= session-turn-delay-stddev=
		conversation-turn-delay-ratio= session-delay-ratio=`,
	},
	{
		aiperf, "where sessions begin", ignored, "the first sessions of the trace begin, each with its first turn; moonloop transform --start leaves out the beginning",
		`trajectory-start-min-ratio= trajectory-start-max-ratio=`,
	},
	{aiperf, "rules of a submission", ignored, "a replay is not a submission, so these rules do not restrict settings", `unsafe-override`},
	{
		aiperf, "warm-up of agents", refused, "--warmup-requests N sends whole requests before the schedule starts, --steady-state leaves the ramp-up out of the figures",
		`burst-phase-starts system-idle-gap-cap-seconds= agentic-cache-warmup-duration= agentic-warmup-grace-period=`,
	},
	{aiperf, "parts of data sets to download", refused, "download it, and name the file; moonloop convert --only-model and moonloop transform keep a part", `dataset-filter=`},
	{aiperf, "sounds and videos", refused, noImages, `audio-batch-size= batch-size-audio= audio-length-mean= audio-length-stddev= audio-format=
		audio-depths= audio-sample-rates= audio-num-channels= video-batch-size= batch-size-video= video-duration= video-fps= video-width= video-height=
		video-synth-type= video-format= video-codec= video-audio-sample-rate= video-audio-num-channels= video-audio-codec= video-audio-depth=
		download-video-content uuid-and-strip`},
	{
		aiperf, "rankings", refused, "a replay sends chat, completions and responses",
		`rankings-passages-mean= rankings-passages-stddev= rankings-passages-prompt-token-mean= rankings-passages-prompt-token-stddev=
		rankings-query-prompt-token-mean= rankings-query-prompt-token-stddev=`,
	},
	{
		aiperf, "searches for the best setting", refused, oneByOne,
		`parameter-sweep-cooldown-seconds= parameter-sweep-same-seed no-parameter-sweep-same-seed parameter-sweep-mode= sweep-type= no-sweep-table
		search-space= search-metric= search-stat= search-direction= search-max-iterations= search-initial-points= search-random-seed= search-planner=
		optuna-sampler= optuna-acquisition= optuna-terminator search-percentile-pooling= bo-constraint-mode= variant= sweep-variant= search-sla=
		search-sla-tier= search-recipe= ttft-sla-ms= itl-sla-ms= tpot-sla-ms= e2e-sla-ms= error-rate-sla= slo-attainment-fraction= search-style=
		degradation-threshold= degradation-metric-tag= degradation-stat= isl-min= isl-max= isl-steps= isl-osl-pairs= concurrency-min= concurrency-max=
		concurrency-steps= osl-min= osl-max= osl-steps=`,
	},
	{
		aiperf, "how sure several runs are", refused, "moonloop compare says how certain the difference between two series of runs is",
		`confidence-level= convergence-metric= convergence-stat= convergence-threshold= convergence-mode=`,
	},
	{
		aiperf, "seeds of several runs", ignored, "each run has the seed of --seed",
		`set-consistent-seed no-set-consistent-seed vary-seed-per-trial no-vary-seed-per-trial`,
	},
	{
		aiperf, "right or wrong answers", refused, "a replay measures times, and does not evaluate text",
		`accuracy-benchmark= accuracy-tasks= accuracy-n-shots= accuracy-enable-cot accuracy-no-enable-cot accuracy-grader= accuracy-system-prompt=
		accuracy-verbose export-outputs-json`,
	},
	{
		aiperf, "MLflow and Weights & Biases", refused, itsClient,
		`mlflow-tracking-uri= mlflow-experiment= mlflow-run-name= mlflow-tag= mlflow-parent-run-id= mlflow-artifact-glob= wandb-project= wandb-entity=
		wandb-run-name= wandb-tag=`,
	},
	{
		aiperf, "what OpenTelemetry gets", refused, "--otlp-endpoint sends spans and metrics; resource attributes are in $OTEL_RESOURCE_ATTRIBUTES",
		`stream= otel-resource-attributes= gen-ai-provider=`,
	},
	{aiperf, "metrics of engine and GPU", refused, collectorDo, `gpu-telemetry=… server-metrics=… server-metrics-formats=…`},
	{aiperf, "metrics of engine and GPU, not wanted", ignored, "none are collected", `no-gpu-telemetry no-server-metrics`},
	{
		aiperf, "the network's share", refused, "requests.jsonl has the time to connect and to send of each request",
		`network-latency-automatic network-latency-mean= network-latency-ping-interval=`,
	},
	{aiperf, "ways to route sessions", refused, "--session-header sends the session id; --balance session sends all turns of a session to one engine", `session-routing=`},
	{aiperf, "a load that seeks its limit", refused, "moonloop search finds the highest load that an engine can handle", `adaptive-scale`},
	{aiperf, "the API of a running benchmark", refused, "moonloop agent has one", `api-port= api-host=`},
	{
		aiperf, "processes", ignored, noWorkers,
		`workers-max= max-workers= record-processors= record-processor-service-count= zmq-host= zmq-ipc-path= zmq-dual-bind=`,
	},
	{aiperf, "logs", ignored, "everything noteworthy is printed", `verbose extra-verbose log-level= stats-interval=`},
	{aiperf, "plots", ignored, "report.html in --out has them", `auto-plot no-auto-plot plot-required`},
	{aiperf, "phases of HTTP", ignored, "summary.json and requests.jsonl have them in any case", `export-http-trace show-trace-timing`},
	{aiperf, "what is counted", ignored, "the engine's usage is compared with the row in any case", `use-server-token-count per-chunk-usage apply-chat-template`},
	{aiperf, "hints of recorded traces", ignored, "hash ids are not sent, and output lengths are enforced if the engine supports it (--profile)", `omit-kv-hints force-min-tokens`},
	{aiperf, "output lengths that are only a limit", refused, "--profile openai only sends a limit", `no-force-min-tokens`},
	{aiperf, "the wait for the model", ignored, "--wait-ready asks repeatedly, until the engine lists its models", `wait-for-model-mode= wait-for-model-interval=`},
	{
		aiperf, "images of several sizes, and of a folder", refused, "--image-size is for images whose row does not give their size; rows with messages or payload can contain your own images",
		`image-height-stddev= image-width-stddev= image-source= image-source-sampling=`,
	},
	{aiperf, "the end of the data", ignored, "--loop decides how often the trace is sent", `allow-dataset-wrap no-allow-dataset-wrap`},

	{
		vllms, "other data sets", refused, "a replay sends what the trace says: moonloop convert reads other files, moonloop generate makes traces",
		`input-len= output-len= custom-output-len= custom-ensure-client-side-data custom-skip-chat-template spec-bench-output-len=
		spec-bench-category= sharegpt-output-len= blazedit-min-distance= blazedit-max-distance= asr-max-audio-len-sec= asr-min-audio-len-sec= hf-split=
		hf-name= hf-output-len= bfcl-categories= prefix-repetition-prefix-len= prefix-repetition-suffix-len= prefix-repetition-num-prefixes=
		prefix-repetition-output-len= speed-bench-dataset-subset= speed-bench-output-len= speed-bench-category= random-input-len= random-output-len=
		random-prefix-len= random-batch-size= no-reranker random-mm-base-items-per-request= random-mm-num-mm-items-range-ratio=
		random-mm-limit-mm-per-prompt= random-mm-bucket-config= sonnet-input-len= sonnet-output-len= sonnet-prefix-len=`,
	},
	{vllms, "tables of a data set and random lengths", refused, ofTrace, `random-range-ratio=`},
	{aiperf + " " + vllms, "parts of data sets", refused, "download it, and name the file", `hf-subset=`},
	{vllms, "what other data sets may repeat", ignored, "each row of the trace is sent once, as it is", `no-oversample skip-chat-template enable-multimodal-chat`},
	{vllms, "plots", ignored, "report.html in --out has the timeline, moonloop inspect the lengths", `plot-timeline timeline-itl-thresholds= plot-dataset-stats`},
	{vllms, "requests that only probe", refused, "start a second replay beside this one, of a trace that moonloop generate makes (--turns 1 --output 1 and the rate of the probes): its report has separate figures, and no limit of this replay applies to it", `probe-request-rate=`},
	{vllms, "the tokenizer", ignored, noTokenizer, `skip-tokenizer-init`},

	{
		guidellm, "columns and texts of data sets", refused, "the fields of rows have their names, and --map others",
		`data-column-mapper= data-args=`,
	},
	{
		guidellm, "how data are read", ignored, "the trace is read row by row, in its order",
		`data-preprocessor= data-preprocessors= data-preprocessors-kwargs= data-finalizer= data-sampler= data-num-workers= dataloader-kwargs=
		request-formatter-kwargs= processor-args=`,
	},
	{guidellm, "what the files hold", ignored, alwaysThere, `sample-requests= output-formats=`},
	{guidellm, "several rates in one run", refused, oneByOne, `override=…`},
	{guidellm, "settings in a file of its own", refused, "--config reads settings of ours: moonloop replay --print-config shows their names", `scenario=`},
}

// familyFlags are the flags of all families.
func familyFlags() (flags []alias) {
	for _, f := range families {
		for word := range strings.FieldsSeq(f.flags) {
			name, many, valued := strings.Cut(word, "=")
			takes := ""
			if valued {
				takes = "V" + many
			}
			flags = append(flags, alias{tools: f.tools, name: name, takes: takes, state: f.state, note: f.note})
		}
	}
	return flags
}
