/* Experts on AVX-512, laid out once when they are loaded: codebooks in 16 bits, indices
 * of a record in planes. See kernels_avx512_vq.h. */
#include "kernels/kernels_avx512_vq.h"

#if WASTE_HAVE_AVX512BW

#include <math.h>

#include "store/record.h"

/* ---- books -------------------------------------------------------------------- */

/* Weights of a matrix, for which tables do not pay (docs/measured.md). */
#define NARROW (64 * 128)

size_t waste_vq_books_bytes(const waste_vq_geometry *g, int64_t width, int64_t input)
{
    if (waste_vq_unpacked(g, width, input, NARROW)) return 0;
    return sizeof(waste_vq_books) +
           (size_t)g->stages * (size_t)waste_vq_groups(g) * 4 * 4 * 16 * 2 * 2;
}

static float length_of(const float *v)
{
    float s = 0;
    int i;

    for (i = 0; i < 8; i++) s += v[i] * v[i];
    return sqrtf(s);
}

void waste_vq_pack_books(void *to, const waste_vq_geometry *g, const float *const *book)
{
    const int groups = waste_vq_groups(g), entries = 64 * groups;
    waste_vq_books *b = to;
    int16_t *q = b->q;
    float scale;
    int s, e, p, i;

    b->sum = b->longest = 0;
    for (s = 0; s < g->stages; s++) {
        float most = 0;

        for (e = 0; e < entries; e++) {
            const float n = length_of(book[s] + 8 * e);
            if (!isfinite(n)) most = INFINITY;
            if (n > most) most = n;
        }
        b->sum += most;
        if (most > b->longest) b->longest = most;
    }
    if (b->longest < 1e-8f) b->longest = 1e-8f;
    if (b->sum < 1e-8f) b->sum = 1e-8f;
    scale = 32760.0f / b->longest; /* 0 when an entry is not finite: see table_scale */
    for (s = 0; s < g->stages; s++)
        for (e = 0; e < entries; e++)
            for (p = 0; p < 4; p++)
                for (i = 0; i < 2; i++) {
                    const float v = book[s][8 * e + 2 * p + i] * scale;
                    const size_t at = (size_t)((s * groups + e / 64) * 4 + p) * 128;
                    q[at + (size_t)(e % 64) * 2 + (size_t)i] = isfinite(v) ? (int16_t)lrintf(v) : 0;
                }
}

/* ---- planar indices ------------------------------------------------------------- */

#if WASTE_HAVE_AVX512

static const uint8_t THREES[64] = {0,   3,   6,   9,   12,  15,  18,  21,  24,  27,  30,  33,  36,
                                   39,  42,  45,  48,  51,  54,  57,  60,  63,  66,  69,  72,  75,
                                   78,  81,  84,  87,  90,  93,  96,  99,  102, 105, 108, 111, 114,
                                   117, 120, 123, 126, 129, 132, 135, 138, 141, 144, 147, 150, 153,
                                   156, 159, 162, 165, 168, 171, 174, 177, 180, 183, 186, 189};

/* 64 rows of three bytes become three runs of 64. to may be from. */
static inline void planes3(unsigned char *to, const unsigned char *from)
{
    const __m512i a = waste_vq_load(from), b = waste_vq_load(from + 64),
                  c = waste_vq_load(from + 128);
    __m512i at = waste_vq_load(THREES);
    int s;

    for (s = 0; s < 3; s++) {
        const __m512i v = _mm512_mask_permutexvar_epi8(_mm512_permutex2var_epi8(a, at, b),
                                                       _mm512_movepi8_mask(at), at, c);
        _mm512_storeu_si512(to + 64 * s, v);
        at = _mm512_add_epi8(at, _mm512_set1_epi8(1));
    }
}

#else

/* Where byte j of 16 rows of three is in each of three vectors; 128: not in that one. */
static const uint8_t THIRDS[3][3][16] = {
    {{0, 3, 6, 9, 12, 15, 128, 128, 128, 128, 128, 128, 128, 128, 128, 128},
     {128, 128, 128, 128, 128, 128, 2, 5, 8, 11, 14, 128, 128, 128, 128, 128},
     {128, 128, 128, 128, 128, 128, 128, 128, 128, 128, 128, 1, 4, 7, 10, 13}},
    {{1, 4, 7, 10, 13, 128, 128, 128, 128, 128, 128, 128, 128, 128, 128, 128},
     {128, 128, 128, 128, 128, 0, 3, 6, 9, 12, 15, 128, 128, 128, 128, 128},
     {128, 128, 128, 128, 128, 128, 128, 128, 128, 128, 128, 2, 5, 8, 11, 14}},
    {{2, 5, 8, 11, 14, 128, 128, 128, 128, 128, 128, 128, 128, 128, 128, 128},
     {128, 128, 128, 128, 128, 1, 4, 7, 10, 13, 128, 128, 128, 128, 128, 128},
     {128, 128, 128, 128, 128, 128, 128, 128, 128, 128, 0, 3, 6, 9, 12, 15}}};

/* 64 rows of three bytes become three runs of 64. to may be from. */
static inline void planes3(unsigned char *to, const unsigned char *from)
{
    __m128i v[12];
    int r, j;

    for (j = 0; j < 12; j++) v[j] = _mm_loadu_si128((const void *)(from + 16 * j));
    for (j = 0; j < 3; j++) {
        const __m128i a = _mm_loadu_si128((const void *)THIRDS[j][0]);
        const __m128i b = _mm_loadu_si128((const void *)THIRDS[j][1]);
        const __m128i c = _mm_loadu_si128((const void *)THIRDS[j][2]);

        for (r = 0; r < 4; r++)
            _mm_storeu_si128((void *)(to + 64 * j + 16 * r),
                             _mm_or_si128(_mm_or_si128(_mm_shuffle_epi8(v[3 * r], a),
                                                       _mm_shuffle_epi8(v[3 * r + 1], b)),
                                          _mm_shuffle_epi8(v[3 * r + 2], c)));
    }
}

#endif

static inline void planes2(unsigned char *to, const unsigned char *from)
{
    const __m512i a = waste_vq_load(from), b = waste_vq_load(from + 64);
    const __m512i low = _mm512_packus_epi16(_mm512_and_si512(a, _mm512_set1_epi16(255)),
                                            _mm512_and_si512(b, _mm512_set1_epi16(255)));
    const __m512i high = _mm512_packus_epi16(_mm512_srli_epi16(a, 8), _mm512_srli_epi16(b, 8));
    const __m512i order = _mm512_setr_epi64(0, 2, 4, 6, 1, 3, 5, 7);

    _mm512_storeu_si512(to, _mm512_permutexvar_epi64(order, low));
    _mm512_storeu_si512(to + 64, _mm512_permutexvar_epi64(order, high));
}

void waste_vq_planes(unsigned char *to, const unsigned char *from, int64_t n, int vector_bytes)
{
    const size_t step = (size_t)(WASTE_VQ_INDEX_ROWS * vector_bytes);
    int64_t i;

    for (i = 0; i < n; i++, to += step, from += step) {
        if (vector_bytes == 3)
            planes3(to, from);
        else
            planes2(to, from);
    }
}

void waste_vq_pack_record(void *record, const waste_record_layout *at, const waste_vq_geometry *g)
{
    unsigned char *index = (unsigned char *)record + at->gate_off;
    const uint64_t bytes_in_all = at->scale_off - at->gate_off;

    if (!waste_vq_kind(g)) return;
    waste_vq_planes(index, index,
                    (int64_t)(bytes_in_all / (uint64_t)(WASTE_VQ_INDEX_ROWS * g->vector_bytes)),
                    g->vector_bytes);
}

#endif
