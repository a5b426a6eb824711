/* What a conversion does, piece by piece: see work.h. Every file appears in the
 * working directory by fsync and rename; which are there decides what is left to do. */
#include "convert/work.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/plat.h"
#include "base/ram.h"
#include "convert/disk.h"
#include "model/plan.h"

/* Weights that one call converts before it reports: a second or two of experts. */
#define WEIGHTS_PER_CALL ((int64_t)1 << 22)

#define PROOF_NS 2000000000u /* of reading back between two rows */

waste_convert_names waste_convert_names_of(int layer)
{
    waste_convert_names n;

    snprintf(n.bank, sizeof n.bank, "experts-L%d.bin", layer);
    snprintf(n.books, sizeof n.books, "codebooks-L%d.bin", layer);
    snprintf(n.losses, sizeof n.losses, "experts-L%d.loss", layer);
    return n;
}

/* The bank that a layer has to get. */
static waste_resume_bank bank_of(const waste_convert *c, int layer)
{
    waste_resume_bank b = {
        waste_experts_layout(c->experts),     &c->quant, c->record, layer, c->settings.experts,
        waste_convert_codebook_base(c, layer)};

    return b;
}

static uint64_t bank_bytes(const waste_convert *c)
{
    return c->experts ? waste_experts_layout(c->experts)->bytes * (uint64_t)c->settings.experts : 0;
}

static uint64_t books_bytes(const waste_convert *c)
{
    return (uint64_t)(WASTE_EXPERTS_KINDS * c->quant.stages) * waste_vq_book_bytes(&c->quant);
}

uint64_t waste_work_bytes(const waste_convert *c)
{
    uint64_t n = c->trunk.bytes + (uint64_t)c->n_wanted * (bank_bytes(c) + 2 * books_bytes(c));
    int i;

    for (i = 0; i < c->files.n; i++) n += c->files.item[i].data.len;
    return n + 256 * (uint64_t)c->trunk.n + (1u << 16); /* the manifest, about */
}

static int64_t weights_of(const waste_trunk_item *t)
{
    return t->rows * t->cols;
}

void waste_work_count(waste_convert *c)
{
    size_t i;

    c->total = c->trunk.n + (uint64_t)c->n_wanted * (uint64_t)(1 + c->settings.experts) + 1;
    /* files, the layers and the rest of the proof, the token */
    if (!waste_convert_is_trial(c)) c->total += 1 + (uint64_t)c->n_wanted + 2;
    for (i = 0; i < c->trunk.n; i++) c->pace_trunk.left += (uint64_t)weights_of(c->trunk.item + i);
    c->pace_books.left = (uint64_t)c->n_wanted;
    c->pace_experts.left = (uint64_t)c->n_wanted * (uint64_t)c->settings.experts;
}

static void pass(waste_convert_pace *p, uint64_t units, uint64_t ns)
{
    p->left -= units;
    p->done += ns ? units : 0;
    p->ns += ns;
}

/* ---- what is there ------------------------------------------------------------------------ */

waste_status waste_convert_is_finished(const waste_convert *c, int layer, int *yes,
                                       waste_error *err)
{
    const waste_resume_bank bank = bank_of(c, layer);
    char path[WASTE_PATH_MAX];
    waste_convert_names name;
    waste_error why = {0};
    waste_status st;

    name = waste_convert_names_of(layer);
    *yes = waste_writer_finished(c->writer, name.bank, bank_bytes(c)) &&
           waste_writer_finished(c->writer, name.books, books_bytes(c));
    if (!*yes) return WASTE_OK;
    st = waste_writer_path(c->writer, name.bank, 0, path, err);
    if (!st) st = waste_resume_walk(&bank, path, &c->cancel, &why);
    *yes = st == WASTE_OK;
    return st == WASTE_CANCELLED ? waste_fail(err, st, "%s", why.text) : WASTE_OK;
}

static waste_status release(waste_convert *c, int reader, waste_error *err)
{
    char note[sizeof c->freed_note];
    int n = 0;
    waste_status st = waste_reclaim_done(c->reclaim, reader, waste_writer_work(c->writer), &n,
                                         &c->freed, note, err);

    c->spent += n;
    if (*note) memcpy(c->freed_note, note, sizeof note);
    return st;
}

static waste_status find_layers(waste_convert *c, waste_error *err)
{
    waste_status st = WASTE_OK;
    int l, yes;

    for (l = c->settings.dense_layers; !st && c->experts && l < c->settings.layers; l++) {
        st = waste_convert_is_finished(c, l, &yes, err);
        c->finished[l] = (unsigned char)yes;
        if (st || !c->wanted[l]) continue;
        if (!yes) {
            st = waste_reclaim_needs(c->reclaim, l, err);
            continue;
        }
        c->done += (uint64_t)(1 + c->settings.experts);
        pass(&c->pace_books, 1, 0);
        pass(&c->pace_experts, (uint64_t)c->settings.experts, 0);
    }
    for (l = c->settings.dense_layers; !st && c->experts && l < c->settings.layers; l++)
        if (c->finished[l]) st = release(c, l, err);
    return st;
}

static waste_status find_trunk(waste_convert *c, waste_error *err)
{
    if (!waste_writer_finished(c->writer, "trunk.bin", c->trunk.bytes))
        return waste_reclaim_needs(c->reclaim, WASTE_NAMES_TRUNK, err);
    c->item = c->trunk.n;
    c->done += c->trunk.n;
    c->pace_trunk.left = 0;
    return release(c, WASTE_NAMES_TRUNK, err);
}

/* The next wanted layer from c->layer on that is not finished, or the files. */
static waste_convert_phase next_layer(waste_convert *c)
{
    c->expert = 0;
    while (c->layer < c->settings.layers && (!c->wanted[c->layer] || c->finished[c->layer]))
        c->layer++;
    if (c->experts && c->layer < c->settings.layers) return WASTE_CONVERT_CODEBOOKS;
    return waste_convert_is_trial(c) ? WASTE_CONVERT_TRIAL : WASTE_CONVERT_FILES;
}

/* After work that may have released shards: a row about these first. */
static void go_on(waste_convert *c, waste_convert_phase phase)
{
    c->after = phase;
    c->phase = c->spent || *c->freed_note ? WASTE_CONVERT_RECLAIM : phase;
}

/* Full disks are found out now and not after hours. */
static waste_status check_space(const waste_convert *c, waste_error *err)
{
    const uint64_t there = waste_disk_dir_bytes(waste_writer_work(c->writer));
    const uint64_t all = waste_work_bytes(c), free = waste_disk_free(waste_writer_dir(c->writer));
    const uint64_t need = all > there ? all - there : 0;

    if (c->mode == WASTE_RECLAIM_ON || free >= need) return WASTE_OK;
    return waste_fail(err, WASTE_IO, "%s: the container needs %llu more bytes, %llu are free",
                      waste_writer_dir(c->writer), (unsigned long long)need,
                      (unsigned long long)free);
}

waste_status waste_work_start(waste_convert *c, waste_error *err)
{
    waste_status st = waste_writer_start(c->writer, c->job.data, c->job.len, err);

    if (st) return st;
    c->layer = c->settings.dense_layers;
    c->proof_layer = -1;
    if (waste_writer_is_publishing(c->writer)) {
        c->done = c->total - 1;
        c->pace_trunk.left = c->pace_books.left = c->pace_experts.left = 0;
        c->phase = WASTE_CONVERT_MANIFEST;
        return WASTE_OK;
    }
    st = find_trunk(c, err);
    if (!st) st = find_layers(c, err);
    if (!st) st = check_space(c, err);
    if (!st) go_on(c, c->item < c->trunk.n ? WASTE_CONVERT_TRUNK : next_layer(c));
    return st;
}

/* ---- weights ------------------------------------------------------------------------------ */

static waste_status next_trunk(waste_convert *c, waste_error *err)
{
    const uint64_t began = waste_clock_ns();
    waste_status st = WASTE_OK;
    int64_t weights = 0;

    if (c->item == 0) st = waste_writer_begin(c->writer, "trunk.bin", 0, err);
    while (!st && c->item < c->trunk.n && weights < WEIGHTS_PER_CALL) {
        const waste_trunk_item *t = c->trunk.item + c->item;
        st = waste_trunk_write(t, c->source, c->team.pool, c->writer, &c->trunk_loss, &c->cancel,
                               err);
        weights += weights_of(t);
        c->item++;
        c->done++;
    }
    pass(&c->pace_trunk, (uint64_t)weights, waste_clock_ns() - began);
    if (st || c->item < c->trunk.n) return st;
    st = waste_writer_end(c->writer, err);
    if (!st) st = release(c, WASTE_NAMES_TRUNK, err);
    go_on(c, next_layer(c));
    return st;
}

static waste_status write_books(const waste_convert *c, waste_buf *to, waste_error *err)
{
    const size_t bytes = waste_vq_book_bytes(&c->quant);
    int kind, s, id = waste_convert_codebook_base(c, c->layer);

    for (kind = 0; kind < WASTE_EXPERTS_KINDS; kind++)
        for (s = 0; s < c->quant.stages; s++) {
            char *at = waste_buf_room(to, bytes);
            if (!at) return waste_fail(err, WASTE_NOMEM, "out of memory holding codebooks");
            waste_vq_book_write(waste_experts_books(c->experts, kind)->book + s, &c->quant,
                                (unsigned)id++, (unsigned char *)at);
            to->len += bytes;
        }
    return WASTE_OK;
}

/* Whether the finished file `name` holds exactly this. */
static int holds(const waste_convert *c, const char *name, const waste_buf *want)
{
    char path[WASTE_PATH_MAX], *data = NULL;
    size_t n = 0;
    int same;

    if (waste_writer_path(c->writer, name, 0, path, NULL) || !waste_path_exists(path)) return 0;
    same = waste_file_load(path, want->len, &data, &n, NULL) == WASTE_OK && n == want->len &&
           memcmp(data, want->data, n) == 0;
    waste_mem_free(data);
    return same;
}

static void remove_work_file(const waste_convert *c, const char *name, int tmp)
{
    char path[WASTE_PATH_MAX];

    if (waste_writer_path(c->writer, name, tmp, path, NULL) == WASTE_OK) waste_path_remove(path);
}

/* Records made earlier against these books stay; the books are made again to see that
 * they are the same. */
static waste_status take_books(waste_convert *c, const waste_convert_names *name, waste_error *err)
{
    const waste_resume_bank bank = bank_of(c, c->layer);
    char path[WASTE_PATH_MAX], losses[WASTE_PATH_MAX];
    waste_buf books = {0};
    waste_status st = write_books(c, &books, err);

    if (!st && holds(c, name->books, &books)) {
        st = waste_writer_path(c->writer, name->bank, 1, path, err);
        if (!st) st = waste_writer_path(c->writer, name->losses, 0, losses, err);
        if (!st) st = waste_resume_count(&bank, path, losses, &c->expert, c->loss, &c->cancel, err);
    } else if (!st) {
        remove_work_file(c, name->losses, 0);
        remove_work_file(c, name->bank, 1);
        st = waste_writer_file(c->writer, name->books, books.data, books.len, err);
    }
    waste_buf_clear(&books);
    return st;
}

static waste_status next_codebooks(waste_convert *c, waste_error *err)
{
    const uint64_t began = waste_clock_ns();
    waste_convert_names name;
    waste_status st = waste_experts_train(c->experts, c->layer, &c->cancel, err);

    name = waste_convert_names_of(c->layer);
    c->expert = 0;
    memset(c->loss, 0, sizeof c->loss);
    remove_work_file(c, name.bank, 0); /* one that is not sound */
    if (!st) st = take_books(c, &name, err);
    if (!st)
        st = waste_writer_begin(c->writer, name.bank,
                                (uint64_t)c->expert * waste_experts_layout(c->experts)->bytes, err);
    pass(&c->pace_books, 1, waste_clock_ns() - began);
    pass(&c->pace_experts, (uint64_t)c->expert, 0);
    c->done += 1 + (uint64_t)c->expert;
    c->phase = WASTE_CONVERT_EXPERTS;
    return st;
}

/* One record into the bank, then what it lost beside it. */
static waste_status next_record(waste_convert *c, const char *losses, waste_error *err)
{
    waste_resume_loss l;
    const unsigned char *record;
    waste_record_header h;
    waste_status st;
    int k;

    memset(&l, 0, sizeof l);
    st = waste_experts_record(c->experts, c->layer, c->expert,
                              waste_convert_codebook_base(c, c->layer), &record, l.kind, &c->cancel,
                              err);
    if (!st)
        st = waste_writer_put(c->writer, record, (size_t)waste_experts_layout(c->experts)->bytes,
                              err);
    if (st) return st;
    memcpy(&h, record, sizeof h);
    waste_resume_loss_seal(&l, h.crc32);
    for (k = 0; k < WASTE_EXPERTS_KINDS; k++) {
        c->loss[k].wrong += l.kind[k].wrong;
        c->loss[k].all += l.kind[k].all;
    }
    return waste_disk_write_at(losses, (uint64_t)c->expert * sizeof l, &l, sizeof l, err);
}

static waste_status next_experts(waste_convert *c, waste_error *err)
{
    const int64_t each = 3 * c->settings.moe_width * c->settings.expert_in;
    char losses[WASTE_PATH_MAX];
    waste_convert_names name;
    int64_t weights = 0;
    waste_status st;

    name = waste_convert_names_of(c->layer);
    st = waste_writer_path(c->writer, name.losses, 0, losses, err);
    while (!st && c->expert < c->settings.experts && weights < WEIGHTS_PER_CALL) {
        const uint64_t began = waste_clock_ns();
        st = next_record(c, losses, err);
        pass(&c->pace_experts, 1, waste_clock_ns() - began);
        weights += each;
        c->expert++;
        c->done++;
    }
    if (st || c->expert < c->settings.experts) return st;
    st = waste_writer_end(c->writer, err);
    c->phase = WASTE_CONVERT_LAYER;
    c->kind = 0;
    return st;
}

/* Three rows, then what the layer releases: by then its bank is on disk and is
 * walked over once more. */
static waste_status next_kind(waste_convert *c, waste_error *err)
{
    waste_convert_names name;
    waste_status st;
    int yes = 0;

    if (++c->kind < WASTE_EXPERTS_KINDS) return WASTE_OK;
    name = waste_convert_names_of(c->layer);
    st = waste_convert_is_finished(c, c->layer, &yes, err);
    if (!st && !yes)
        st = waste_fail(err, WASTE_IO, "%s/%s is not what was written: its shards are kept",
                        waste_writer_work(c->writer), name.bank);
    if (!st) c->finished[c->layer] = 1;
    if (!st) st = release(c, c->layer, err);
    go_on(c, next_layer(c));
    return st;
}

static waste_status next_reclaim(waste_convert *c, waste_convert_row *row)
{
    if (*c->freed_note)
        memcpy(row->note, c->freed_note, sizeof row->note);
    else
        snprintf(row->note, sizeof row->note, "%d shards %s", c->spent,
                 c->mode == WASTE_RECLAIM_ON ? "deleted" : "could be deleted");
    c->spent = 0;
    *c->freed_note = 0;
    c->phase = c->after;
    return WASTE_OK;
}

/* ---- files, proof, publication ---------------------------------------------------------------- */

/* The layers' parts, each at its base. */
static waste_status merge_books(const waste_convert *c, waste_buf *to, waste_error *err)
{
    char path[WASTE_PATH_MAX], *data;
    waste_convert_names name;
    size_t n;
    waste_status st = WASTE_OK;
    int l;

    for (l = c->settings.dense_layers; !st && c->experts && l < c->settings.layers; l++) {
        name = waste_convert_names_of(l);
        st = waste_writer_path(c->writer, name.books, 0, path, err);
        if (!st) st = waste_file_load(path, books_bytes(c), &data, &n, err);
        if (st) break;
        waste_buf_add(to, data, n);
        waste_mem_free(data);
        if (n != books_bytes(c))
            st = waste_fail(err, WASTE_IO, "%s has %zu bytes, wanted %llu", path, n,
                            (unsigned long long)books_bytes(c));
    }
    if (!st && to->failed) st = waste_fail(err, WASTE_NOMEM, "out of memory holding codebooks");
    return st;
}

static waste_status next_files(waste_convert *c, waste_error *err)
{
    waste_buf b = {0};
    waste_status st = merge_books(c, &b, err);

    if (!st) st = waste_writer_file(c->writer, "codebooks.bin", b.data, b.len, err);
    if (!st) st = waste_files_write(&c->files, c->writer, err);
    b.len = 0;
    if (!st) st = waste_manifest_text(&b, c, err);
    if (!st) st = waste_writer_file(c->writer, "manifest.json", b.data, b.len, err);
    waste_buf_clear(&b);
    c->done++;
    c->phase = WASTE_CONVERT_PROOF;
    return st;
}

/* What is broken is made again the next time, unless its source is gone. */
static waste_status disproved(waste_convert *c, const waste_verify_row *row, waste_error *err)
{
    const int reader = row->layer >= 0 ? row->layer : WASTE_NAMES_TRUNK;
    waste_convert_names name;

    name = waste_convert_names_of(row->layer);
    waste_writer_drop(c->writer, "manifest.json");
    if (c->mode != WASTE_RECLAIM_ON && waste_reclaim_needs(c->reclaim, reader, NULL) == WASTE_OK)
        waste_writer_drop(c->writer, row->layer >= 0 ? name.bank : "trunk.bin");
    return waste_fail(err, WASTE_IO, "the new container is not sound and is not published: %s",
                      row->note);
}

/* A slice of reading everything back. */
static waste_status next_proof(waste_convert *c, waste_convert_row *row, waste_error *err)
{
    const uint64_t began = waste_clock_ns();
    waste_status st = WASTE_OK;
    waste_verify_row r;

    if (!c->proof)
        st = waste_verify_open(&c->proof, waste_writer_work(c->writer), NULL, &c->cancel, err);
    while (!st && waste_clock_ns() - began < PROOF_NS) {
        st = waste_verify_next(c->proof, &r, err);
        if (st < 0) return st;
        if (st == WASTE_DONE) break;
        if (!r.ok) return disproved(c, &r, err);
        if (r.layer != c->proof_layer) {
            c->proof_layer = r.layer;
            c->done++; /* what was before is done */
        }
    }
    snprintf(row->note, sizeof row->note, "read back and found whole so far");
    if (st != WASTE_DONE) return st;
    snprintf(row->note, sizeof row->note, "every tensor, codebook and record is whole");
    waste_verify_close(c->proof);
    c->proof = NULL;
    c->done++;
    c->phase = WASTE_CONVERT_TOKEN;
    return WASTE_OK;
}

static waste_status one_token(waste_model *m, int vocab, const waste_cancel *cancel, char *note,
                              size_t cap, waste_error *err)
{
    float *logits = waste_mem_array((size_t)vocab, sizeof *logits);
    waste_seq *seq = NULL;
    int i, best = 0;
    waste_status st =
        logits ? waste_seq_new(&seq, m, err) : waste_fail(err, WASTE_NOMEM, "out of memory");

    if (!st) {
        const waste_row row = {seq, 0, logits};
        st = waste_step(m, &row, 1, cancel, NULL, err);
    }
    for (i = 0; !st && i < vocab; i++) {
        if (!isfinite(logits[i]))
            st = waste_fail(err, WASTE_FORMAT,
                            "the new container computes a logit that is not finite");
        if (logits[i] > logits[best]) best = i;
    }
    if (!st) snprintf(note, cap, "generated a token: %d follows 0", best);
    waste_seq_free(seq);
    waste_mem_free(logits);
    return st;
}

/* What the new container takes with the smallest cache, for this token. */
static waste_status floor_of(const char *path, const waste_model_options *o, uint64_t *floor,
                             waste_error *err)
{
    waste_plan_report plan = {0};
    waste_status st = waste_plan_make(&plan, path, o, 0, err);
    size_t i;

    for (i = 0; i < plan.n; i++)
        if (strcmp(plan.row[i].part, "floor") == 0) *floor = (uint64_t)plan.row[i].value;
    waste_plan_clear(&plan);
    return st;
}

/* Opened as any host would, with no more memory than it must have. A machine may be too
 * small to run what it can convert: hours of work are not to end by being killed. */
static waste_status open_smallest(waste_model **m, const char *path, const waste_cancel *cancel,
                                  waste_error *err)
{
    waste_model_options o = {.context = 16, .buffered = 1, .lookahead = -1, .cancel = *cancel};
    waste_status st = floor_of(path, &o, &o.budget, err);
    waste_ram ram;

    if (st) return st;
    waste_ram_get(&ram, "");
    if (o.budget > waste_plan_cliff(ram.usable))
        return waste_fail(err, WASTE_RAM_BUDGET,
                          "the model needs %llu bytes, above 3/4 of the usable RAM of %llu",
                          (unsigned long long)o.budget, (unsigned long long)ram.usable);
    return waste_model_open(m, path, &o, err);
}

static waste_status next_token(waste_convert *c, waste_convert_row *row, waste_error *err)
{
    waste_error why = {0};
    waste_model *m = NULL;
    waste_status st = open_smallest(&m, waste_writer_work(c->writer), &c->cancel, &why);

    c->proof_layer = -1;
    if (st == WASTE_RAM_BUDGET) {
        snprintf(row->note, sizeof row->note, "no token was generated: %.160s", why.text);
        st = WASTE_OK;
    } else if (st) {
        waste_fail(err, st, "%s", why.text);
    } else {
        st = one_token(m, c->settings.vocab, &c->cancel, row->note, sizeof row->note, err);
    }
    waste_model_close(m);
    c->done++;
    c->phase = WASTE_CONVERT_MANIFEST;
    return st;
}

static waste_status publish(waste_convert *c, waste_error *err)
{
    char bank[WASTE_MAX_LAYERS][32];
    const char *names[WASTE_MAX_LAYERS + WASTE_FILES_MAX + 2] = {"trunk.bin", "codebooks.bin"};
    waste_convert_names name;
    size_t n = 2;
    int l;
    waste_status st = waste_convert_asked(&c->cancel, err);

    for (l = 0; l < c->files.n; l++) names[n++] = c->files.item[l].name;
    for (l = c->settings.dense_layers; c->experts && l < c->settings.layers; l++) {
        name = waste_convert_names_of(l);
        strcpy(bank[l], name.bank);
        names[n++] = bank[l];
    }
    if (!st) st = waste_writer_publish(c->writer, names, n, err);
    c->done++;
    c->phase = WASTE_CONVERT_DONE;
    return st;
}

static waste_status end_trial(waste_convert *c, waste_convert_row *row)
{
    snprintf(row->note, sizeof row->note,
             "nothing was published: a conversion of all layers goes "
             "on from here");
    c->done++;
    c->phase = WASTE_CONVERT_DONE;
    return WASTE_OK;
}

waste_status waste_work_next(waste_convert *c, waste_convert_row *row, waste_error *err)
{
    switch (c->phase) {
    case WASTE_CONVERT_TRUNK: return next_trunk(c, err);
    case WASTE_CONVERT_CODEBOOKS: return next_codebooks(c, err);
    case WASTE_CONVERT_EXPERTS: return next_experts(c, err);
    case WASTE_CONVERT_LAYER: return next_kind(c, err);
    case WASTE_CONVERT_RECLAIM: return next_reclaim(c, row);
    case WASTE_CONVERT_FILES: return next_files(c, err);
    case WASTE_CONVERT_PROOF: return next_proof(c, row, err);
    case WASTE_CONVERT_TOKEN: return next_token(c, row, err);
    case WASTE_CONVERT_MANIFEST: return publish(c, err);
    case WASTE_CONVERT_TRIAL: return end_trial(c, row);
    case WASTE_CONVERT_DONE: return WASTE_DONE;
    default: return waste_fail(err, WASTE_ARG, "this conversion has failed before");
    }
}
