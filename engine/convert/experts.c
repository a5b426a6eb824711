/* Experts to records: see experts.h. Memory is two pieces of rows (one is read while
 * the other is encoded), the training sample of one matrix kind (at most 300,000
 * vectors), tables for each thread and one record, whatever the model's size. */
#include "convert/experts.h"

#include <string.h>

#include "base/mem.h"
#include "convert/importance.h"
#include "convert/names.h"
#include "convert/vq_choice.h"
#include "kernels/quant.h"

#define SAMPLED_EXPERTS 12
#define SAMPLED_VECTORS 300000

#define BEAM_DEFAULT 16
#define BEAM_BEST    32

/* Pieces have so many weights, and more when columns weigh differently: each needs
 * tables for every column of vectors. */
#define PIECE          WASTE_CONVERT_PIECE
#define PIECE_WEIGHTED (4 * WASTE_CONVERT_PIECE)

struct waste_experts {
    waste_source *source;
    const waste_settings *c;
    waste_names names;
    waste_quant quant;
    waste_fmt fmt;
    waste_record_layout layout;
    waste_vq_books *books; /* one per kind, of the layer trained last */
    float *piece[2];       /* rows of a matrix */
    int64_t piece_rows[WASTE_EXPERTS_KINDS];
    float *unit; /* one row, normalised */
    int beam;
    waste_vq_importance *importance; /* NULL: all channels alike */
    waste_vq_team *team;
    waste_vq_rows *rows;
    uint16_t *scale; /* of the rows of a piece */
    unsigned char *record;
};

int waste_experts_format(const char *name, waste_quant *q, waste_fmt *fmt, const char **label)
{
    static const struct {
        const char *name, *label;
        waste_fmt fmt;
        int stages, entries, bits, bytes;
    } known[] = {
        {"vq3r", "VQ3R", WASTE_FMT_VQ3R, 3, 256, 8, 3},
        {"vq2r", "VQ2R", WASTE_FMT_VQ2R, 2, 256, 8, 2},
        {"vq4p", "VQ4P", WASTE_FMT_VQ4P, 4, 64, 6, 3},
    };
    size_t i;

    for (i = 0; i < sizeof known / sizeof *known; i++) {
        if (strcmp(known[i].name, name) != 0) continue;
        q->stages = known[i].stages;
        q->vec_dim = WASTE_VQ_DIM;
        q->entries = known[i].entries;
        q->index_block = WASTE_INDEX_BLOCK;
        q->index_bits = known[i].bits;
        q->vector_bytes = known[i].bytes;
        *fmt = known[i].fmt;
        *label = known[i].label;
        return 0;
    }
    return -1;
}

int waste_experts_effort(const char *name, int *beam)
{
    if (!name || strcmp(name, "default") == 0)
        *beam = BEAM_DEFAULT;
    else if (strcmp(name, "best") == 0)
        *beam = BEAM_BEST;
    else if (strcmp(name, "fast") == 0)
        *beam = 0;
    else
        return -1;
    return 0;
}

/* ---- where they are ---------------------------------------------------------------- */

static int64_t rows_of(const waste_experts *x, int kind)
{
    return kind == WASTE_EXPERTS_DOWN ? x->c->expert_in : x->c->moe_width;
}

static int64_t cols_of(const waste_experts *x, int kind)
{
    return kind == WASTE_EXPERTS_DOWN ? x->c->moe_width : x->c->expert_in;
}

static waste_status find(const waste_experts *x, int layer, int expert, int kind, waste_weight *w,
                         waste_error *err)
{
    char name[256];
    waste_status st;

    waste_names_expert(name, sizeof name, x->names, x->c, layer, expert, kind);
    st = waste_weight_find(x->source, name, w, err);
    if (!st && (w->dims != 2 || w->rows != rows_of(x, kind) || w->cols != cols_of(x, kind)))
        st = waste_fail(err, WASTE_FORMAT, "tensor %s is [%lld, %lld], wanted [%lld, %lld]", name,
                        (long long)w->rows, (long long)w->cols, (long long)rows_of(x, kind),
                        (long long)cols_of(x, kind));
    return st;
}

static waste_status check_all(const waste_experts *x, waste_error *err)
{
    waste_status st = WASTE_OK;
    waste_weight w;
    int l, e, k;

    for (l = x->c->dense_layers; l < x->c->layers; l++)
        for (e = 0; e < x->c->experts; e++)
            for (k = 0; k < WASTE_EXPERTS_KINDS && !st; k++) st = find(x, l, e, k, &w, err);
    return st;
}

static waste_status take_memory(waste_experts *x, waste_error *err)
{
    const int64_t piece = x->importance ? PIECE_WEIGHTED : PIECE;
    int64_t most = 0, widest = 0, longest = 0;
    int k;

    for (k = 0; k < WASTE_EXPERTS_KINDS; k++) {
        int64_t n = piece / cols_of(x, k);
        x->piece_rows[k] = n < 1 ? 1 : n > rows_of(x, k) ? rows_of(x, k) : n;
        if (x->piece_rows[k] * cols_of(x, k) > most) most = x->piece_rows[k] * cols_of(x, k);
        if (cols_of(x, k) > widest) widest = cols_of(x, k);
        if (x->piece_rows[k] > longest) longest = x->piece_rows[k];
    }
    x->books = waste_mem_array(WASTE_EXPERTS_KINDS, sizeof *x->books);
    x->piece[0] = waste_mem_array((size_t)most, sizeof(float));
    x->piece[1] = waste_mem_array((size_t)most, sizeof(float));
    x->unit = waste_mem_array((size_t)widest, sizeof *x->unit);
    x->scale = waste_mem_array((size_t)longest, sizeof *x->scale);
    x->record = waste_mem_alloc((size_t)x->layout.bytes);
    if (x->books && x->piece[0] && x->piece[1] && x->unit && x->scale && x->record)
        return waste_vq_rows_open(&x->rows, &x->quant, x->team, longest, most, err);
    return waste_fail(err, WASTE_NOMEM, "out of memory for experts of %llu bytes",
                      (unsigned long long)x->layout.bytes);
}

static waste_status open_encoder(waste_experts *x, const waste_experts_options *opt,
                                 waste_error *err)
{
    const waste_settings *c = x->c;
    waste_status st = WASTE_OK;

    x->beam = opt->beam;
    if (opt->importance)
        st = waste_vq_importance_open(&x->importance, opt->importance, c->dense_layers, c->layers,
                                      c->expert_in, c->moe_width, err);
    return st ? st : take_memory(x, err);
}

waste_status waste_experts_open(waste_experts **out, waste_source *s, const waste_settings *c,
                                const waste_quant *q, waste_fmt fmt,
                                const waste_experts_options *opt, waste_vq_team *team,
                                waste_error *err)
{
    waste_experts *x = waste_mem_zero(sizeof *x);
    waste_status st;

    *out = NULL;
    if (!x) return waste_fail(err, WASTE_NOMEM, "out of memory opening the experts");
    x->source = s;
    x->c = c;
    x->quant = *q;
    x->fmt = fmt;
    x->team = team;
    waste_record_layout_of(&x->layout, q, c->moe_width, c->expert_in);
    if (x->layout.bytes > UINT32_MAX) /* offsets in a record have 32 bits */
        st = waste_fail(err, WASTE_FORMAT, "expert records of %llu bytes are too large",
                        (unsigned long long)x->layout.bytes);
    else if ((x->names = waste_names_find(s, c)) == WASTE_NAMES_NONE)
        st = waste_fail(err, WASTE_FORMAT,
                        "%s: config.json has %d experts, and no layer has a tensor of one",
                        waste_source_dir(s), c->experts);
    else
        st = WASTE_OK;
    if (!st) st = check_all(x, err);
    if (!st) st = open_encoder(x, opt, err);
    if (st) {
        waste_experts_close(x);
        return st;
    }
    *out = x;
    return WASTE_OK;
}

void waste_experts_close(waste_experts *x)
{
    if (!x) return;
    waste_vq_rows_close(x->rows);
    waste_vq_importance_close(x->importance);
    waste_mem_free(x->books);
    waste_mem_free(x->piece[0]);
    waste_mem_free(x->piece[1]);
    waste_mem_free(x->unit);
    waste_mem_free(x->scale);
    waste_mem_free(x->record);
    waste_mem_free(x);
}

const waste_record_layout *waste_experts_layout(const waste_experts *x)
{
    return &x->layout;
}

const waste_vq_books *waste_experts_books(const waste_experts *x, int kind)
{
    return x->books + kind;
}

static waste_status too_large(const waste_experts *x, const waste_weight *w, waste_error *err)
{
    return waste_fail(err, WASTE_FORMAT, "%s: tensor %s has weights too large for an F16 scale",
                      waste_source_dir(x->source), w->tensor->name);
}

static int is_infinite(uint16_t scale)
{
    return (scale & 0x7C00) == 0x7C00;
}

/* ---- training ------------------------------------------------------------------------ */

typedef struct sample {
    float *at; /* vectors taken so far */
    size_t n, room;
} sample;

/* Takes `want` of the matrix's vectors at random, or all when there are fewer:
 * in one pass, each with the chance that the rest of the quota leaves it. */
static waste_status take_vectors(waste_experts *x, const waste_weight *w, int kind, uint64_t want,
                                 waste_vq_random *r, sample *to, const waste_cancel *cancel,
                                 waste_error *err)
{
    uint64_t left = (uint64_t)w->rows * (uint64_t)(w->cols / WASTE_VQ_DIM);
    waste_status st = WASTE_OK;
    int64_t first, n, i, v;
    uint16_t scale;

    if (want > left) want = left;
    for (first = 0; !st && want && first < w->rows; first += n) {
        n = w->rows - first < x->piece_rows[kind] ? w->rows - first : x->piece_rows[kind];
        st = waste_convert_asked(cancel, err);
        if (!st) st = waste_weight_rows(x->source, w, first, n, x->piece[0], err);
        for (i = 0; !st && i < n; i++) {
            const float *row = x->piece[0] + i * w->cols;
            scale = x->beam ? waste_vq_row_rms(row, w->cols) : waste_vq_row_scale(row, w->cols);
            if (is_infinite(scale)) {
                st = too_large(x, w, err);
                break;
            }
            waste_vq_normalise(row, w->cols, scale, x->unit);
            for (v = 0; v < w->cols; v += WASTE_VQ_DIM, left--) {
                if (waste_vq_below(r, left) >= want) continue;
                memcpy(to->at + to->n++ * WASTE_VQ_DIM, x->unit + v, WASTE_VQ_DIM * sizeof(float));
                want--;
            }
        }
    }
    return st;
}

static waste_status train_kind(waste_experts *x, int layer, int kind, sample *s,
                               const waste_cancel *cancel, waste_error *err)
{
    int step = x->c->experts / SAMPLED_EXPERTS, i, n;
    waste_status st = WASTE_OK;
    waste_vq_random r;
    waste_weight w;

    if (step < 1) step = 1;
    n = (x->c->experts + step - 1) / step;
    if (n > SAMPLED_EXPERTS) n = SAMPLED_EXPERTS;
    s->n = 0;
    for (i = 0; !st && i < n; i++) {
        /* one stream per matrix: what is drawn does not depend on the others */
        r.state = (uint64_t)layer << 32 | (uint64_t)(i * step) << 8 | (uint64_t)kind;
        st = find(x, layer, i * step, kind, &w, err);
        if (!st)
            st = take_vectors(x, &w, kind, (uint64_t)(SAMPLED_VECTORS / n), &r, s, cancel, err);
    }
    if (st) return st;
    r.state = (uint64_t)layer << 32 | (uint64_t)0xFFFFFF << 8 | (uint64_t)kind;
    if (x->beam)
        return waste_vq_choice_make(x->books + kind, &x->quant, s->at, s->n, &r, x->team, cancel,
                                    err);
    return waste_vq_train(x->books + kind, &x->quant, s->at, s->n, &r, cancel, err);
}

waste_status waste_experts_train(waste_experts *x, int layer, const waste_cancel *cancel,
                                 waste_error *err)
{
    uint64_t all = (uint64_t)x->c->experts * (uint64_t)x->c->moe_width *
                   (uint64_t)(x->c->expert_in / WASTE_VQ_DIM);
    waste_status st = WASTE_OK;
    sample s = {0};
    int k;

    s.room = all < SAMPLED_VECTORS ? (size_t)all : SAMPLED_VECTORS;
    s.at = waste_mem_array(s.room, WASTE_VQ_DIM * sizeof *s.at);
    if (!s.at) return waste_fail(err, WASTE_NOMEM, "out of memory for a training sample");
    for (k = 0; !st && k < WASTE_EXPERTS_KINDS; k++) st = train_kind(x, layer, k, &s, cancel, err);
    waste_mem_free(s.at);
    return st;
}

/* ---- encoding -------------------------------------------------------------------------- */

/* A piece of one expert: which rows of which matrix. */
typedef struct piece {
    int kind;
    int64_t first, n;
    waste_weight w;
    float *at;
} piece;

/* The piece after this one, into the other buffer; kind is WASTE_EXPERTS_KINDS when
 * there is none. A new piece starts as {-1}. */
static waste_status read_next(waste_experts *x, int layer, int expert, const piece *now,
                              piece *next, waste_error *err)
{
    waste_status st = WASTE_OK;
    int64_t left;

    *next = *now;
    next->at = now->at == x->piece[0] ? x->piece[1] : x->piece[0];
    next->first += now->n;
    if (now->kind < 0 || next->first == now->w.rows) {
        next->kind++;
        next->first = 0;
        if (next->kind == WASTE_EXPERTS_KINDS) return WASTE_OK;
        st = find(x, layer, expert, next->kind, &next->w, err);
        if (st) return st;
    }
    left = next->w.rows - next->first;
    next->n = left < x->piece_rows[next->kind] ? left : x->piece_rows[next->kind];
    return waste_weight_rows(x->source, &next->w, next->first, next->n, next->at, err);
}

static int importance_of(int kind)
{
    return kind == WASTE_EXPERTS_DOWN ? WASTE_IMPORTANCE_DOWN : WASTE_IMPORTANCE_GATE_UP;
}

static unsigned char *indices_of(const waste_experts *x, int kind)
{
    const waste_record_layout *l = &x->layout;

    return x->record + (kind == WASTE_EXPERTS_GATE ? l->gate_off
                        : kind == WASTE_EXPERTS_UP ? l->up_off
                                                   : l->down_off);
}

/* Encodes `now` while `next` is read. */
static waste_status encode_piece(waste_experts *x, int layer, int expert, const piece *now,
                                 piece *next, unsigned char *scales, waste_convert_loss *loss,
                                 const waste_cancel *cancel, waste_error *err)
{
    waste_vq_weights weights;
    waste_vq_job job = {.quant = &x->quant,
                        .books = x->books + now->kind,
                        .beam = x->beam,
                        .w = now->at,
                        .rows = now->n,
                        .cols = now->w.cols,
                        .first = now->first,
                        .indices = indices_of(x, now->kind),
                        .scale = x->scale};
    waste_status st, read;
    int64_t i;

    if (waste_vq_importance_get(x->importance, layer, importance_of(now->kind), &weights))
        job.weights = &weights;
    st = waste_vq_rows_start(x->rows, &job, cancel, err);
    if (st) return st;
    read = read_next(x, layer, expert, now, next, err);
    st = waste_vq_rows_finish(x->rows, loss + now->kind, cancel, err);
    for (i = 0; !st && i < now->n; i++)
        if (is_infinite(x->scale[i])) st = too_large(x, &now->w, err);
    if (!st) memcpy(scales + 2 * now->first, x->scale, 2 * (size_t)now->n);
    return read ? read : st;
}

static void put_header(waste_experts *x, int layer, int expert, int codebook_base)
{
    const waste_record_layout *l = &x->layout;
    waste_record_header h;

    memset(&h, 0, sizeof h);
    h.magic = WASTE_EXPERT_MAGIC;
    h.layer = (uint16_t)layer;
    h.expert = (uint16_t)expert;
    h.fmt = (uint8_t)x->fmt;
    h.codebook = (uint16_t)codebook_base;
    h.blocks = (uint32_t)(l->bytes / WASTE_RECORD_ALIGN);
    h.gate_off = (uint32_t)l->gate_off;
    h.up_off = (uint32_t)l->up_off;
    h.down_off = (uint32_t)l->down_off;
    h.scale_off = (uint32_t)l->scale_off;
    h.crc32 = waste_record_crc(x->record, l);
    memcpy(x->record, &h, sizeof h);
}

waste_status waste_experts_record(waste_experts *x, int layer, int expert, int codebook_base,
                                  const unsigned char **record, waste_convert_loss *loss,
                                  const waste_cancel *cancel, waste_error *err)
{
    unsigned char *scales = x->record + x->layout.scale_off;
    piece at = {.kind = -1, .at = x->piece[1]}, next = at;
    waste_status st;

    *record = NULL;
    memset(x->record, 0, (size_t)x->layout.bytes);
    st = waste_convert_asked(cancel, err);
    if (!st) st = read_next(x, layer, expert, &at, &next, err);
    while (!st && next.kind < WASTE_EXPERTS_KINDS) {
        if (at.kind >= 0 && at.kind != next.kind) scales += 2 * rows_of(x, at.kind);
        at = next;
        st = encode_piece(x, layer, expert, &at, &next, scales, loss, cancel, err);
    }
    if (st) return st;
    put_header(x, layer, expert, codebook_base);
    *record = x->record;
    return WASTE_OK;
}
