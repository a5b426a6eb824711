/* A conversion from safetensors to a .waste directory: waste_convert_* of waste.h.
 * Owns the parts and the order of work: trunk, then codebooks and bank of each
 * MoE layer, then the small files, then the manifest, whose appearance makes the
 * container (docs/convert.md 8). Everything that can be checked without reading
 * weights is checked by waste_convert_open. */
#include "convert/convert.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/mem.h"
#include "base/plat.h"
#include "convert/census.h"
#include "convert/experts.h"
#include "convert/files.h"

/* Weights that one call of waste_convert_next converts before it reports: a
 * second or two of encoding experts. */
#define WEIGHTS_PER_CALL ((int64_t)1 << 22)

typedef enum phase { TRUNK, CODEBOOKS, EXPERTS, FILES, MANIFEST, PUBLISHED, FAILED } phase;

struct waste_convert {
    waste_source *source;
    waste_settings settings;
    waste_trunk trunk;
    waste_experts *experts; /* NULL: the model has none */
    waste_files files;
    waste_writer *writer;
    waste_quant quant;
    const char *label; /* of the expert format */
    waste_cancel cancel;

    phase phase;
    size_t item;         /* next trunk tensor */
    int layer, expert;   /* next of each */
    uint64_t trunk_end;  /* bytes of trunk.bin so far */
    waste_buf codebooks; /* codebooks.bin so far */
    uint64_t done, total, started;
};

/* ---- opening ------------------------------------------------------------------------------ */

static waste_status read_effort(const waste_convert_options *opt, waste_experts_options *x,
                                waste_error *err)
{
    memset(x, 0, sizeof *x);
    if (waste_experts_effort(opt->effort, &x->beam))
        return waste_fail(err, WASTE_ARG, "effort is \"%s\", wanted fast, default or best",
                          opt->effort);
    if (opt->importance && !x->beam)
        return waste_fail(err, WASTE_ARG, "importance has no effect with effort \"fast\"");
    if (opt->threads < 0 || opt->threads > WASTE_VQ_THREADS)
        return waste_fail(err, WASTE_ARG, "threads is %d, wanted 0 to %d", opt->threads,
                          WASTE_VQ_THREADS);
    x->importance = opt->importance;
    x->threads = opt->threads;
    return WASTE_OK;
}

static waste_status read_options(waste_convert *c, const waste_convert_options *opt,
                                 waste_fmt *matrix, waste_fmt *record, waste_experts_options *x,
                                 waste_error *err)
{
    const char *experts = opt->experts ? opt->experts : "vq3r";

    switch (opt->trunk_bits) {
    case 0:
    case 4: *matrix = WASTE_FMT_Q4G; break;
    case 8: *matrix = WASTE_FMT_Q8G; break;
    case 3: *matrix = WASTE_FMT_Q3G; break;
    default:
        return waste_fail(err, WASTE_ARG, "trunk_bits is %d, wanted 3, 4 or 8", opt->trunk_bits);
    }
    if (waste_experts_format(experts, &c->quant, record, &c->label))
        return waste_fail(err, WASTE_ARG, "experts is \"%s\", wanted vq3r, vq2r or vq4p", experts);
    c->cancel = opt->cancel;
    return read_effort(opt, x, err);
}

static int moe_layers(const waste_settings *s)
{
    return s->experts ? s->layers - s->dense_layers : 0;
}

static waste_status open_parts(waste_convert *c, const char *source, const char *target,
                               const waste_convert_options *opt, waste_error *err)
{
    char config[WASTE_PATH_MAX];
    waste_fmt matrix = WASTE_FMT_Q4G, record = WASTE_FMT_VQ3R;
    waste_experts_options how;
    waste_status st = read_options(c, opt, &matrix, &record, &how, err);

    if (!st && !waste_path_is_dir(source))
        st = waste_fail(err, WASTE_IO, "the checkpoint %s is not a directory", source);
    if (!st) st = waste_writer_open(&c->writer, target, source, opt->overwrite, err);
    if (!st) st = waste_source_open(&c->source, source, err);
    if (!st) st = waste_path_join(config, sizeof config, source, "config.json", err);
    if (!st) st = waste_settings_read(&c->settings, waste_source_config(c->source), config, err);
    if (!st) st = waste_trunk_list(&c->trunk, c->source, &c->settings, matrix, err);
    if (!st) st = waste_census_check(&c->trunk, &c->settings, err);
    if (!st && moe_layers(&c->settings))
        st = waste_experts_open(&c->experts, c->source, &c->settings, &c->quant, record, &how, err);
    if (!st) st = waste_files_prepare(&c->files, source, &c->settings, err);
    return st;
}

waste_status waste_convert_open(waste_convert **out, const char *source, const char *target,
                                const waste_convert_options *opt, waste_error *err)
{
    static const waste_convert_options defaults;
    waste_convert *c = waste_mem_zero(sizeof *c);
    waste_status st;

    *out = NULL;
    if (!c) return waste_fail(err, WASTE_NOMEM, "out of memory opening %s", source);
    c->started = waste_clock_ns();
    st = open_parts(c, source, target, opt ? opt : &defaults, err);
    if (st) {
        waste_convert_close(c);
        return st;
    }
    c->layer = c->settings.dense_layers;
    c->total = c->trunk.n + 2; /* the small files, the manifest */
    c->total += (uint64_t)moe_layers(&c->settings) * (uint64_t)(1 + c->settings.experts);
    *out = c;
    return WASTE_OK;
}

void waste_convert_close(waste_convert *c)
{
    if (!c) return;
    waste_writer_close(c->writer);
    waste_buf_clear(&c->codebooks);
    waste_files_clear(&c->files);
    waste_experts_close(c->experts);
    waste_trunk_clear(&c->trunk);
    waste_settings_clear(&c->settings);
    waste_source_close(c->source);
    waste_mem_free(c);
}

/* ---- weights ------------------------------------------------------------------------------ */

static waste_status next_trunk(waste_convert *c, waste_convert_loss *loss, waste_error *err)
{
    waste_status st = WASTE_OK;
    int64_t weights = 0;

    if (c->item == 0) st = waste_writer_begin(c->writer, "trunk.bin", err);
    while (!st && c->item < c->trunk.n && weights < WEIGHTS_PER_CALL) {
        waste_trunk_item *t = c->trunk.item + c->item;
        st = waste_trunk_write(t, c->source, c->writer, &c->trunk_end, loss, &c->cancel, err);
        weights += t->rows * t->cols;
        c->item++;
        c->done++;
    }
    if (st || c->item < c->trunk.n) return st;
    c->phase = c->experts ? CODEBOOKS : FILES;
    return waste_writer_end(c->writer, err);
}

static int codebook_base(const waste_convert *c, int layer)
{
    return (layer - c->settings.dense_layers) * WASTE_EXPERTS_KINDS * c->quant.stages;
}

static waste_status next_codebooks(waste_convert *c, waste_error *err)
{
    const size_t bytes = waste_vq_book_bytes(&c->quant);
    int kind, s, id = codebook_base(c, c->layer);
    waste_status st = waste_experts_train(c->experts, c->layer, &c->cancel, err);

    for (kind = 0; !st && kind < WASTE_EXPERTS_KINDS; kind++)
        for (s = 0; !st && s < c->quant.stages; s++) {
            char *to = waste_buf_room(&c->codebooks, bytes);
            if (!to) return waste_fail(err, WASTE_NOMEM, "out of memory holding codebooks");
            waste_vq_book_write(waste_experts_books(c->experts, kind)->book + s, &c->quant,
                                (unsigned)id++, (unsigned char *)to);
            c->codebooks.len += bytes;
        }
    c->done++;
    c->expert = 0;
    c->phase = EXPERTS;
    return st;
}

static void bank_name(char *out, size_t cap, int layer)
{
    snprintf(out, cap, "experts-L%d.bin", layer);
}

static waste_status next_experts(waste_convert *c, waste_convert_loss *loss, waste_error *err)
{
    const int64_t each = 3 * c->settings.moe_width * c->settings.expert_in;
    const size_t bytes = (size_t)waste_experts_layout(c->experts)->bytes;
    const unsigned char *record;
    char name[32];
    int64_t weights = 0;
    waste_status st = WASTE_OK;

    bank_name(name, sizeof name, c->layer);
    if (c->expert == 0) st = waste_writer_begin(c->writer, name, err);
    while (!st && c->expert < c->settings.experts && weights < WEIGHTS_PER_CALL) {
        st = waste_experts_record(c->experts, c->layer, c->expert, codebook_base(c, c->layer),
                                  &record, loss, &c->cancel, err);
        if (!st) st = waste_writer_put(c->writer, record, bytes, err);
        weights += each;
        c->expert++;
        c->done++;
    }
    if (st || c->expert < c->settings.experts) return st;
    c->phase = ++c->layer < c->settings.layers ? CODEBOOKS : FILES;
    return waste_writer_end(c->writer, err);
}

/* ---- files and manifest ---------------------------------------------------------------------- */

static waste_status next_files(waste_convert *c, waste_error *err)
{
    waste_status st =
        waste_writer_file(c->writer, "codebooks.bin", c->codebooks.data, c->codebooks.len, err);

    if (!st) st = waste_files_write(&c->files, c->writer, err);
    c->done++;
    c->phase = MANIFEST;
    return st;
}

static void put_trunk(waste_buf *b, const waste_trunk_item *t)
{
    int i;

    waste_buf_text(b, "{\"name\":");
    waste_json_quote(b, t->name, strlen(t->name));
    waste_buf_printf(b, ",\"fmt\":%d,\"off\":%llu,\"shape\":[", (int)t->fmt,
                     (unsigned long long)t->off);
    for (i = 0; i < t->dims; i++)
        waste_buf_printf(b, "%s%lld", i ? "," : "", (long long)t->shape[i]);
    waste_buf_byte(b, ']');
    if (t->fmt != WASTE_FMT_F32)
        waste_buf_printf(b, ",\"group\":%d,\"scale_off\":%llu", WASTE_TRUNK_GROUP,
                         (unsigned long long)t->scale_off);
    waste_buf_printf(b, ",\"bytes\":%llu}", (unsigned long long)t->bytes);
}

static void put_layers(waste_buf *b, const waste_convert *c)
{
    const uint64_t bytes = c->experts ? waste_experts_layout(c->experts)->bytes : 0;
    char name[32];
    int l;

    waste_buf_text(b, "\"layers\":{");
    for (l = c->settings.dense_layers; c->experts && l < c->settings.layers; l++) {
        bank_name(name, sizeof name, l);
        waste_buf_printf(b,
                         "%s\n\"%d\":{\"file\":\"%s\",\"experts\":%d,\"bytes\":%llu,"
                         "\"codebook_base\":%d}",
                         l > c->settings.dense_layers ? "," : "", l, name, c->settings.experts,
                         (unsigned long long)(bytes * (uint64_t)c->settings.experts),
                         codebook_base(c, l));
    }
    waste_buf_byte(b, '}');
}

static waste_status next_manifest(waste_convert *c, waste_error *err)
{
    const waste_quant *q = &c->quant;
    waste_buf b = {0};
    size_t n, i;
    char *config = waste_json_dump(c->settings.config, &n);
    waste_status st = WASTE_OK;

    waste_buf_text(&b, "{\"format_version\":0,\n\"arch\":");
    waste_json_quote(&b, c->settings.arch, strlen(c->settings.arch));
    waste_buf_printf(&b, ",\n\"tensor_prefix\":\"%s\",\n\"config\":", c->settings.prefix);
    if (config) waste_buf_add(&b, config, n);
    waste_buf_printf(&b,
                     ",\n\"expert_quant\":{\"fmt\":\"%s\",\"stages\":%d,\"vec_dim\":%d,"
                     "\"entries\":%d,\"index_block\":%d,\"index_bits\":%d,"
                     "\"bits_per_weight\":%d},\n",
                     c->label, q->stages, q->vec_dim, q->entries, q->index_block, q->index_bits,
                     q->stages * q->index_bits / q->vec_dim);
    put_layers(&b, c);
    waste_buf_text(&b, ",\n\"trunk\":[");
    for (i = 0; i < c->trunk.n; i++) {
        waste_buf_text(&b, i ? ",\n" : "\n");
        put_trunk(&b, c->trunk.item + i);
    }
    waste_buf_text(&b, "\n]}\n");
    if (!config || b.failed)
        st = waste_fail(err, WASTE_NOMEM, "out of memory writing manifest.json");
    if (!st) st = waste_convert_asked(&c->cancel, err);
    if (!st) st = waste_writer_publish(c->writer, b.data, b.len, err);
    waste_mem_free(config);
    waste_buf_clear(&b);
    c->done++;
    c->phase = PUBLISHED;
    return st;
}

/* ---- the order of work -------------------------------------------------------------------------- */

static const char *const phase_names[] = {"trunk",    "codebooks", "experts", "files",
                                          "manifest", "manifest",  "manifest"};

static waste_status work(waste_convert *c, waste_convert_loss *loss, waste_error *err)
{
    switch (c->phase) {
    case TRUNK: return next_trunk(c, loss, err);
    case CODEBOOKS: return next_codebooks(c, err);
    case EXPERTS: return next_experts(c, loss, err);
    case FILES: return next_files(c, err);
    case MANIFEST: return next_manifest(c, err);
    case PUBLISHED: return WASTE_DONE;
    default: return waste_fail(err, WASTE_ARG, "this conversion has failed before");
    }
}

waste_status waste_convert_next(waste_convert *c, waste_convert_row *row, waste_error *err)
{
    waste_convert_loss loss = {0, 0};
    waste_status st;

    memset(row, 0, sizeof *row);
    row->phase = phase_names[c->phase];
    row->layer = c->phase == CODEBOOKS || c->phase == EXPERTS ? c->layer : -1;
    st = work(c, &loss, err);
    if (st < 0) c->phase = FAILED;
    row->done = c->done;
    row->total = c->total;
    row->bytes = waste_writer_bytes(c->writer);
    row->seconds = (double)(waste_clock_ns() - c->started) / 1e9;
    row->error = loss.all > 0 ? sqrt(loss.wrong / loss.all) : NAN;
    return st;
}
