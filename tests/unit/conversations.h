/* Sequences of three small models, for tests: conversation `who` has the same tokens
 * wherever it is held. Included once in a program. */
#ifndef CONVERSATIONS_H
#define CONVERSATIONS_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "internal.h"
#include "model/state.h"
#include "model_files.h"

enum { VOCAB = MODEL_VOCAB, LONG = 150 };

static model_files files[3];

static inline int write_models(void **state)
{
    int k;

    (void)state;
    for (k = 0; k < 3; k++) model_write(&files[k], (model_kind)k);
    return 0;
}

static inline int remove_models(void **state)
{
    int k;

    (void)state;
    for (k = 0; k < 3; k++) model_remove(&files[k]);
    return 0;
}

static inline waste_model *open_as(const model_files *f, waste_precision precision, waste_kv kv)
{
    waste_model_options o = {.context = 256, .precision = precision, .kv = kv};
    waste_error e = {0};
    waste_model *m;

    if (waste_model_open(&m, f->dir, &o, &e)) fail_msg("%s", e.text);
    return m;
}

static inline waste_model *open_model(const model_files *f, waste_precision precision)
{
    return open_as(f, precision, WASTE_KV_F32);
}

static inline waste_seq *open_seq(waste_model *m)
{
    waste_seq *s;

    assert_int_equal(waste_seq_new(&s, m, NULL), WASTE_OK);
    return s;
}

/* Token number i of conversation `who`. */
static inline int32_t word(int who, int64_t i)
{
    return (int32_t)((i * 7 + who * 11 + i * i * 3) % VOCAB);
}

/* The next n tokens of conversation `who`; logits of the last. */
static inline void go_on(waste_seq *s, int who, int n, float *logits)
{
    waste_row rows[LONG];
    waste_error e = {0};
    int i;

    assert_true(n <= LONG);
    for (i = 0; i < n; i++)
        rows[i] = (waste_row){s, word(who, s->length + i), i == n - 1 ? logits : NULL};
    if (waste_step(s->model, rows, (size_t)n, NULL, NULL, &e)) fail_msg("%s", e.text);
}

static inline void ids_of(int32_t *ids, int who, int n)
{
    int i;

    for (i = 0; i < n; i++) ids[i] = word(who, i);
}

#endif
