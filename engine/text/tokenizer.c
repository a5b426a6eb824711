/* The tokenizer of one container: its ranks and its specials, put together.
 * Nothing changes after opening, so any thread may use it. */
#include "text/tokenizer.h"

#include <string.h>

#include "base/mem.h"
#include "base/plat.h"
#include "text/bpe.h"
#include "text/pretok.h"
#include "text/ranks.h"
#include "text/specials.h"

struct waste_tokenizer {
    waste_ranks *ranks;
    waste_specials *specials;
};

/* The path of the rank file, or an empty one when there is none. */
static waste_status find_ranks(char path[WASTE_PATH_MAX], const char *dir, waste_error *err)
{
    static const char *const names[] = {"tokenizer.model", "tiktoken.model"};
    size_t i;

    for (i = 0; i < sizeof names / sizeof *names; i++) {
        waste_status st = waste_path_join(path, WASTE_PATH_MAX, dir, names[i], err);
        if (st || waste_path_exists(path)) return st;
    }
    path[0] = 0;
    return WASTE_OK;
}

waste_status waste_tokenizer_open(waste_tokenizer **out, const char *dir, int64_t n_vocab,
                                  waste_error *err)
{
    char path[WASTE_PATH_MAX];
    waste_tokenizer *t;
    waste_status st;

    *out = NULL;
    st = find_ranks(path, dir, err);
    if (st || !path[0]) return st;
    t = waste_mem_zero(sizeof *t);
    if (!t) return waste_fail(err, WASTE_NOMEM, "out of memory opening %s", path);
    st = waste_ranks_open(&t->ranks, path, n_vocab, err);
    if (!st) st = waste_path_join(path, sizeof path, dir, "specials.json", err);
    if (!st) st = waste_specials_open(&t->specials, path, n_vocab, err);
    if (st) {
        waste_tokenizer_close(t);
        return st;
    }
    *out = t;
    return WASTE_OK;
}

void waste_tokenizer_close(waste_tokenizer *t)
{
    if (!t) return;
    waste_ranks_close(t->ranks);
    waste_specials_close(t->specials);
    waste_mem_free(t);
}

static waste_status encode_content(const waste_tokenizer *t, waste_bpe *b, const char *s, size_t n,
                                   waste_error *err)
{
    size_t at = 0;
    waste_status st = WASTE_OK;

    while (at < n && !st) {
        size_t piece = waste_pretok_piece(s + at, n - at);
        st = waste_bpe_piece(b, t->ranks, s + at, piece, err);
        at += piece;
    }
    return st;
}

/* A piece ends where a control token begins, wherever the pattern alone would
 * have ended it. */
static waste_status encode_markup(const waste_tokenizer *t, waste_bpe *b, const char *s, size_t n,
                                  waste_error *err)
{
    size_t at = 0;
    waste_status st = WASTE_OK;

    while (at < n && !st) {
        size_t start = n - at, length = 0;
        int32_t id = waste_specials_search(t->specials, s + at, n - at, &start, &length);
        st = encode_content(t, b, s + at, start, err);
        if (!st && id >= 0) st = waste_bpe_id(b, id, err);
        at += start + length;
    }
    return st;
}

static waste_status append(waste_ids *out, const waste_bpe *b, waste_error *err)
{
    int32_t *p;

    if (b->n == 0) return WASTE_OK;
    p = out->n > SIZE_MAX / sizeof *p - b->n
            ? NULL
            : waste_mem_resize(out->id, (out->n + b->n) * sizeof *p);
    if (!p) return waste_fail(err, WASTE_NOMEM, "out of memory tokenizing");
    memcpy(p + out->n, b->ids, b->n * sizeof *p);
    out->id = p;
    out->n += b->n;
    return WASTE_OK;
}

/* The stretches of a long text are tokenized apart, in markup too: a control
 * token that a cut divides is none, as in the models' own tokenizer. */
waste_status waste_tokenizer_encode(const waste_tokenizer *t, const char *text, size_t bytes,
                                    int markup, waste_ids *out, waste_error *err)
{
    waste_bpe b = {0};
    size_t at = 0, chunk = 0;
    waste_status st = WASTE_OK;

    while (at < bytes && !st) {
        size_t n = waste_pretok_stretch(text + at, bytes - at, &chunk);
        st = markup ? encode_markup(t, &b, text + at, n, err)
                    : encode_content(t, &b, text + at, n, err);
        at += n;
    }
    if (!st) st = append(out, &b, err);
    waste_bpe_clear(&b);
    return st;
}

const char *waste_tokenizer_bytes(const waste_tokenizer *t, int32_t id, size_t *bytes)
{
    const char *s = waste_specials_text(t->specials, id, bytes);

    if (!s) s = waste_ranks_bytes(t->ranks, id, bytes);
    if (!s) *bytes = 0;
    return s;
}

int32_t waste_tokenizer_special(const waste_tokenizer *t, const char *text, size_t bytes)
{
    return waste_specials_find(t->specials, text, bytes);
}

int waste_tokenizer_is_special(const waste_tokenizer *t, int32_t id)
{
    size_t bytes;

    return waste_specials_text(t->specials, id, &bytes) != NULL;
}

int32_t waste_tokenizer_ranks(const waste_tokenizer *t)
{
    return waste_ranks_count(t->ranks);
}

size_t waste_tokenizer_specials(const waste_tokenizer *t)
{
    return waste_specials_count(t->specials);
}

int32_t waste_tokenizer_special_at(const waste_tokenizer *t, size_t i, waste_str *text)
{
    return waste_specials_at(t->specials, i, text);
}
