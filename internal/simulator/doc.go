// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

// Package simulator is an OpenAI-compatible engine without a model: for tests, demos and continuous
// integration, not for production. It answers chat and text completions, streamed and whole, keeps a block prefix cache, takes
// the time that its latency model states, and records for every request what it received, what it wrote and when, so that a
// client's figures can be checked against the truth.
//
// An [Engine] is an [http.Handler]. It uses nothing but the standard clock and timers, never spins, and runs no
// goroutine of its own, so it also works inside a testing/synctest bubble with in-memory connections. The
// zero [Config] is an engine of zero latency with an infinite cache of 512-token blocks.
//
// # Endpoints
//
// POST /v1/chat/completions, /v1/completions, /v1/responses, /v1/messages and /v1/embeddings; TGI's /generate and /generate_stream; GET
// /v1/models, /health and /metrics; with [Config].Like also POST /tokenize, and, if it imitates vLLM, /reset_prefix_cache. Errors have
// OpenAI's format, {"error":{"message","type","param","code"}}. The request header X-Simulate-Fault asks for one fault,
// X-Simulate-Tool-Calls: 1 for a reply of tool calls. The reply header X-Simulator-Seq is [Record].Seq.
//
// # Tokens
//
// Text is split at ASCII white space; each word is one token, whatever its length. "go" followed by n times
// " word" is n+1 tokens. With [Tokenizer].WordBytes a longer word is several tokens, and the words of replies have at most that
// many bytes. A token id in a prompt is a token as it is; the id of a word is its hash, below [Tokenizer].Vocabulary. A chat is
// rendered, by [Template], to
//
//	begin · tools · (header of role · content · end)* · header of the assistant
//
// with PerPrompt = begin + the last header and PerMessage = header + end tokens, so one message of n words is
// n + PerPrompt + PerMessage tokens. By default both are 5, the figures of the Llama-3 template: 1 begin, 4
// header, 1 end. Tools and tool calls count as the words of their JSON text. The cache sees the rendered
// tokens, so two chats share their common beginning and no more. A prompt of the ids that /tokenize and return_token_ids (both
// as in vLLM) return for a text equals that text. With [Template].SystemLast the system text moves into the last user message,
// so that turns of a conversation share less than their messages do.
//
// A reply has exactly max_completion_tokens (or max_tokens) tokens, finish_reason "length". If the request gives neither, the reply has
// [Config].DefaultMaxTokens and finish_reason "stop". With [Config].EarlyStop = s, a share s of the requests without ignore_eos ends at a
// length that is uniform in [max(1, min_tokens), max], "stop" when below max. Text and early stops are a function of the seed and the
// prompt, so equal prompts have equal replies.
//
// # Faults
//
// A request may meet a fault: by its header, or drawn at the rates of [Faults] from the seed and its number. The
// faults are of three kinds, and [FaultNames] has all of them: another reply (429, 503, a page of HTML, errors in the
// shapes of several engines), a stream that breaks after [Faults].After tokens (an error event, a cut, a stall, a silent
// end), and whole replies in shapes that some engine has and that a client must accept (comments, CR LF, a byte-order mark,
// usage in every place or none, several tokens a chunk, bytes one at a time). A request that met a fault ends as [Faulted].
//
// # Prefix cache
//
// A block is BlockSize tokens; its id is the running XXH64 of all tokens up to its end, mixed with model and
// cache_salt, so an id stands for its block and all before it. Only full blocks are looked up. The hit of a request is the longest run of
// its leading blocks that are resident; if these are k blocks, cached_tokens = BlockSize · k. Then its blocks are touched from last to
// first, so that the root ends most recent and, at equal age, the tail is evicted first (LRU leaf first). Only after that, blocks are
// evicted until [Cache].Blocks of them are left. Lookup and commit are one atomic step at admission, or, with [Cache].CommitAfterPrefill,
// lookup at admission and commit when the prefill is done. With [Cache].RecomputeLast at most n-1 tokens of a prompt of n count as cached,
// as in vLLM. With [Cache].Replies the blocks of prompt and reply without its last token are committed when the request ends, however it
// ends. Blocks in use are not pinned.
//
// With [Cache].Slots each slot has its own cache: the content of its last request, of which a prompt hits the beginning that it
// shares. A request takes the free slot that shares most, if that is above a tenth of its prompt, else the one that was free
// longest, and so overwrites what another request may have wanted. A slot that is about to lose more than half of its content
// saves it in [Cache].Saved blocks, of which the oldest are dropped first, and restores a saved content that shares more. These
// are the rules of llama.cpp.
//
// # Latency
//
// With n prompt tokens, c of them cached, and the fields of [Latency]:
//
//	admitted    t0 = the body's last byte, or the end of an earlier request when MaxRunning run already (first come, first served)
//	prefill     s  = t0, or with SerialPrefill the end of the prefill before, when later
//	            t1 = s + Prefill + PrefillPerToken · (n - c)
//	token 1     a1 = t1
//	token i     ai = a(i-1) + step
//	step           = ceil(d / MaxBatch) · (Decode + DecodePerSequence · min(d, MaxBatch))
//
// where d is the number of sequences that decode at a(i-1), itself included, and MaxBatch = 0 means no limit,
// a factor of 1. A later token is planned from the planned instant of the one before, not from the instant at which it was
// sent, so late timers and slow writes do not add up. With TokensPerChunk = k the first chunk has one token and each later one
// k, written at the instant of its last. On the real clock a write is typically up to a millisecond late because of Go's timers; the record
// says when the write really happened.
//
// # Memory
//
// Bodies, queues and kept records are bounded by the configuration. The infinite cache is not: it grows by
// some 25 bytes for each distinct block.
package simulator
