/* The pre-tokenizer: where a text is cut before byte pairs are merged
 * (docs/format.md 8.3 and 8.7). Pure functions; any thread may call them.
 *
 * Text is UTF-8. A byte that starts no valid sequence counts as one character
 * of no class: neither letter, mark, number nor white space. */
#ifndef WASTE_PRETOK_H
#define WASTE_PRETOK_H

#include <stddef.h>
#include <stdint.h>

/* The longest a stretch can be that is split and merged on its own. */
#define WASTE_PRETOK_CHUNK 400000 /* characters */
#define WASTE_PRETOK_RUN   25000  /* consecutive white space, or consecutive other characters */

/* Bytes of the piece at the start of text[0..bytes), bytes > 0: the first
 * alternative of the pattern that matches there. At least 1. Only these bytes
 * are looked at, so a caller bounds a piece by bounding the text. */
size_t waste_pretok_piece(const char *text, size_t bytes);

/* Bytes of the stretch at the start of text[0..bytes) that is tokenized on its
 * own. *chunk counts the characters left in the current chunk: 0 before the
 * first call for a text, then passed on from call to call. */
size_t waste_pretok_stretch(const char *text, size_t bytes, size_t *chunk);

/* The properties that the pattern tells apart. */
typedef enum waste_pretok_class {
    WASTE_PRETOK_HAN = 1,    /* script Han */
    WASTE_PRETOK_LETTER = 2, /* Lu Ll Lt Lm Lo */
    WASTE_PRETOK_NUMBER = 4, /* Nd Nl No */
    WASTE_PRETOK_UPPER = 8,  /* Lu Lt Lm Lo Mn Mc Me, not Han */
    WASTE_PRETOK_LOWER = 16, /* Ll Lm Lo Mn Mc Me, not Han */
    WASTE_PRETOK_SPACE = 32, /* White_Space */
    WASTE_PRETOK_BREAK = 64  /* CR and LF */
} waste_pretok_class;

/* Bits of waste_pretok_class; 0 above U+10FFFF. */
unsigned waste_pretok_class_of(uint32_t code_point);

#endif
