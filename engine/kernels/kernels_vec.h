/* Functions of a vector, written once for every instruction set.
 *
 * Included at the end of a table's header, which has defined before
 *
 *     vec, VEC                  a vector of f32 with + - * /, its lanes (4, 8, 16)
 *     vec_set(x)                x in all lanes
 *     vec_load(p) vec_store(p, v)          any alignment
 *     vec_load_n(p, n) vec_store_n(p, n, v)   the first n lanes, n >= 0; zeros in the others
 *     vec_fma(a, b, c) vec_fnma(a, b, c)   c + a b, c - a b, rounded once
 *     vec_max(a, b) vec_min(a, b)          NaN where b is NaN; b, or NaN, where a is
 *     vec_abs(v) vec_round(v)   the nearest integers, halves to even
 *     vec_ldexp(v, n)           v 2^n, n integers from -151 to 129; gradual underflow
 *     vec_below(x, y, a, b)     a where x < y, else b
 *     vec_sum(v) vec_most(v)    of all lanes, in a fixed tree
 *     vec_sums(s)               lane i: the sum of s[i]'s lanes, i < VEC, all in one tree
 *     vec_f16(p) vec_half(h)    VEC binary16 as f32, or one; exact
 *
 * A lane's result depends on that lane alone, so a tail computed in a part of a vector
 * has the bits of a full one. */
#ifndef WASTE_KERNELS_VEC_H
#define WASTE_KERNELS_VEC_H

#define INLINE static inline __attribute__((always_inline))

/* e^x within 2 ulp; underflow is gradual, overflow gives infinity, NaN stays. The
 * rest r after taking out n ln 2 is at most ln 2 / 2: the series to r^7 / 7! is
 * exact to 6e-9. */
static inline vec vec_exp(vec x)
{
    vec n, r, p;

    x = vec_max(vec_set(-104.0f), x);
    x = vec_min(vec_set(89.0f), x);
    n = vec_round(x * vec_set(0x1.715476p0f));
    r = vec_fnma(n, vec_set(0x1.62e4p-1f), x); /* ln 2 in two parts */
    r = vec_fnma(n, vec_set(0x1.7f7d1cp-20f), r);
    p = vec_set(1.0f / 5040);
    p = vec_fma(p, r, vec_set(1.0f / 720));
    p = vec_fma(p, r, vec_set(1.0f / 120));
    p = vec_fma(p, r, vec_set(1.0f / 24));
    p = vec_fma(p, r, vec_set(1.0f / 6));
    p = vec_fma(p, r, vec_set(0.5f));
    p = vec_fma(p, r, vec_set(1.0f));
    p = vec_fma(p, r, vec_set(1.0f));
    return vec_ldexp(p, n);
}

static inline vec vec_sigmoid(vec x)
{
    const vec one = vec_set(1.0f);

    return one / (one + vec_exp(vec_set(0.0f) - x));
}

/* Lambert's continued fraction, cut after the sixth term, where |x| < 0.7 (exact
 * to 1e-9 there); elsewhere 1 - 2 / (e^2x + 1), which no longer cancels. */
static inline vec vec_tanh(vec x)
{
    const vec one = vec_set(1.0f), two = vec_set(2.0f), s = x * x;
    vec up, down, far;

    up = vec_fma(vec_set(21.0f), s, vec_set(1260.0f));
    up = x * vec_fma(up, s, vec_set(10395.0f));
    down = s + vec_set(210.0f);
    down = vec_fma(down, s, vec_set(4725.0f));
    down = vec_fma(down, s, vec_set(10395.0f));
    far = one - two / (vec_exp(two * x) + one);
    return vec_below(vec_abs(x), vec_set(0.7f), up / down, far);
}

/* ln(1 + e^x) = max(x, 0) + ln(1 + t), t = e^-|x|; the logarithm is the series of
 * 2 artanh(t / (2 + t)), whose argument is at most 1/3. */
static inline vec vec_softplus(vec x)
{
    const vec zero = vec_set(0.0f), t = vec_exp(zero - vec_abs(x));
    const vec s = t / (t + vec_set(2.0f)), q = s * s;
    vec p = vec_set(2.0f / 15);
    int i;

    for (i = 13; i > 0; i -= 2) p = vec_fma(p, q, vec_set(2.0f / (float)i));
    return vec_fma(p, s, vec_max(zero, x));
}

/* Lanes are y[row..]; those in [lo, hi) are stored. */
static inline void vec_store_inside(float *y, int64_t row, int64_t lo, int64_t hi, vec v)
{
    float lane[VEC];
    int i;

    if (row >= lo && row + VEC <= hi) {
        vec_store(y + row, v);
        return;
    }
    vec_store(lane, v);
    for (i = 0; i < VEC; i++)
        if (row + i >= lo && row + i < hi) y[row + i] = lane[i];
}

/* kernels.h, waste_act_kind */
static inline vec vec_act(const waste_act_kind *k, vec g, vec u)
{
    const vec s = vec_sigmoid(g);

    if (!k->situ) return g * s * u;
    if (k->linear_beta > 0) {
        const vec b = vec_set(k->linear_beta);

        u = b * vec_tanh(u / b);
    }
    g = vec_set(k->beta) * vec_tanh(g / vec_set(k->beta));
    return g * s * u;
}

/* sum of a[i] b[i], in four vectors that the elements pass by in turn */
static inline float vec_dot(const float *a, const float *b, int64_t n)
{
    vec s[4];
    int64_t i = 0;
    int j;

    for (j = 0; j < 4; j++) s[j] = vec_set(0.0f);
    for (; i + 4 * VEC <= n; i += 4 * VEC)
        for (j = 0; j < 4; j++)
            s[j] = vec_fma(vec_load(a + i + VEC * j), vec_load(b + i + VEC * j), s[j]);
    for (; i < n; i += VEC)
        s[0] = vec_fma(vec_load_n(a + i, n - i), vec_load_n(b + i, n - i), s[0]);
    return vec_sum((s[0] + s[1]) + (s[2] + s[3]));
}

#endif
