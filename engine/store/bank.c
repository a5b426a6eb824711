/* Expert banks: see bank.h. Opened by the thread that opens the model; reads are
 * positional and touch nothing that changes, so any thread may read.
 *
 * A record is read whole and checked before anyone sees it. Codebooks are only
 * decoded for layers that have a bank: a resumed conversion leaves unreferenced
 * ones of zero bytes behind. */
#include "store/bank.h"

#include <pthread.h>
#include <string.h>

#include "base/mem.h"
#include "base/plat.h"
#include "base/process.h"
#include "kernels/quant.h"

#define OPENERS 4 /* threads that open banks */

typedef struct bank {
    waste_file file;
    int direct; /* past the page cache */
    char *path; /* NULL: the layer has no bank */
    uint64_t stride;
    int codebook_base;
    float *books; /* [3 * stages][index_range][vec_dim] */
} bank;

struct waste_banks {
    const waste_manifest *manifest;
    waste_bank_shape shape;
    waste_record_layout layout; /* one for all: shape and quantiser are */
    unsigned flags;
    waste_bank_pack *pack;
    void *pack_ctx;
    waste_bank_fault *fault;
    void *fault_ctx;
    int index_range; /* entries that an index can name */
    uint64_t slot_bytes;
    bank bank[WASTE_MAX_LAYERS];
};

static const bank *bank_of(const waste_banks *b, int layer)
{
    if (layer < 0 || layer >= b->shape.layers || !b->bank[layer].path) return NULL;
    return &b->bank[layer];
}

/* ---- codebooks -------------------------------------------------------- */

static waste_status check_book(const waste_banks *b, const char *record, uint64_t id,
                               const char *path, int layer, waste_error *err)
{
    const waste_quant *q = &b->manifest->quant;
    waste_codebook_header h;
    size_t i;

    memcpy(&h, record, sizeof h);
    const struct {
        const char *field;
        uint64_t found, wanted;
    } equal[] = {
        {"magic", h.magic, WASTE_CODEBOOK_MAGIC},
        {"codebook_id", h.id, id % 65536},
        {"vec_dim", h.vec_dim, (uint64_t)q->vec_dim},
        {"n_entries", h.entries, (uint64_t)q->entries},
    };
    for (i = 0; i < sizeof equal / sizeof *equal; i++)
        if (equal[i].found != equal[i].wanted)
            return waste_fail(
                err, WASTE_FORMAT, "%s: codebook %llu (of layer %d) has %s %llu, wanted %llu", path,
                (unsigned long long)id, layer, equal[i].field, (unsigned long long)equal[i].found,
                (unsigned long long)equal[i].wanted);
    return WASTE_OK;
}

static void decode_book(const char *record, size_t n, float *to)
{
    size_t i;
    uint16_t h;

    for (i = 0; i < n; i++) {
        memcpy(&h, record + WASTE_CODEBOOK_HEADER + 2 * i, sizeof h);
        to[i] = waste_f16_to_f32(h);
    }
}

/* The 3 * stages books of one layer; `raw` has room for them as stored. */
static waste_status read_books(waste_banks *b, int layer, const waste_file *f, const char *path,
                               char *raw, waste_error *err)
{
    const waste_quant *q = &b->manifest->quant;
    bank *k = &b->bank[layer];
    size_t n = 3 * (size_t)q->stages, floats = (size_t)q->entries * (size_t)q->vec_dim, i;
    size_t record = WASTE_CODEBOOK_HEADER + 2 * floats;
    size_t room = (size_t)b->index_range * (size_t)q->vec_dim;
    waste_status st;

    k->books = waste_mem_aligned(64, n * room * sizeof *k->books);
    if (!k->books)
        return waste_fail(err, WASTE_NOMEM, "out of memory for the codebooks of layer %d", layer);
    memset(k->books, 0, n * room * sizeof *k->books);
    st = waste_file_read(f, path, raw, n * record, (uint64_t)k->codebook_base * record, err);
    for (i = 0; !st && i < n; i++) {
        st = check_book(b, raw + i * record, (uint64_t)k->codebook_base + i, path, layer, err);
        if (!st) decode_book(raw + i * record, floats, k->books + i * room);
    }
    return st;
}

static waste_status read_codebooks(waste_banks *b, waste_error *err)
{
    const waste_quant *q = &b->manifest->quant;
    char path[WASTE_PATH_MAX], *raw;
    waste_file f = {WASTE_FILE_CLOSED};
    int layer;
    waste_status st = waste_path_join(path, sizeof path, b->manifest->dir, "codebooks.bin", err);

    if (st) return st;
    raw = waste_mem_alloc(3 * (size_t)q->stages *
                          (WASTE_CODEBOOK_HEADER + 2 * (size_t)q->entries * (size_t)q->vec_dim));
    if (!raw) return waste_fail(err, WASTE_NOMEM, "out of memory reading %s", path);
    st = waste_file_open(&f, path, err);
    for (layer = 0; !st && layer < b->shape.layers; layer++)
        if (b->bank[layer].path) st = read_books(b, layer, &f, path, raw, err);
    if (f.fd != WASTE_FILE_CLOSED) waste_file_drop(&f, 0, 0);
    waste_file_close(&f);
    waste_mem_free(raw);
    return st;
}

/* ---- banks ------------------------------------------------------------ */

static waste_status open_bank(waste_banks *b, int layer, waste_error *err)
{
    const waste_bank_entry *entry = &b->manifest->bank[layer];
    bank *k = &b->bank[layer];
    char path[WASTE_PATH_MAX];
    uint64_t size, wanted = entry->record_bytes * (uint64_t)entry->experts;
    waste_error e = {0};
    waste_status st;

    if (!entry->file || entry->experts != b->shape.experts ||
        entry->record_bytes != b->layout.bytes)
        return waste_fail(err, WASTE_FORMAT, "%s: layer %d has no bank of %d records of %llu bytes",
                          b->manifest->path, layer, b->shape.experts,
                          (unsigned long long)b->layout.bytes);
    st = waste_path_join(path, sizeof path, b->manifest->dir, entry->file, err);
    if (st) return st;
    k->path = waste_mem_text(path, strlen(path));
    if (!k->path) return waste_fail(err, WASTE_NOMEM, "out of memory opening %s", path);
    k->stride = entry->record_bytes;
    k->codebook_base = entry->codebook_base;
    st = waste_file_open_direct(&k->file, path, (size_t)k->stride,
                                !(b->flags & WASTE_BANKS_BUFFERED), &k->direct, &e);
    if (!st) st = waste_file_size(&k->file, path, &size, &e);
    if (st) return waste_fail(err, st, "bank of layer %d: %s", layer, e.text);
    if (size < wanted)
        return waste_fail(err, WASTE_FORMAT,
                          "%s (layer %d) has %llu bytes, wanted %llu: %d records of %llu", path,
                          layer, (unsigned long long)size, (unsigned long long)wanted,
                          entry->experts, (unsigned long long)k->stride);
    return WASTE_OK;
}

/* Banks that are opened by several threads: each waits for a read. */
typedef struct opening {
    waste_banks *banks;
    const waste_cancel *cancel;
    pthread_mutex_t lock; /* guards what follows */
    int next;             /* layer */
    int failed;           /* the first layer that did; layers: none */
    waste_status status;
    waste_error error;
} opening;

static void open_some(void *ctx, int thread)
{
    opening *o = ctx;
    const waste_cancel *cancel = thread ? NULL : o->cancel; /* asked on the caller's alone */
    const int layers = o->banks->shape.layers;

    for (;;) {
        waste_error e = {0};
        waste_status st;
        int layer;

        pthread_mutex_lock(&o->lock);
        layer = o->failed < layers ? layers : o->next++;
        pthread_mutex_unlock(&o->lock);
        if (layer >= layers) return;
        st = waste_asked(cancel) ? waste_fail(&e, WASTE_CANCELLED, "cancelled while opening")
                                 : open_bank(o->banks, layer, &e);
        if (!st) continue;
        pthread_mutex_lock(&o->lock);
        if (layer < o->failed) {
            o->failed = layer;
            o->status = st;
            o->error = e;
        }
        pthread_mutex_unlock(&o->lock);
    }
}

static waste_status open_all(waste_banks *b, const waste_cancel *cancel, waste_error *err)
{
    opening o = {
        .banks = b, .cancel = cancel, .next = b->shape.first_moe, .failed = b->shape.layers};
    int i;

    if (pthread_mutex_init(&o.lock, NULL))
        return waste_fail(err, WASTE_NOMEM, "no lock could be made for the banks");
    waste_process_team(OPENERS, open_some, &o);
    pthread_mutex_destroy(&o.lock);
    if (o.failed < b->shape.layers) return waste_fail(err, o.status, "%s", o.error.text);
    for (i = b->shape.first_moe; i < b->shape.layers; i++)
        if (b->bank[i].stride > b->slot_bytes) b->slot_bytes = b->bank[i].stride;
    return WASTE_OK;
}

waste_status waste_banks_open(waste_banks **out, const waste_manifest *m,
                              const waste_bank_shape *shape, unsigned flags,
                              const waste_cancel *cancel, waste_error *err)
{
    waste_banks *b;
    int i;
    waste_status st = WASTE_OK;

    *out = NULL;
    if (shape->layers < 0 || shape->layers > WASTE_MAX_LAYERS || shape->first_moe < 0)
        return waste_fail(err, WASTE_ARG, "banks of %d layers", shape->layers);
    b = waste_mem_zero(sizeof *b);
    if (!b) return waste_fail(err, WASTE_NOMEM, "out of memory opening the banks of %s", m->dir);
    b->manifest = m;
    b->shape = *shape;
    b->flags = flags;
    b->index_range = 1 << m->quant.index_bits;
    for (i = 0; i < WASTE_MAX_LAYERS; i++) b->bank[i].file.fd = WASTE_FILE_CLOSED;
    waste_record_layout_of(&b->layout, &m->quant, shape->width, shape->input);
    st = open_all(b, cancel, err);
    if (!st && shape->first_moe < shape->layers) st = read_codebooks(b, err);
    if (st) {
        waste_banks_close(b);
        return st;
    }
    *out = b;
    return WASTE_OK;
}

void waste_banks_close(waste_banks *b)
{
    int i;

    if (!b) return;
    for (i = 0; i < WASTE_MAX_LAYERS; i++) {
        waste_file_close(&b->bank[i].file);
        waste_mem_free(b->bank[i].path);
        waste_mem_free(b->bank[i].books);
    }
    waste_mem_free(b);
}

/* ---- use -------------------------------------------------------------- */

waste_status waste_banks_read(const waste_banks *b, int layer, int expert, void *to,
                              waste_error *err)
{
    const bank *k = bank_of(b, layer);
    waste_record_header h;
    waste_error e = {0};
    uint32_t crc;
    waste_status st;

    if (!k || expert < 0 || expert >= b->shape.experts)
        return waste_fail(err, WASTE_ARG, "%s has no expert %d in layer %d", b->manifest->dir,
                          expert, layer);
    st = b->fault ? b->fault(b->fault_ctx, layer, expert, &e) : WASTE_OK;
    if (!st)
        st = waste_file_read_blocks(&k->file, k->path, to, (size_t)k->stride,
                                    (uint64_t)expert * k->stride, &e);
    if (st) return waste_fail(err, st, "layer %d, expert %d: %s", layer, expert, e.text);
    memcpy(&h, to, sizeof h);
    st = waste_record_check(&h, &b->layout, &b->manifest->quant, layer, expert, k->codebook_base,
                            k->stride, k->path, err);
    if (!st && b->flags & WASTE_BANKS_VERIFY) {
        crc = waste_record_crc(to, &b->layout);
        if (crc != h.crc32)
            st = waste_fail(err, WASTE_IO,
                            "%s: layer %d, expert %d: checksum of the record is %08x, header "
                            "says %08x",
                            k->path, layer, expert, crc, h.crc32);
    }
    if (!st && b->pack) b->pack(b->pack_ctx, to);
    return st;
}

void waste_banks_pack(waste_banks *b, waste_bank_pack *pack, void *ctx)
{
    b->pack = pack;
    b->pack_ctx = ctx;
}

void waste_banks_fault(waste_banks *b, waste_bank_fault *fault, void *ctx)
{
    b->fault = fault;
    b->fault_ctx = ctx;
}

void waste_banks_modes(const waste_banks *b, int *direct, int *buffered)
{
    int i;

    *direct = *buffered = 0;
    for (i = 0; i < WASTE_MAX_LAYERS; i++) {
        if (!b->bank[i].path) continue;
        *direct += b->bank[i].direct;
        *buffered += !b->bank[i].direct;
    }
}

uint64_t waste_banks_slot_bytes(const waste_banks *b)
{
    return b->slot_bytes;
}

const waste_bank_shape *waste_banks_shape(const waste_banks *b)
{
    return &b->shape;
}

uint64_t waste_banks_record_bytes(const waste_banks *b, int layer)
{
    const bank *k = bank_of(b, layer);

    return k ? k->stride : 0;
}

const waste_record_layout *waste_banks_layout(const waste_banks *b, int layer)
{
    return bank_of(b, layer) ? &b->layout : NULL;
}

const float *waste_banks_codebook(const waste_banks *b, int layer, int kind, int stage)
{
    const bank *k = bank_of(b, layer);
    const waste_quant *q = &b->manifest->quant;

    if (!k || kind < 0 || kind > 2 || stage < 0 || stage >= q->stages) return NULL;
    return k->books +
           (size_t)(kind * q->stages + stage) * (size_t)b->index_range * (size_t)q->vec_dim;
}
