// Writes tests/golden/tokenizer: a vocabulary, and what tiktoken says about the
// corpus. Run it again whenever corpus.mjs or vocab.mjs changes:
//
//     cd tests/oracle && npm install && node tokenizer.mjs
//
//   small/tokenizer.model, small/specials.json   the vocabulary of vocab.mjs
//   corpus.json    rows of {cat, parts} (see corpus.mjs) with the answers for
//                  the small vocabulary, in content and in markup mode, and for
//                  the demo model's in content mode. An answer is the list of
//                  ids, or {n, crc32} of a long one (ids as little-endian int32)
//   unicode.json   {n, crc32} for each 1024 code points, each of them in every
//                  context that the pattern tells apart; vocabulary: all pairs
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { crc32 } from 'node:zlib';
import { Tiktoken } from 'tiktoken';
import corpus from './corpus.mjs';
import { pairs, rankFile, small, specials } from './vocab.mjs';

const PATTERN = [
  '[\\p{Han}]+',
  "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}&&[^\\p{Han}]]*[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}&&[^\\p{Han}]]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
  "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}&&[^\\p{Han}]]+[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}&&[^\\p{Han}]]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
  '\\p{N}{1,3}',
  ' ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*',
  '\\s*[\\r\\n]+',
  '\\s+(?!\\S)',
  '\\s+',
].join('|');

const out = new URL('../golden/tokenizer/', import.meta.url);
const demo = new URL('../../examples/demo/checkpoint/tiktoken.model', import.meta.url);

// The cuts that the model's own tokenizer makes before it asks tiktoken.
function* stretches(text) {
  const all = [...text];
  for (let at = 0; at < all.length; at += 400000) {
    const chunk = all.slice(at, at + 400000);
    let start = 0, run = 0, before = null;
    for (let i = 0; i < chunk.length; i++) {
      const space = /\p{White_Space}/u.test(chunk[i]);
      run = space === before ? run + 1 : 1;
      before = space;
      if (run > 25000) {
        yield chunk.slice(start, i).join('');
        start = i;
        run = 1;
      }
    }
    yield chunk.slice(start).join('');
  }
}

// Earliest special, longest of those that start there; text between is content.
function markup(encoder, ids, text) {
  const found = [];
  let at = 0;
  const content = (s) => encoder.encode_ordinary(s).forEach((id) => found.push(id));
  for (let i = 0; i < text.length;) {
    const here = Object.keys(ids).filter((s) => text.startsWith(s, i)).sort((a, b) => b.length - a.length)[0];
    if (here === undefined) { i++; continue; }
    content(text.slice(at, i));
    found.push(ids[here]);
    at = i += here.length;
  }
  content(text.slice(at));
  return found;
}

const sum = (ids) => ({ n: ids.length, crc32: crc32(Buffer.from(Int32Array.from(ids).buffer)) });
const answer = (ids) => (ids.length > 250 ? sum(ids) : ids);

const tokens = small(corpus);
const ids = Object.fromEntries(specials.map((s, i) => [s, tokens.length + i]));
mkdirSync(new URL('small', out), { recursive: true });
writeFileSync(new URL('small/tokenizer.model', out), rankFile(tokens));
writeFileSync(new URL('small/specials.json', out), JSON.stringify(specials.map((text) => ({ id: ids[text], text })), null, 1) + '\n');

const encoder = new Tiktoken(rankFile(tokens), ids, PATTERN);
const demoEncoder = new Tiktoken(readFileSync(demo, 'utf8'), {}, PATTERN);
const lines = corpus.map(({ cat, parts }) => {
  const cut = [...stretches(parts.map(([unit, times]) => unit.repeat(times)).join(''))];
  const marked = cut.flatMap((s) => markup(encoder, ids, s));
  if (cat !== 'one spelling begins another') {
    const theirs = cut.flatMap((s) => [...encoder.encode(s, 'all')]);
    if (theirs.join() !== marked.join()) throw new Error(`${JSON.stringify(parts)}: tiktoken's markup differs`);
  }
  return JSON.stringify({
    cat,
    parts,
    content: answer(cut.flatMap((s) => [...encoder.encode_ordinary(s)])),
    markup: answer(marked),
    demo: answer(cut.flatMap((s) => [...demoEncoder.encode_ordinary(s)])),
  });
});
writeFileSync(new URL('corpus.json', out), `[\n${lines.join(',\n')}\n]\n`);

// Above the third plane only tags and variation selectors are assigned; of the
// rest one block for each plane shows that nothing there has a class.
const starts = [];
for (let c = 0; c < 0x34000; c += 1024) starts.push(c);
for (let plane = 4; plane <= 16; plane++) starts.push(plane << 16);
const pairEncoder = new Tiktoken(rankFile(pairs()), {}, PATTERN);
const blocks = starts.map((first) => {
  let text = '';
  for (let c = first; c < first + 1024; c++) {
    if (c >= 0xd800 && c < 0xe000) continue;
    const x = String.fromCodePoint(c);
    text += `a${x}b A${x}B${x}${x}c1${x}${x}2中${x} ${x}-${x}\t${x}'s${x}\n`;
  }
  return text ? { first, ...sum([...pairEncoder.encode_ordinary(text)]) } : null;
}).filter(Boolean);
writeFileSync(new URL('unicode.json', out), `[\n${blocks.map((b) => JSON.stringify(b)).join(',\n')}\n]\n`);
console.log(`${lines.length} rows, ${blocks.length} blocks`);
