/* Record geometry and header checks: see record.h. Pure, any thread. Widths are
 * at most 2^20 and stages at most 8 (manifest.c, config.c), so no size here
 * leaves 64 bits. */
#include "store/record.h"

#include <libdeflate.h>

/* Bytes of the index area of an [m, n] matrix; a last partial block of rows is
 * stored whole. */
static uint64_t matrix_bytes(const waste_quant *q, int64_t m, int64_t n)
{
    uint64_t rows = (uint64_t)m, block = (uint64_t)q->index_block;

    if (block) rows = (rows + block - 1) / block * block;
    return rows * (uint64_t)(n / q->vec_dim) * (uint64_t)q->vector_bytes;
}

void waste_record_layout_of(waste_record_layout *l, const waste_quant *q, int64_t width,
                            int64_t input)
{
    l->gate_off = WASTE_RECORD_HEADER;
    l->up_off = l->gate_off + matrix_bytes(q, width, input);
    l->down_off = l->up_off + matrix_bytes(q, width, input);
    l->scale_off = l->down_off + matrix_bytes(q, input, width);
    l->scale_end = l->scale_off + 2 * (uint64_t)(2 * width + input);
    l->bytes = (l->scale_end + WASTE_RECORD_ALIGN - 1) / WASTE_RECORD_ALIGN * WASTE_RECORD_ALIGN;
}

uint64_t waste_record_index_pos(const waste_quant *q, int64_t n_vectors, int64_t row,
                                int64_t vector)
{
    uint64_t r = (uint64_t)row, v = (uint64_t)vector, nv = (uint64_t)n_vectors;
    uint64_t s = (uint64_t)q->vector_bytes, block = (uint64_t)q->index_block;

    if (!block) return (r * nv + v) * s;
    return (r / block * nv + v) * block * s + r % block * s;
}

/* Which header format goes with which index width: a packed record has the size
 * of a three-stage one, so only this keeps the two apart. */
static int fmt_fits(uint8_t fmt, const waste_quant *q)
{
    if (q->index_bits == 6) return fmt == WASTE_FMT_VQ4P;
    return fmt == WASTE_FMT_VQ3R || fmt == WASTE_FMT_VQ2R;
}

waste_status waste_record_check(const waste_record_header *h, const waste_record_layout *l,
                                const waste_quant *q, int layer, int expert, int codebook_base,
                                uint64_t stride, const char *file, waste_error *err)
{
    const struct {
        const char *field;
        uint64_t found, wanted;
    } equal[] = {
        {"magic", h->magic, WASTE_EXPERT_MAGIC},
        {"layer", h->layer, (uint64_t)layer},
        {"expert_id", h->expert, (uint64_t)expert},
        {"rec_4k_blocks", h->blocks, stride / WASTE_RECORD_ALIGN},
        {"lowrank_id", h->lowrank, 0},
        {"codebook_id", h->codebook, (uint64_t)codebook_base},
        {"gate_off", h->gate_off, l->gate_off},
        {"up_off", h->up_off, l->up_off},
        {"down_off", h->down_off, l->down_off},
        {"scale_off", h->scale_off, l->scale_off},
    };
    size_t i;

    if (stride != l->bytes)
        return waste_fail(err, WASTE_IO, "%s: layer %d, expert %d: records of %llu bytes, not %llu",
                          file, layer, expert, (unsigned long long)stride,
                          (unsigned long long)l->bytes);
    for (i = 0; i < sizeof equal / sizeof *equal; i++)
        if (equal[i].found != equal[i].wanted)
            return waste_fail(
                err, WASTE_IO,
                "%s: layer %d, expert %d: record header has %s %llu (0x%llx), wanted %llu (0x%llx)",
                file, layer, expert, equal[i].field, (unsigned long long)equal[i].found,
                (unsigned long long)equal[i].found, (unsigned long long)equal[i].wanted,
                (unsigned long long)equal[i].wanted);
    if (!fmt_fits(h->fmt, q))
        return waste_fail(err, WASTE_IO,
                          "%s: layer %d, expert %d: record header has fmt %d, which does not go "
                          "with %d-bit indices",
                          file, layer, expert, h->fmt, q->index_bits);
    return WASTE_OK;
}

uint32_t waste_record_crc(const void *record, const waste_record_layout *l)
{
    return libdeflate_crc32(0, (const char *)record + WASTE_RECORD_HEADER,
                            (size_t)(l->scale_end - WASTE_RECORD_HEADER));
}
