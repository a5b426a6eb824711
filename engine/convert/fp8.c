/* 8-bit floating point: see fp8.h. Any thread. */
#include "convert/fp8.h"

#include <math.h>

/* (8 + mantissa) * 2^(exponent - 10): bias 7, three bits of mantissa. */
static float e4m3(unsigned char byte)
{
    const int exponent = byte >> 3 & 15, mantissa = byte & 7;
    float v;

    if ((byte & 0x7F) == 0x7F)
        v = NAN;
    else
        v = exponent ? ldexpf((float)(8 + mantissa), exponent - 10) : ldexpf((float)mantissa, -9);
    return byte & 0x80 ? -v : v;
}

/* (4 + mantissa) * 2^(exponent - 17): bias 15, two bits of mantissa. */
static float e5m2(unsigned char byte)
{
    const int exponent = byte >> 2 & 31, mantissa = byte & 3;
    float v;

    if (exponent == 31)
        v = mantissa ? NAN : INFINITY;
    else
        v = exponent ? ldexpf((float)(4 + mantissa), exponent - 17) : ldexpf((float)mantissa, -16);
    return byte & 0x80 ? -v : v;
}

float waste_fp8_value(waste_dtype dtype, unsigned char byte)
{
    return dtype == WASTE_DTYPE_F8_E4M3 ? e4m3(byte) : e5m2(byte);
}

void waste_fp8_decode(waste_dtype dtype, const unsigned char *raw, int64_t first, int64_t n,
                      int64_t cols, const float *scale, int64_t block_rows, int64_t block_cols,
                      float *to)
{
    const int64_t wide = (cols + block_cols - 1) / block_cols, top = first / block_rows;
    float value[256];
    int64_t r, b, c;
    int i;

    for (i = 0; i < 256; i++) value[i] = waste_fp8_value(dtype, (unsigned char)i);
    for (r = 0; r < n; r++) {
        const float *s = scale + ((first + r) / block_rows - top) * wide;
        for (b = 0; b < wide; b++) {
            const int64_t end = (b + 1) * block_cols < cols ? (b + 1) * block_cols : cols;
            for (c = b * block_cols; c < end; c++)
                to[r * cols + c] = value[raw[r * cols + c]] * s[b];
        }
    }
}
