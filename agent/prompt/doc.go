// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

// Package prompt generates the bytes of requests from the rows of a trace, while they are written to the socket.
//
// A Mooncake row has no text. It has the length of the prompt and the ids of its blocks, usually of 512 tokens. Two rows with the same
// leading ids began with the same tokens, so after the first row these are in the engine's cache. A replay needs prompts with exactly those
// lengths and shared prefixes, for an engine whose tokenizer it does not know. The prompts of the public conversation trace are 725 MB, so
// none is built in advance.
//
// # Words
//
// The package has 512 English words of four letters. Each is one token after a space in all twelve vocabularies that the list was
// made for. None of their tokenizers merges across the space, so a text of n words is n tokens, and a block's tokens depend only
// on its words. A block is written as follows:
//
//	x       = mix(id xor seed)                     a bijection (the finaliser of splitmix64)
//	words 1…8   the bits of x, nine a word, lowest first
//	words 9…    seven for each draw, nine bits a word:
//	            x += 2^64/φ, draw = high xor low half of x·(x xor constant)
//
// The first eight words encode the id, so two ids never yield the same block, and the id can be read back. A shorter block is a
// prefix of the longer block with the same id: a partial last block, which has an id of its own in public traces, is cut, and its
// words stay the same. The draws are independent of each other, so a reader can begin at any byte. If the engine accepts token
// ids, those of five digits take the place of words: six encode a block's id, five are made from each draw. They need no tokenizer.
//
// For an engine in which these words are not one token each, a [Lexicon] of 2^b other words of one length encodes the same numbers, with b
// bits a word and 64/b words, rounded up, for an id. For token ids in small vocabularies, [TokenRanges] has other ranges. With another
// lexicon, an id has other words.
//
// The seed, the row, its index and the options determine every byte, in every process, shard and attempt. Another seed yields
// another text, and so a cold cache; [Seed] derives one from a user's number.
//
// # Rows
//
// A row's input length L and its M ids of blocks of B tokens need not agree:
//
//	L = M·B              the ids tile the prompt
//	(M-1)·B < L < M·B    the last block is partial
//	L > M·B, or M = 0    the rest is the row's own: ids made from its index, which no other row has
//	L ≤ (M-1)·B          only the first ids are used
//
// For a row with hash_ranges, those are used instead, in blocks of Options.FineBlockSize tokens, as in a real cache. The ids of ranges have
// a separate number space, and separate texts.
//
// A row with text, messages or a payload is sent unchanged; see [Builder.Build] and [Options] for what is added.
//
// # Overhead
//
// A server adds tokens of its own: BOS, the chat template, a system prompt. Two calibration requests of known length measure how
// many, and prove that each word is one token ([Builder.Calibration], [Solve]). That number is constant only because every text starts
// with the same word, "go", which is counted with the overhead. For the total to be L, as many words are removed from the end:
// each block keeps its position, and two prompts that share k blocks share at least k·B tokens. Each model has its own template,
// so a trace with several models is measured for each ([Options], Measured). If the last block is no longer than the overhead, it
// is removed, and the block before it may be cut in this one request. [Prompt] flags such rows (TailCut), and rows without room
// for one word (TooShort).
//
// # Sessions
//
// In most traces every row has its whole prompt. In a delta session a row is only the new turn. It is sent after the earlier
// turns and the engine's real replies to them, which [History] stores. History stores words as ids, so a conversation of a
// hundred thousand words needs a few kilobytes.
//
// # Replies
//
// A row can say that tokens of its prompt are the reply to an earlier row. [Builder.BuildLive] inserts the live reply there. The
// prompt is then shaped so that the earlier prompt and its reply are a true prefix of it: if prompts are messages, a message for
// each turn, the first with exactly the words of the first row; else one text, or one list of token ids. A message's overhead is
// removed from its end. The last block before a reply, if partial, is the earlier row's own. If the live reply is not available,
// invented words of the same number are inserted. The length is the row's in every case.
//
// # Bodies
//
// A body is a list of parts, bytes or blocks. Its length is known before any byte is generated. The JSON around the blocks is
// built once for each row; letters, spaces, digits and commas need no escaping. Each Open returns a new reader, so a retry starts
// at the beginning. Reading allocates nothing for a block and runs at memory speed.
//
// # Reply lengths
//
// The reply to random words does not show when a model would have stopped, so its length is enforced: with a cap, ignore_eos and
// a minimum, as far as the [Profile] has them. The reply to a text, messages or tools is only capped. Extra inputs with
// ignore_eos enforce its length, too; with ignore_eos false, every reply stops by itself.
package prompt
