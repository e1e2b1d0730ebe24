// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

// Package prompt turns the rows of a trace into the bytes of requests, while the socket takes them.
//
// A Mooncake row has no text. It says how long the prompt was, and names its blocks, of 512 tokens as a rule, by ids:
// two rows that begin with the same ids began with the same tokens, and a cache of the engine serves the second from
// the first. A replay needs prompts that have exactly those lengths and share exactly those prefixes, on an engine
// whose tokenizer it does not know. The public conversation trace would fill 725 MB with them, so nothing is built ahead.
//
// # Words
//
// The package knows 512 English words of four letters. Each is one token after a space in all twelve vocabularies
// that the list was made for, and no tokenizer of theirs merges across the space, so a text of n words is n tokens
// and a block's tokens depend on its words alone. [Fill] spells a block:
//
//	x       = mix(id xor seed)                     a bijection (the finaliser of splitmix64)
//	words 1…8   the bits of x, nine a word, lowest first
//	words 9…    seven for each draw, nine bits a word:
//	            x += 2^64/φ, draw = high xor low half of x·(x xor constant)
//
// The first eight words are the id itself, so two ids never give one block; [Decode] reads them back. A shorter block
// is a prefix of the longer one of the same id: a partial last block, which public traces give an id of its own, is
// cut, never respelled. The draws are independent of each other, so a reader can begin at any byte. Where the
// engine takes token ids, [FillTokens] does the same with ids of five digits, and needs no tokenizer at all.
//
// An engine on which these words are not one token each has others: a [Lexicon] of 2^b words of one length spells the same numbers, b bits
// a word, 64/b words for an id. [TokenRanges] does it for small vocabularies. With another lexicon an id has other words.
//
// Everything follows from the seed, the row, its index and the options: the same bytes in every process, shard and
// attempt. Another seed is another text, and by that a cold cache; [Seed] makes one of a user's number.
//
// # Rows
//
// A row's input length L and its M ids of blocks of B tokens may say less or more than each other:
//
//	L = M·B              the ids tile the prompt
//	(M-1)·B < L < M·B    the last block is partial
//	L > M·B, or M = 0    what is left is the row's own: ids made of its index, which no other row has
//	L ≤ (M-1)·B          the first ids count, the others have no effect
//
// A row with hash_ranges is made of those instead, in blocks of Options.FineBlockSize tokens, as a real cache has them. Their
// ids are numbers apart, and so are their texts.
//
// A row with text, messages or a payload is sent as it is; see [Builder.Build] and [Options] for what is added.
//
// # Overhead
//
// A server adds tokens of its own: BOS, the chat template, a system prompt. Two calibration requests of known length
// tell how many, and that each word is one token ([Builder.Calibration], [Solve]). They are constant only because
// every text starts with the same word, "go", which counts among them. For the total to be L, the overhead is taken
// from the end of the words: each block keeps its place, and two prompts that share k blocks share at least k·B tokens.
// Each model has a template of its own, so the rows of a trace with several are measured by model ([Options], Measured).
// When the last block is no longer than the overhead it vanishes, and the block before it may be cut in this one
// request; [Prompt] flags such rows (TailCut), and those without room for one word (TooShort).
//
// # Sessions
//
// Most traces give every row its whole prompt. In a delta session a row is only the new turn, and goes out after the
// turns before it and the replies that the engine really gave. [History] carries those; it holds words by their ids, so
// a conversation of a hundred thousand words costs a few kilobytes.
//
// # Replies
//
// A row may say that tokens of its prompt were the reply to an earlier row. [Builder.BuildLive] puts the live reply there. The
// prompt then has the shape that makes the earlier prompt and its reply a true prefix of it: on the chat endpoint a message for each turn,
// the first with exactly the words of the first row, else one text, or one list of token ids. A message's overhead is taken from its
// end, and the last block before a reply, if it was partial, is the earlier row's own. Where the live reply is not to be
// had, as many invented words stand there. The length is the row's, whatever is carried.
//
// # Bodies
//
// A body is a list of parts, bytes or blocks, whose length is known before any of it exists. JSON around the blocks is
// built once for each row; letters, spaces, digits and commas need no escaping. Each Open gives a reader of its own,
// so an attempt that is retried starts afresh. Reading allocates nothing for a block and runs at memory speed.
//
// # Reply lengths
//
// The reply to random words says nothing of when a model would have stopped, so its length is held: a cap, ignore_eos
// and a minimum, as far as the [Profile] knows them. The reply to a text, messages or tools is capped only; extra
// inputs with ignore_eos hold it too, and with ignore_eos false let every reply end by itself.
package prompt
