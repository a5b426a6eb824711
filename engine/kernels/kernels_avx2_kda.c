/* KDA on AVX2: convolution and step, as kernels_vec_kda.h says. No state, any thread. */
#include "kernels/kernels_avx2.h"

#if WASTE_HAVE_AVX2

#include <string.h>

/* Four floats for channels 0..3, and as many for channels 4..7. */
INLINE vec pair(const float *p, const float *q)
{
    return _mm256_insertf128_ps(_mm256_castps128_ps256(_mm_loadu_ps(p)), _mm_loadu_ps(q), 1);
}

/* n of the `all` floats at p, or a copy in `room` with zeros behind. */
INLINE const float *whole(const float *p, int64_t n, int64_t all, float *room)
{
    if (n >= all) return p;
    memset(room, 0, (size_t)all * sizeof *room);
    return memcpy(room, p, (size_t)n * sizeof *room);
}

/* Four channels to a half, floats of three vectors as they lie: a0 b0 c0 a1, b1 c1 a2 b2,
 * c2 a3 b3 c3. */
INLINE void split3(const float *p, int64_t n, vec to[3])
{
    float room[24];
    vec x, y, z;

    p = whole(p, n, 24, room);
    x = pair(p, p + 12);
    y = pair(p + 4, p + 16);
    z = pair(p + 8, p + 20);
    to[0] = _mm256_shuffle_ps(x, _mm256_shuffle_ps(y, z, _MM_SHUFFLE(1, 1, 2, 2)),
                              _MM_SHUFFLE(2, 0, 3, 0));
    to[1] = _mm256_shuffle_ps(_mm256_shuffle_ps(x, y, _MM_SHUFFLE(0, 0, 1, 1)),
                              _mm256_shuffle_ps(y, z, _MM_SHUFFLE(2, 2, 3, 3)),
                              _MM_SHUFFLE(2, 0, 2, 0));
    to[2] = _mm256_shuffle_ps(_mm256_shuffle_ps(x, y, _MM_SHUFFLE(1, 1, 2, 2)), z,
                              _MM_SHUFFLE(3, 0, 2, 0));
}

INLINE void join3(float *p, int64_t n, const vec from[3])
{
    const vec a = from[0], b = from[1], c = from[2];
    float room[24], *to = n < 24 ? room : p;
    vec v[3];
    int i;

    v[0] = _mm256_shuffle_ps(_mm256_unpacklo_ps(a, b),
                             _mm256_shuffle_ps(c, a, _MM_SHUFFLE(1, 1, 0, 0)),
                             _MM_SHUFFLE(2, 0, 1, 0));
    v[1] = _mm256_shuffle_ps(_mm256_shuffle_ps(b, c, _MM_SHUFFLE(1, 1, 1, 1)),
                             _mm256_shuffle_ps(a, b, _MM_SHUFFLE(2, 2, 2, 2)),
                             _MM_SHUFFLE(2, 0, 2, 0));
    v[2] = _mm256_shuffle_ps(_mm256_shuffle_ps(c, a, _MM_SHUFFLE(3, 3, 2, 2)),
                             _mm256_unpackhi_ps(b, c), _MM_SHUFFLE(3, 2, 2, 0));
    for (i = 0; i < 3; i++) {
        _mm_storeu_ps(to + 4 * i, _mm256_castps256_ps128(v[i]));
        _mm_storeu_ps(to + 12 + 4 * i, _mm256_extractf128_ps(v[i], 1));
    }
    /* cppcheck-suppress uninitvar ; the vectors are stored there */
    if (to == room) memcpy(p, room, (size_t)n * sizeof *p);
}

INLINE void split4(const float *p, int64_t n, vec to[4])
{
    float room[32];
    vec v[4], t[4];
    int i;

    p = whole(p, n, 32, room);
    for (i = 0; i < 4; i++) v[i] = pair(p + 4 * i, p + 16 + 4 * i);
    for (i = 0; i < 4; i += 2) {
        t[i] = _mm256_unpacklo_ps(v[i], v[i + 1]); /* taps 0 and 1 of two channels */
        t[i + 1] = _mm256_unpackhi_ps(v[i], v[i + 1]);
    }
    for (i = 0; i < 2; i++) {
        to[2 * i] = _mm256_shuffle_ps(t[i], t[i + 2], _MM_SHUFFLE(1, 0, 1, 0));
        to[2 * i + 1] = _mm256_shuffle_ps(t[i], t[i + 2], _MM_SHUFFLE(3, 2, 3, 2));
    }
}

#define KDA_VECTORS 4
#include "kernels/kernels_vec_kda.h"

void waste_kernels_avx2_kda(waste_kernels *k)
{
    k->conv = conv;
    k->kda = kda;
}

#endif
