/* Rotary position embedding: see rope.h. No state, any thread. The table is
 * built in f64 and stored f32, as are the angles (docs/model.md 11). */
#include "model/rope.h"

#include <math.h>

static const double pi = 3.14159265358979323846;

int waste_rope_pairs(const waste_config *c)
{
    return c->rotate && c->rope_dim >= 2 ? c->rope_dim / 2 : 0;
}

/* The pair whose wavelength makes `beta` turns over the original context. */
static double pair_of(const waste_config *c, double beta)
{
    return c->rope_dim * log(c->rope_original / (2 * pi * beta)) / (2 * log(c->rope_base));
}

float waste_rope_table(const waste_config *c, float *inv)
{
    int n = waste_rope_pairs(c), yarn = n > 0 && c->rope_factor > 1, j;
    double low = 0, high = 0, m = 1;

    if (yarn) {
        low = fmax(floor(pair_of(c, c->rope_beta_fast)), 0);
        high = fmin(ceil(pair_of(c, c->rope_beta_slow)), c->rope_dim - 1);
        if (low == high) high += 0.001;
        if (c->rope_mscale_all != 0) m = 0.1 * c->rope_mscale_all * log(c->rope_factor) + 1;
    }
    for (j = 0; j < n; j++) {
        double f = pow(c->rope_base, -2.0 * j / c->rope_dim);

        if (yarn) {
            double ramp = fmin(fmax((j - low) / (high - low), 0), 1);
            f = f / c->rope_factor * ramp + f * (1 - ramp);
        }
        inv[j] = (float)f;
    }
    return (float)(m * m);
}

void waste_rope_angles(const float *inv, int pairs, int64_t position, float *cs)
{
    int j;

    for (j = 0; j < pairs; j++) {
        float angle = (float)position * inv[j];
        cs[2 * j] = cosf(angle);
        cs[2 * j + 1] = sinf(angle);
    }
}

void waste_rope_turn(float *x, const float *cs, int pairs)
{
    int j;

    for (j = 0; j < pairs; j++) {
        float e = x[2 * j], o = x[2 * j + 1], c = cs[2 * j], s = cs[2 * j + 1];
        x[2 * j] = e * c - o * s;
        x[2 * j + 1] = e * s + o * c;
    }
}
