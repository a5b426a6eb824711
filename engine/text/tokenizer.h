/* Byte-pair encoding in tiktoken's manner (docs/format.md 8):
 * rank file, special tokens, the pre-tokenizer's pattern, linear time in the
 * input. Immutable after opening; any thread may use it. */
#ifndef WASTE_TOKENIZER_H
#define WASTE_TOKENIZER_H

#include "base/error.h"

typedef struct waste_tokenizer waste_tokenizer;

/* Reads dir/tokenizer.model (or tiktoken.model) and dir/specials.json. WASTE_OK
 * with *out NULL when the container has no rank file. Errors name the file and
 * line or element. n_vocab bounds the ids. */
waste_status waste_tokenizer_open(waste_tokenizer **out, const char *dir, int64_t n_vocab,
                                  waste_error *err);
void waste_tokenizer_close(waste_tokenizer *t);

/* Appends ids to out. markup: spellings of special tokens become those tokens,
 * earliest first, longest at one place. Texts beyond 400,000 characters, or with
 * runs beyond 25,000, are cut as the models' own tokenizer does (text/pretok.h).
 * A byte that the vocabulary has no token for is WASTE_FORMAT. On any error out
 * is as it was. */
waste_status waste_tokenizer_encode(const waste_tokenizer *t, const char *text, size_t bytes,
                                    int markup, waste_ids *out, waste_error *err);
/* Borrowed; NULL, and *bytes 0, when the id stands for nothing. */
const char *waste_tokenizer_bytes(const waste_tokenizer *t, int32_t id, size_t *bytes);
/* Id of a special token by its exact text, -1 if none. */
int32_t waste_tokenizer_special(const waste_tokenizer *t, const char *text, size_t bytes);
int waste_tokenizer_is_special(const waste_tokenizer *t, int32_t id);
/* Number of rank entries: positional defaults are BOS = n, EOS = n + 2. */
int32_t waste_tokenizer_ranks(const waste_tokenizer *t);
/* All specials, ascending id; texts are borrowed. */
size_t waste_tokenizer_specials(const waste_tokenizer *t);
int32_t waste_tokenizer_special_at(const waste_tokenizer *t, size_t i, waste_str *text);

#endif
