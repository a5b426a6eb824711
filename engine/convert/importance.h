/* Importance files: how large the inputs of the experts are, channel by channel, as
 * measured on text (docs/convert.md 6.4). A JSON file
 *
 *     {"tokens": 4096, "layers": {"1": {"gate_up": [..], "down": [..]}, ..}}
 *
 * gate_up: the mean of x^2 of each column of gate and up; down: of each column of
 * down, over the experts that were chosen. tokens: how many positions the means are
 * of, which adding to a file needs and nothing else; other members are ignored. */
#ifndef WASTE_IMPORTANCE_H
#define WASTE_IMPORTANCE_H

#include "base/buf.h"
#include "base/error.h"

enum { WASTE_IMPORTANCE_GATE_UP, WASTE_IMPORTANCE_DOWN, WASTE_IMPORTANCE_KINDS };

typedef struct waste_importance {
    int first, layers;                    /* layers first..layers-1 have experts */
    int64_t cols[WASTE_IMPORTANCE_KINDS]; /* of gate and up, of down */
    uint64_t tokens;                      /* 0: the file does not say */
    float **mean; /* [layers - first][WASTE_IMPORTANCE_KINDS], each [cols]; NULL: not in the file */
} waste_importance;

/* No layer yet. `in` are inputs of an expert, `width` rows of gate and up. */
waste_status waste_importance_init(waste_importance *m, int first, int layers, int64_t in,
                                   int64_t width, waste_error *err);
/* Fine when zeroed. */
void waste_importance_clear(waste_importance *m);
/* The list's place. */
float **waste_importance_at(const waste_importance *m, int layer, int kind);
/* Room for both lists of a layer; nonzero: out of memory. */
int waste_importance_add(waste_importance *m, int layer);

/* Reads a file into an initialised m without layers. WASTE_ARG names file, layer and
 * list for anything that does not fit it, including numbers that are negative, above
 * 1e30 or no numbers. */
waste_status waste_importance_load(waste_importance *m, const char *path, waste_error *err);
/* Appends the file's text: nine digits a number. */
void waste_importance_text(waste_buf *b, const waste_importance *m);

#endif
