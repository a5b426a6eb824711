/* Leftovers of an interrupted conversion: see resume.h. */
#include "convert/resume.h"

#include <libdeflate.h>
#include <stddef.h>
#include <string.h>

#include "base/mem.h"
#include "base/plat.h"

#define ENTRY sizeof(waste_resume_loss)

static uint32_t check_of(const waste_resume_loss *l)
{
    return libdeflate_crc32(0, l, offsetof(waste_resume_loss, check));
}

void waste_resume_loss_seal(waste_resume_loss *l, uint32_t record_crc)
{
    l->record_crc = record_crc;
    l->check = check_of(l);
}

/* The loss file, as far as its entries are whole. NULL and 0 when there is none. */
static waste_resume_loss *load_losses(const char *path, size_t *n)
{
    char *data;
    size_t bytes, i;

    *n = 0;
    if (waste_file_load(path, 65536 * ENTRY, &data, &bytes, NULL)) return NULL;
    for (i = 0; i < bytes / ENTRY; i++) {
        waste_resume_loss l;
        memcpy(&l, data + i * ENTRY, ENTRY);
        if (l.check != check_of(&l)) break;
        *n = i + 1;
    }
    return (waste_resume_loss *)(void *)data; /* the heap aligns for any type */
}

static void add(waste_convert_loss sum[WASTE_RESUME_KINDS], const waste_resume_loss *l)
{
    int k;

    for (k = 0; k < WASTE_RESUME_KINDS; k++) {
        sum[k].wrong += l->kind[k].wrong;
        sum[k].all += l->kind[k].all;
    }
}

/* The header that the record has to have, its checksum aside. */
static int header_fits(const waste_resume_bank *b, const waste_record_header *h, int expert)
{
    waste_record_header want;

    memset(&want, 0, sizeof want);
    want.magic = WASTE_EXPERT_MAGIC;
    want.layer = (uint16_t)b->layer;
    want.expert = (uint16_t)expert;
    want.fmt = (uint8_t)b->fmt;
    want.codebook = (uint16_t)b->codebook_base;
    want.blocks = (uint32_t)(b->layout->bytes / WASTE_RECORD_ALIGN);
    want.gate_off = (uint32_t)b->layout->gate_off;
    want.up_off = (uint32_t)b->layout->up_off;
    want.down_off = (uint32_t)b->layout->down_off;
    want.scale_off = (uint32_t)b->layout->scale_off;
    want.crc32 = h->crc32;
    return memcmp(h, &want, sizeof want) == 0;
}

static int is_zero(const unsigned char *p, uint64_t n)
{
    uint64_t i;

    for (i = 0; i < n; i++)
        if (p[i]) return 0;
    return 1;
}

static int record_fits(const waste_resume_bank *b, const unsigned char *record, int expert,
                       uint32_t *crc)
{
    const waste_record_layout *l = b->layout;
    waste_record_header h;

    memcpy(&h, record, sizeof h);
    *crc = h.crc32;
    return header_fits(b, &h, expert) && is_zero(record + l->scale_end, l->bytes - l->scale_end) &&
           waste_record_crc(record, l) == h.crc32;
}

waste_status waste_resume_count(const waste_resume_bank *b, const char *path, const char *losses,
                                int *n, waste_convert_loss sum[WASTE_RESUME_KINDS],
                                const waste_cancel *cancel, waste_error *err)
{
    const uint64_t bytes = b->layout->bytes;
    size_t known = 0;
    waste_resume_loss *loss = load_losses(losses, &known);
    unsigned char *record = NULL;
    waste_file f = {WASTE_FILE_CLOSED};
    uint64_t size = 0;
    uint32_t crc;
    waste_status st = WASTE_OK;

    *n = 0;
    memset(sum, 0, WASTE_RESUME_KINDS * sizeof *sum);
    if (known && waste_file_open(&f, path, NULL) == WASTE_OK &&
        waste_file_size(&f, path, &size, NULL) == WASTE_OK) {
        record = waste_mem_alloc((size_t)bytes);
        if (!record) st = waste_fail(err, WASTE_NOMEM, "out of memory looking at %s", path);
    }
    while (record && !st && *n < b->experts && (size_t)*n < known &&
           ((uint64_t)*n + 1) * bytes <= size) {
        st = waste_convert_asked(cancel, err);
        if (st || waste_file_read(&f, path, record, (size_t)bytes, (uint64_t)*n * bytes, NULL))
            break;
        if (!record_fits(b, record, *n, &crc) || loss[*n].record_crc != crc) break;
        add(sum, loss + *n);
        ++*n;
    }
    waste_file_close(&f);
    waste_mem_free(record);
    waste_mem_free(loss);
    return st;
}

waste_status waste_resume_walk(const waste_resume_bank *b, const char *path,
                               const waste_cancel *cancel, waste_error *err)
{
    waste_record_header h;
    waste_file f;
    uint64_t size = 0;
    int e;
    waste_status st = waste_file_open(&f, path, err);

    if (st) return st;
    st = waste_file_size(&f, path, &size, err);
    if (!st && size != (uint64_t)b->experts * b->layout->bytes)
        st = waste_fail(err, WASTE_FORMAT, "%s has %llu bytes, wanted %llu", path,
                        (unsigned long long)size,
                        (unsigned long long)((uint64_t)b->experts * b->layout->bytes));
    for (e = 0; !st && e < b->experts; e++) {
        st = waste_convert_asked(cancel, err);
        if (!st) st = waste_file_read(&f, path, &h, sizeof h, (uint64_t)e * b->layout->bytes, err);
        if (!st && !header_fits(b, &h, e))
            st = waste_fail(err, WASTE_FORMAT,
                            "%s: the header of record %d is not what it should be", path, e);
    }
    waste_file_close(&f);
    return st;
}
