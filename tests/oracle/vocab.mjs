// A small vocabulary that gives a wrong split away.
//
// An ordinary one hides most wrong splits, since few of its tokens cross the
// places where the pattern cuts. This one holds the 256 bytes and then the
// commonest strings of 2, 3 and 4 bytes of the corpus, wherever in it they lie:
// nearly every pair of neighbouring characters is a token, so a missing or an
// extra cut changes ids. Ranks are in the order of a hash, not of frequency, so
// that which merge comes first matters too.
import { createHash } from 'node:crypto';

export const specials = ['[BOS]', '[EOS]', '<|end_of_msg|>', '<|open|>', '<|close|>', '<|sep|>', '<|a|>', '<|a|>b', '<|q"q|>', '<|back\\slash|>', '<|é|>', '<|中|>', '<|tab\there|>', '<|nl\nhere|>', '<|😀|>', '======='];

const TOKENS = 3000;

export function small(rows) {
  const seen = new Map();
  for (const { parts } of rows) {
    const text = parts.map(([unit, times]) => unit.repeat(Math.min(times, 8))).join('');
    const bytes = Buffer.from(text).toString('latin1');
    for (let n = 2; n <= 4; n++)
      for (let i = 0; i + n <= bytes.length; i++) {
        const s = bytes.slice(i, i + n);
        seen.set(s, (seen.get(s) ?? 0) + 1);
      }
  }
  const order = (a, b) => (a < b ? -1 : a > b ? 1 : 0);
  const hash = (s) => createHash('sha256').update(s, 'latin1').digest('hex');
  const chosen = [...seen].sort((a, b) => b[1] - a[1] || order(a[0], b[0])).slice(0, TOKENS).map(([s]) => s);
  const tokens = [...Array(256).keys()].map((b) => String.fromCharCode(b));
  tokens.push(...chosen.map((s) => [hash(s), s]).sort((a, b) => order(a[0], b[0])).map(([, s]) => s));
  return tokens.map((s) => Buffer.from(s, 'latin1'));
}

// All bytes and all pairs of bytes; the rank of a pair is a permutation.
export function pairs() {
  const tokens = Array(256 + 65536);
  for (let b = 0; b < 256; b++) tokens[b] = Buffer.from([b]);
  for (let p = 0; p < 65536; p++) tokens[256 + ((p * 40503 + 12345) & 65535)] = Buffer.from([p >> 8, p & 255]);
  return tokens;
}

export const rankFile = (tokens) => tokens.map((t, i) => `${t.toString('base64')} ${i}\n`).join('');
