/* kernels.c - the f32 kernels of the training path: forward and backward of the
 * recurrent and element-wise parts, AdamW, and the compute copies of the weights.
 *
 * Called through native.py, from one thread; nothing is kept between calls.
 *
 * Tokens of a batch are packed back to back: `cu` holds the nseq + 1 offsets of the
 * sequences, and nothing recurrent ever crosses an offset. Every forward here has a
 * plain PyTorch twin in ops.py, every rounding one in quant.py; test_kernels.py compares
 * values and gradients.
 * A backward writes dx and its like, and ADDS to dw, the gradient of a parameter.
 *
 * The loops are plain so that the compiler vectorises them. native.py builds with
 *   gcc -O3 -march=native -ffast-math -shared -fPIC kernels.c -o kernels.so -lm
 */
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static inline float f32_of_bf16(uint16_t h)
{
    union { uint32_t u; float f; } x = { (uint32_t)h << 16 };
    return x.f;
}

static inline uint16_t bf16_of_f32(float f)              /* nearest, ties to even */
{
    union { float f; uint32_t u; } x = { f };
    return (uint16_t)((x.u + 0x7fffu + ((x.u >> 16) & 1u)) >> 16);
}

static inline float sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }

static inline float tanh_by_exp(float x)                 /* expf has a vector form */
{
    x = x > 15.0f ? 15.0f : (x < -15.0f ? -15.0f : x);
    return 1.0f - 2.0f / (expf(2.0f * x) + 1.0f);
}

static float *scratch_floats(size_t n)                   /* n: a multiple of 16 */
{
    float *p = aligned_alloc(64, n * sizeof *p);
    if (!p) { fprintf(stderr, "kernels.c: no memory for %zu floats\n", n); abort(); }
    return p;
}

/* ---- RMSNorm: y = x r w per row of d, r = 1 / sqrt(mean(x^2) + eps) ------------- */

void rms_fwd(long n, int d, float eps, const float *x, const float *w, float *y, float *r)
{
    for (long t = 0; t < n; t++) {
        const float *a = x + t * d;
        float *o = y + t * d, s = 0;
        for (int i = 0; i < d; i++) s += a[i] * a[i];
        const float q = 1.0f / sqrtf(s / d + eps);
        r[t] = q;
        for (int i = 0; i < d; i++) o[i] = a[i] * q * w[i];
    }
}

void rms_bwd(long n, int d, const float *x, const float *w, const float *r, const float *dy,
             float *dx, float *dw)
{
    for (long t = 0; t < n; t++) {
        const float *a = x + t * d, *g = dy + t * d;
        float *o = dx + t * d, s = 0, q = r[t];
        for (int i = 0; i < d; i++) {
            s += a[i] * g[i] * w[i];
            dw[i] += g[i] * a[i] * q;
        }
        s *= q * q * q / d;
        for (int i = 0; i < d; i++) o[i] = q * w[i] * g[i] - s * a[i];
    }
}

/* ---- attention residual: per token, a softmax mix of its ns sources -------------
 * v: ns pointers to [n][d]; score of a source = (source * w) / rms(source); prob
 * keeps the [n][ns] weights for the backward. */

#define MAX_SOURCES 16

void ares_fwd(long n, int d, int ns, float eps, const float **v, const float *w, float *out, float *prob)
{
    for (long t = 0; t < n; t++) {
        float sc[MAX_SOURCES], mx = -1e30f, z = 0;
        for (int s = 0; s < ns; s++) {
            const float *a = v[s] + t * d;
            float ss = 0, aw = 0;
            for (int i = 0; i < d; i++) { ss += a[i] * a[i]; aw += a[i] * w[i]; }
            sc[s] = aw / sqrtf(ss / d + eps);
            if (sc[s] > mx) mx = sc[s];
        }
        for (int s = 0; s < ns; s++) { sc[s] = expf(sc[s] - mx); z += sc[s]; }
        float *o = out + t * d;
        for (int s = 0; s < ns; s++) {
            const float p = sc[s] / z, *a = v[s] + t * d;
            prob[t * ns + s] = p;
            if (s == 0) for (int i = 0; i < d; i++) o[i] = p * a[i];
            else        for (int i = 0; i < d; i++) o[i] += p * a[i];
        }
    }
}

void ares_bwd(long n, int d, int ns, float eps, const float **v, const float *w, const float *prob,
              const float *dout, float **dv, float *dw)
{
    for (long t = 0; t < n; t++) {
        const float *g = dout + t * d, *p = prob + t * ns;
        float dp[MAX_SOURCES], rr[MAX_SOURCES], aw[MAX_SOURCES], m = 0;
        for (int s = 0; s < ns; s++) {
            const float *a = v[s] + t * d;
            float ss = 0, x = 0, y = 0;
            for (int i = 0; i < d; i++) { ss += a[i] * a[i]; x += a[i] * w[i]; y += a[i] * g[i]; }
            rr[s] = 1.0f / sqrtf(ss / d + eps);
            aw[s] = x;
            dp[s] = y;
            m += p[s] * y;
        }
        for (int s = 0; s < ns; s++) {
            const float *a = v[s] + t * d;
            float *o = dv[s] + t * d;
            const float ds = p[s] * (dp[s] - m), ps = p[s];
            const float c1 = ds * rr[s], c2 = ds * aw[s] * rr[s] * rr[s] * rr[s] / d;
            for (int i = 0; i < d; i++) {
                o[i] = ps * g[i] + c1 * w[i] - c2 * a[i];
                dw[i] += c1 * a[i];
            }
        }
    }
}

/* ---- causal depthwise convolution of TAPS steps, then SiLU ----------------------
 * w is [TAPS][c], the last tap is the current step. Rows of x are xs floats apart
 * (the first c columns of a wider matrix), rows of y are c apart. */

#define TAPS 4

void conv_fwd(int nseq, const int *cu, int c, const float *x, long xs, const float *w, float *y)
{
    for (int s = 0; s < nseq; s++)
        for (int t = cu[s]; t < cu[s + 1]; t++) {
            float *o = y + (long)t * c;
            for (int i = 0; i < c; i++) o[i] = 0;
            for (int j = 0; j < TAPS; j++) {
                const int u = t - (TAPS - 1) + j;
                if (u < cu[s]) continue;
                const float *a = x + u * xs, *b = w + (long)j * c;
                for (int i = 0; i < c; i++) o[i] += a[i] * b[i];
            }
            for (int i = 0; i < c; i++) o[i] = o[i] * sigmoid(o[i]);
        }
}

void conv_bwd(int nseq, const int *cu, int c, const float *x, long xs, const float *w, const float *dy,
              float *dx, long dxs, float *dw)
{
    float *z = scratch_floats(((size_t)c + 15) / 16 * 16);     /* before SiLU, then its gradient */
    for (int s = 0; s < nseq; s++) {
        for (int t = cu[s]; t < cu[s + 1]; t++) memset(dx + t * dxs, 0, sizeof(float) * c);
        for (int t = cu[s]; t < cu[s + 1]; t++) {
            for (int i = 0; i < c; i++) z[i] = 0;
            for (int j = 0; j < TAPS; j++) {
                const int u = t - (TAPS - 1) + j;
                if (u < cu[s]) continue;
                const float *a = x + u * xs, *b = w + (long)j * c;
                for (int i = 0; i < c; i++) z[i] += a[i] * b[i];
            }
            const float *g = dy + (long)t * c;
            for (int i = 0; i < c; i++) {
                const float q = sigmoid(z[i]);
                z[i] = g[i] * q * (1.0f + z[i] * (1.0f - q));
            }
            for (int j = 0; j < TAPS; j++) {
                const int u = t - (TAPS - 1) + j;
                if (u < cu[s]) continue;
                const float *a = x + u * xs, *b = w + (long)j * c;
                float *o = dx + u * dxs, *e = dw + (long)j * c;
                for (int i = 0; i < c; i++) { o[i] += z[i] * b[i]; e[i] += z[i] * a[i]; }
            }
        }
    }
    free(z);
}

/* ---- KDA recurrence, head size D ------------------------------------------------
 *   S' = diag(exp g) S;  u = v - S'^T k;  S = S' + k (beta u)^T;  o = S^T q
 * q, k, v, g, o: [n][H * D]; beta: [n][H]. q and k arrive normalised and scaled. */

#define D 32

/* One head over one sequence. Writes `o` unless NULL; stores every S' in `keep`
 * ([t1 - t0][D][D]) unless NULL. */
static void kda_seq(int t0, int t1, int H, int h, const float *q, const float *k, const float *v,
                    const float *g, const float *beta, float *o, float *keep)
{
    float S[D][D];
    memset(S, 0, sizeof S);
    const long C = (long)H * D;
    for (int t = t0; t < t1; t++) {
        const float *kt = k + t * C + h * D, *vt = v + t * C + h * D, *gt = g + t * C + h * D;
        float u[D], dec[D];
        for (int i = 0; i < D; i++) dec[i] = expf(gt[i]);
        for (int j = 0; j < D; j++) u[j] = vt[j];
        for (int i = 0; i < D; i++) {
            const float e = dec[i], kk = kt[i];
            for (int j = 0; j < D; j++) { S[i][j] *= e; u[j] -= S[i][j] * kk; }
        }
        if (keep) memcpy(keep + (long)(t - t0) * D * D, S, sizeof S);
        const float b = beta[(long)t * H + h];
        for (int j = 0; j < D; j++) u[j] *= b;
        if (o) {
            const float *qt = q + t * C + h * D;
            float acc[D];
            for (int j = 0; j < D; j++) acc[j] = 0;
            for (int i = 0; i < D; i++) {
                const float kk = kt[i], qq = qt[i];
                for (int j = 0; j < D; j++) { S[i][j] += kk * u[j]; acc[j] += S[i][j] * qq; }
            }
            memcpy(o + t * C + h * D, acc, sizeof acc);
        } else {
            for (int i = 0; i < D; i++) {
                const float kk = kt[i];
                for (int j = 0; j < D; j++) S[i][j] += kk * u[j];
            }
        }
    }
}

void kda_fwd(int nseq, const int *cu, int H, const float *q, const float *k, const float *v,
             const float *g, const float *beta, float *o)
{
    for (int s = 0; s < nseq; s++)
        for (int h = 0; h < H; h++)
            kda_seq(cu[s], cu[s + 1], H, h, q, k, v, g, beta, o, NULL);
}

/* Runs the sequence forward once more to keep every S' (P below), then walks back
 * with G, the gradient of the state after the step. */
void kda_bwd(int nseq, const int *cu, int H, const float *q, const float *k, const float *v,
             const float *g, const float *beta, const float *dO,
             float *dq, float *dk, float *dv, float *dg, float *db)
{
    int T = 0;
    for (int s = 0; s < nseq; s++)
        if (cu[s + 1] - cu[s] > T) T = cu[s + 1] - cu[s];
    float *keep = scratch_floats(D * D * (size_t)(T + 1));
    const long C = (long)H * D;
    for (int s = 0; s < nseq; s++)
        for (int h = 0; h < H; h++) {
            kda_seq(cu[s], cu[s + 1], H, h, q, k, v, g, beta, NULL, keep);
            float G[D][D];
            memset(G, 0, sizeof G);
            for (int t = cu[s + 1] - 1; t >= cu[s]; t--) {
                const long x = t * C + h * D;
                const float *kt = k + x, *qt = q + x, *go = dO + x, *P = keep + (long)(t - cu[s]) * D * D;
                const float b = beta[(long)t * H + h];
                float u[D], du[D], d[D], dk1[D], dq1[D];
                for (int j = 0; j < D; j++) u[j] = v[x + j];
                for (int i = 0; i < D; i++) {
                    const float kk = kt[i];
                    for (int j = 0; j < D; j++) u[j] -= P[i * D + j] * kk;
                }
                float dod = 0;
                for (int j = 0; j < D; j++) { d[j] = b * u[j]; dod += d[j] * go[j]; du[j] = 0; }
                for (int i = 0; i < D; i++) {               /* through o = S^T q and S = S' + k d^T */
                    const float qq = qt[i], kk = kt[i];
                    float a = 0;
                    for (int j = 0; j < D; j++) {
                        const float y = G[i][j] + qq * go[j];
                        G[i][j] = y;
                        a += y * d[j];
                        du[j] += y * kk;
                    }
                    dk1[i] = a;
                }
                float dbeta = 0;
                for (int j = 0; j < D; j++) { dbeta += du[j] * u[j]; du[j] *= b; dv[x + j] = du[j]; }
                db[(long)t * H + h] = dbeta;
                for (int i = 0; i < D; i++) {               /* through u = v - S'^T k */
                    const float kk = kt[i];
                    float a = 0, e = 0, f = 0;
                    const float *Pi = P + i * D;
                    for (int j = 0; j < D; j++) {
                        const float y = G[i][j] - kk * du[j];
                        G[i][j] = y;
                        a += Pi[j] * du[j];
                        e += Pi[j] * y;
                        f += Pi[j] * go[j];
                    }
                    dk1[i] -= a;
                    dq1[i] = f + kk * dod;
                    dg[x + i] = e;
                }
                for (int i = 0; i < D; i++) {               /* through S' = diag(exp g) S */
                    const float e = expf(g[x + i]);
                    for (int j = 0; j < D; j++) G[i][j] *= e;
                    dk[x + i] = dk1[i];
                    dq[x + i] = dq1[i];
                }
            }
        }
    free(keep);
}

/* ---- SiTU on bf16 [n][2 * I] (gate half, up half) -> bf16 [n][I] ----------------
 *   beta tanh(gate / beta) sigmoid(gate) * lb tanh(up / lb)
 * Rows of h are hs apart, rows of dh are ds apart. */

void situ_fwd(long n, int I, float beta, float lb, const uint16_t *h, long hs, uint16_t *a)
{
    for (long t = 0; t < n; t++) {
        const uint16_t *g = h + t * hs, *u = g + I;
        uint16_t *o = a + t * I;
        for (int i = 0; i < I; i++) {
            const float x = f32_of_bf16(g[i]), y = f32_of_bf16(u[i]);
            o[i] = bf16_of_f32(beta * tanh_by_exp(x / beta) * sigmoid(x) * lb * tanh_by_exp(y / lb));
        }
    }
}

void situ_bwd(long n, int I, float beta, float lb, const uint16_t *h, long hs, const uint16_t *da,
              uint16_t *dh, long ds)
{
    for (long t = 0; t < n; t++) {
        const uint16_t *g = h + t * hs, *u = g + I, *d = da + t * I;
        uint16_t *dg = dh + t * ds, *du = dg + I;
        for (int i = 0; i < I; i++) {
            const float x = f32_of_bf16(g[i]), y = f32_of_bf16(u[i]), e = f32_of_bf16(d[i]);
            const float s = sigmoid(x), th = tanh_by_exp(x / beta), tu = tanh_by_exp(y / lb);
            const float a = beta * th * s, b = lb * tu;
            dg[i] = bf16_of_f32(e * b * (s * (1.0f - th * th) + a * (1.0f - s)));
            du[i] = bf16_of_f32(e * a * (1.0f - tu * tu));
        }
    }
}

/* ---- the optimiser over a flat range --------------------------------------------
 * c1, c2: bias corrections 1 / (1 - b^step); gs: the factor that clips the gradient. */

void adamw(long n, float *p, const float *g, float *m, float *v, float lr, float b1, float b2, float eps,
           float wd, float c1, float c2, float gs)
{
    for (long i = 0; i < n; i++) {
        const float x = g[i] * gs;
        m[i] = b1 * m[i] + (1.0f - b1) * x;
        v[i] = b2 * v[i] + (1.0f - b2) * x * x;
        p[i] -= lr * (m[i] * c1 / (sqrtf(v[i] * c2) + eps) + wd * p[i]);
    }
}

float sumsq(long n, const float *g)
{
    double tot = 0;
    for (long k = 0; k < n; k += 4096) {
        float s = 0;
        const long e = k + 4096 < n ? k + 4096 : n;
        for (long i = k; i < e; i++) s += g[i] * g[i];
        tot += s;
    }
    return (float)tot;
}

/* ---- bf16 compute copies of the f32 weights, rounded as they will be deployed --- */

void emit_bf16(long n, const float *p, uint16_t *o)
{
    for (long i = 0; i < n; i++) o[i] = bf16_of_f32(p[i]);
}

/* Symmetric integers, scale = amax / qmax per `group` inputs (scale kept in fp16). */
void emit_int(long rows, int cols, int group, int qmax, const float *p, uint16_t *o)
{
    for (long r = 0; r < rows; r++)
        for (int b = 0; b < cols; b += group) {
            const float *x = p + r * cols + b;
            uint16_t *y = o + r * cols + b;
            const int n = cols - b < group ? cols - b : group;
            float mx = 1e-8f;
            for (int i = 0; i < n; i++) { const float a = fabsf(x[i]); mx = a > mx ? a : mx; }
            const float s = (float)(_Float16)(mx / qmax), inv = qmax / mx;
            for (int i = 0; i < n; i++) y[i] = bf16_of_f32(rintf(x[i] * inv) * s);
        }
}

/* Rounds |a| to the grid 0 .5 1 1.5 2 3 4 6, ties to the even code; a sum of steps
 * rather than a chain of tests so that it vectorises. */
static inline float round_e2m1(float a)
{
    return 0.5f * ((a > 0.25f) + (a >= 0.75f) + (a > 1.25f) + (a >= 1.75f))
         + (a > 2.5f) + (a >= 3.5f) + 2.0f * (a > 5.0f);
}

/* MXFP4: groups of 32, power-of-two scale with amax / scale in (3, 6].
 * `noise` adds uniform noise of that fraction of each group's rms on top of the
 * rounding: the experts may later be re-coded to about 3 bits, which costs some 20%
 * of their norm. */
void emit_mx(long n, const float *p, uint16_t *o, float noise, uint32_t seed)
{
    for (long k = 0; k < n; k += 32) {
        float mx = 0, ss = 0;
        for (int i = 0; i < 32; i++) {
            const float a = fabsf(p[k + i]);
            mx = a > mx ? a : mx;
            ss += a * a;
        }
        const float amp = noise * sqrtf(ss * 3.0f / 32.0f) * (1.0f / 2147483648.0f);
        /* smallest power of two with 6 * 2^e >= amax: exponent of amax / 6, rounded up */
        union { float f; uint32_t u; } c = { mx / 6.0f }, s, inv;
        int e = (int)(c.u >> 23) + ((c.u & 0x7fffffu) != 0);          /* biased */
        if (e < 1) e = 1;
        if (e > 253) e = 253;
        s.u = (uint32_t)e << 23;
        inv.u = (uint32_t)(254 - e) << 23;
        for (int i = 0; i < 32; i++) {
            const float v = round_e2m1(fabsf(p[k + i]) * inv.f) * s.f;
            uint32_t z = (uint32_t)(k + i) * 2654435761u + seed;       /* hash -> uniform in [-1, 1) */
            z ^= z >> 15; z *= 2246822519u;
            z ^= z >> 13; z *= 3266489917u;
            z ^= z >> 16;
            o[k + i] = bf16_of_f32((p[k + i] < 0 ? -v : v) + amp * (float)(int32_t)z);
        }
    }
}
