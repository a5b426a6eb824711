/* Trunk matrices in tiles: see tiles.h. No state, any thread. Runs once per matrix
 * when the model is loaded. */
#include "kernels/tiles.h"

#include <string.h>

static uint32_t load32(const unsigned char *p)
{
    uint32_t u;

    memcpy(&u, p, sizeof u);
    return u;
}

static void store32(unsigned char *p, uint32_t u)
{
    memcpy(p, &u, sizeof u);
}

/* Columns of a step; 0 for formats without tiles. */
static int step_of(waste_fmt fmt)
{
    switch (fmt) {
    case WASTE_FMT_Q8G: return 4;
    case WASTE_FMT_Q4G: return 8;
    case WASTE_FMT_Q3G: return 32;
    default: return 0;
    }
}

int waste_tiles_code(waste_fmt fmt, const unsigned char *row, int64_t col)
{
    if (fmt == WASTE_FMT_Q8G) return (int8_t)row[col];
    if (fmt == WASTE_FMT_Q4G) return (col & 1 ? row[col / 2] >> 4 : row[col / 2] & 15) - 8;
    return ((row[3 * col / 8] | row[3 * col / 8 + 1] << 8) >> 3 * col % 8 & 7) - 4;
}

/* Eight nibbles in order become four bytes: nibble j low, nibble 4 + j high. */
static uint32_t pair_nibbles(uint32_t x)
{
    uint32_t lo = x & 0xFFFF, hi = x >> 16;

    lo = (lo | lo << 8) & 0x00FF00FF;
    lo = (lo | lo << 4) & 0x0F0F0F0F;
    hi = (hi | hi << 8) & 0x00FF00FF;
    hi = (hi | hi << 4) & 0x0F0F0F0F;
    return lo | hi << 4;
}

/* Four 3-bit fields in order, a byte each. */
static uint32_t spread3(uint32_t x)
{
    x &= 0xFFF;
    x = (x | x << 10) & 0x003F003F;
    return (x | x << 5) & 0x07070707;
}

/* Step s of a group, row after row: `from` is the group's first byte in row 0. */
static void pack_step(waste_fmt fmt, const unsigned char *from, size_t row_bytes, int64_t s,
                      unsigned char *to)
{
    int r, i;

    for (r = 0; r < WASTE_TILE_ROWS; r++, from += row_bytes, to += 4) {
        uint32_t low[2] = {0, 0}, third = 0;

        if (fmt == WASTE_FMT_Q8G) {
            store32(to, load32(from + 4 * s) ^ 0x80808080u);
        } else if (fmt == WASTE_FMT_Q4G) {
            store32(to, pair_nibbles(load32(from + 4 * s)));
        } else {
            for (i = 0; i < 8; i++) { /* 12 bits each, at a byte's start or middle */
                const unsigned char *p = from + 12 * s + 3 * i / 2;
                const uint32_t x = spread3((p[0] | (uint32_t)p[1] << 8) >> (i & 1) * 4);

                low[i / 4] |= (x & 0x03030303) << 2 * (i % 4);
                third |= (x >> 2 & 0x01010101) << i;
            }
            store32(to, low[0]);
            store32(to + 256, low[1]);
            store32(to + 512, third);
        }
    }
}

static void pack_tile(const waste_matrix *w, const unsigned char *from, unsigned char *to)
{
    const int64_t steps = w->group / step_of(w->fmt);
    const int64_t group_bytes = waste_tiles_group_bytes(w);
    const size_t step_bytes = WASTE_TILE_ROWS * (size_t)(group_bytes / steps);
    int64_t g, s;

    for (g = 0; g < w->n_groups; g++)
        for (s = 0; s < steps; s++, to += step_bytes)
            pack_step(w->fmt, from + g * group_bytes, (size_t)w->row_bytes, s, to);
}

static void pack_scales(const waste_matrix *w, const uint16_t *from, uint16_t *to)
{
    int64_t g, r;

    for (g = 0; g < w->n_groups; g++)
        for (r = 0; r < WASTE_TILE_ROWS; r++) *to++ = from[r * w->n_groups + g];
}

void waste_tiles_pack(waste_matrix *w, void *data, uint16_t *scales, void *temp)
{
    const int step = step_of(w->fmt);
    const size_t tile = WASTE_TILE_ROWS * (size_t)w->row_bytes;
    const size_t tile_scales = WASTE_TILE_ROWS * (size_t)w->n_groups;
    unsigned char *p = data;
    int64_t t;

    if (!step || w->rows < WASTE_TILE_ROWS || w->group % step || w->group > WASTE_TILES_GROUP)
        return;
    for (t = 0; t < w->rows / WASTE_TILE_ROWS; t++, p += tile, scales += tile_scales) {
        memcpy(temp, p, tile);
        pack_tile(w, temp, p);
        memcpy(temp, scales, 2 * tile_scales);
        pack_scales(w, temp, scales);
    }
    w->tiled = 1;
}
