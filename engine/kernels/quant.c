/* Block formats and f16: see quant.h. Pure functions, any thread.
 *
 * Decoding is the inner loop of the plain C forward pass: the loops over one
 * group are written so that the compiler vectorises them, and the group length
 * that every converter writes (128) is given to it as a constant. */
#include "kernels/quant.h"

#include <string.h>

#define GROUP_WRITTEN 128

static float from_bits(uint32_t u)
{
    float f;

    memcpy(&f, &u, sizeof f);
    return f;
}

static uint32_t to_bits(float f)
{
    uint32_t u;

    memcpy(&u, &f, sizeof u);
    return u;
}

/* ---- 16-bit floats ------------------------------------------------------ */

float waste_f16_to_f32(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000) << 16, e = (h >> 10) & 31, m = h & 1023;
    float f;

    if (e == 31) return from_bits(sign | 0x7F800000u | m << 13);
    if (e) return from_bits(sign | (e + 112) << 23 | m << 13);
    /* integer arithmetic, so that a host's denormals-are-zero mode cannot matter */
    f = (float)(int32_t)m * 0x1p-24f;
    return from_bits(to_bits(f) | sign);
}

uint16_t waste_f32_to_f16(float f)
{
    uint32_t u = to_bits(f), sign = (u >> 16) & 0x8000, a = u & 0x7FFFFFFF, shift, m, half;

    if (a > 0x7F800000u) return (uint16_t)(sign | 0x7E00 | ((a >> 13) & 0x3FF)); /* quiet NaN */
    if (a >= 0x477FF000u) return (uint16_t)(sign | 0x7C00); /* rounds to 2^16 or is above */
    if (a >= 0x38800000u) {                                 /* normal in f16 */
        a -= 112u << 23;
        return (uint16_t)(sign | (a + 0xFFF + ((a >> 13) & 1)) >> 13);
    }
    if (a <= 0x33000000u) return (uint16_t)sign; /* at most half of the smallest: ties to zero */
    /* subnormal: the significand in units of 2^-24; 102..112 is the exponent here */
    shift = 126 - (a >> 23);
    m = (a & 0x7FFFFF) | 0x800000;
    half = 1u << (shift - 1);
    return (uint16_t)(sign | (m + half - 1 + ((m >> shift) & 1)) >> shift);
}

void waste_f16_narrow(const float *x, size_t n, uint16_t *to)
{
    size_t i;

    for (i = 0; i < n; i++) {
        const float most = 65504.0f, v = x[i];
        const int finite = (to_bits(v) & 0x7F800000u) != 0x7F800000u;

        to[i] = waste_f32_to_f16(finite && v > most ? most : finite && v < -most ? -most : v);
    }
}

#define SOME 32

/* Both forms of every value, without a branch: loops that the compiler turns into
 * vectors. */
static void widen_some(const uint16_t *restrict h, float *restrict to)
{
    uint32_t u[SOME], small[SOME];
    float f[SOME];
    int i;

    for (i = 0; i < SOME; i++) f[i] = (float)(h[i] & 1023) * 0x1p-24f;
    memcpy(small, f, sizeof f);
    for (i = 0; i < SOME; i++) {
        const uint32_t e = h[i] & 0x7C00u, a = (h[i] & 0x7FFFu) << 13;
        const uint32_t normal = a + (e == 0x7C00 ? 224u << 23 : 112u << 23);

        u[i] = (e ? normal : small[i]) | (h[i] & 0x8000u) << 16;
    }
    memcpy(to, u, sizeof u);
}

void waste_f16_widen(const uint16_t *h, size_t n, float *to)
{
    for (; n >= SOME; n -= SOME, h += SOME, to += SOME) widen_some(h, to);
    for (; n; n--) *to++ = waste_f16_to_f32(*h++);
}

/* ---- geometry ----------------------------------------------------------- */

int64_t waste_quant_row_bytes(waste_fmt fmt, int64_t cols, int64_t group)
{
    int64_t n;

    if (fmt == WASTE_FMT_F32) return 4 * cols;
    n = (cols + group - 1) / group * group;
    switch (fmt) {
    case WASTE_FMT_Q8G: return n;
    case WASTE_FMT_Q4G: return (n + 1) / 2;
    case WASTE_FMT_Q3G: return (3 * n + 7) / 8 + 1; /* a guard byte: two-byte reads stay inside */
    default: return 0;
    }
}

/* ---- decoding ------------------------------------------------------------ */

static inline void decode_q8(const int8_t *p, float s, int64_t n, float *restrict to)
{
    int64_t i;

    for (i = 0; i < n; i++) to[i] = s * (float)p[i];
}

/* n even, p at a byte boundary */
static inline void decode_q4(const uint8_t *p, float s, int64_t n, float *restrict to)
{
    int64_t i;

    for (i = 0; i < n / 2; i++) {
        to[2 * i] = s * (float)((p[i] & 15) - 8);
        to[2 * i + 1] = s * (float)((p[i] >> 4) - 8);
    }
}

static void decode_q4_any(const uint8_t *row, int64_t first, float s, int64_t n, float *to)
{
    int64_t i, k;

    for (i = 0; i < n; i++) {
        k = first + i;
        to[i] = s * (float)((k & 1 ? row[k / 2] >> 4 : row[k / 2] & 15) - 8);
    }
}

/* n a multiple of 8, p at a byte boundary: three bytes hold eight codes */
static inline void decode_q3(const uint8_t *p, float s, int64_t n, float *restrict to)
{
    int64_t i;
    int j;

    for (i = 0; i < n / 8; i++) {
        uint32_t u =
            (uint32_t)p[3 * i] | (uint32_t)p[3 * i + 1] << 8 | (uint32_t)p[3 * i + 2] << 16;
        for (j = 0; j < 8; j++) to[8 * i + j] = s * (float)((int)(u >> 3 * j & 7) - 4);
    }
}

static void decode_q3_any(const uint8_t *row, int64_t first, float s, int64_t n, float *to)
{
    int64_t i, bit;

    for (i = 0; i < n; i++) {
        bit = 3 * (first + i);
        to[i] = s * (float)((((row[bit / 8] | row[bit / 8 + 1] << 8) >> bit % 8) & 7) - 4);
    }
}

static float scale_of(const uint8_t *scales, int64_t k)
{
    return waste_f16_to_f32((uint16_t)(scales[2 * k] | scales[2 * k + 1] << 8));
}

/* One whole group of the length that is written today. */
static void decode_written(waste_fmt fmt, const uint8_t *row, int64_t k, float s, float *to)
{
    to += k * GROUP_WRITTEN;
    if (fmt == WASTE_FMT_Q4G)
        decode_q4(row + k * (GROUP_WRITTEN / 2), s, GROUP_WRITTEN, to);
    else if (fmt == WASTE_FMT_Q8G)
        decode_q8((const int8_t *)row + k * GROUP_WRITTEN, s, GROUP_WRITTEN, to);
    else
        decode_q3(row + k * (GROUP_WRITTEN / 8 * 3), s, GROUP_WRITTEN, to);
}

/* n weights from column `first` on: any group length, a last partial group. */
static void decode_part(waste_fmt fmt, const uint8_t *row, int64_t first, float s, int64_t n,
                        float *to)
{
    to += first;
    if (fmt == WASTE_FMT_Q8G)
        decode_q8((const int8_t *)row + first, s, n, to);
    else if (fmt == WASTE_FMT_Q4G)
        decode_q4_any(row, first, s, n, to);
    else
        decode_q3_any(row, first, s, n, to);
}

void waste_quant_decode_row(waste_fmt fmt, const void *row, const void *scales, int64_t cols,
                            int64_t group, float *to)
{
    int64_t k, first;

    if (fmt == WASTE_FMT_F32) {
        memcpy(to, row, (size_t)cols * sizeof *to);
        return;
    }
    for (k = 0, first = 0; first < cols; k++, first += group) {
        float s = scale_of(scales, k);
        if (group == GROUP_WRITTEN && cols - first >= GROUP_WRITTEN)
            decode_written(fmt, row, k, s, to);
        else
            decode_part(fmt, row, first, s, cols - first < group ? cols - first : group, to);
    }
}

/* ---- encoding ------------------------------------------------------------ */

/* Nearest integer, halves to even, for |v| < 2^22: the addition rounds to a
 * multiple of 1. Unlike rintf it needs no SSE4 to be vectorised. */
static inline float round_even(float v)
{
    return (v + 0x1.8p23f) - 0x1.8p23f;
}

static void put_code(waste_fmt fmt, uint8_t *row, int64_t i, int code)
{
    if (fmt == WASTE_FMT_Q8G) {
        row[i] = (uint8_t)code;
    } else if (fmt == WASTE_FMT_Q4G) {
        row[i / 2] |= (uint8_t)((code + 8) << (i & 1) * 4);
    } else {
        unsigned u = (unsigned)(code + 4) << 3 * i % 8;
        row[3 * i / 8] |= (uint8_t)u;
        row[3 * i / 8 + 1] |= (uint8_t)(u >> 8);
    }
}

void waste_quant_encode_row(waste_fmt fmt, const float *w, int64_t cols, int64_t group, void *row,
                            uint16_t *scales)
{
    float d = fmt == WASTE_FMT_Q8G ? 127 : fmt == WASTE_FMT_Q4G ? 7 : 3;
    float lo = fmt == WASTE_FMT_Q8G ? -127 : -d - 1;
    int64_t first, i;

    memset(row, 0, (size_t)waste_quant_row_bytes(fmt, cols, group));
    for (first = 0; first < cols; first += group) {
        int64_t end = cols - first < group ? cols : first + group;
        float a = 1e-8f, s;

        for (i = first; i < end; i++) {
            float m = w[i] < 0 ? -w[i] : w[i];
            a = m > a ? m : a;
        }
        s = a / d;
        scales[first / group] = waste_f32_to_f16(s);
        for (i = first; i < end; i++) {
            float c = round_even(w[i] / s);
            put_code(fmt, row, i, (int)(c < lo ? lo : c > d ? d : c));
        }
        /* padding carries the code of weight 0, which is not always bit zero */
        for (i = end; i < first + group; i++) put_code(fmt, row, i, 0);
    }
}
