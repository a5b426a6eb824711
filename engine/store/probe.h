/* How fast the disk gives experts: a short measurement on a container's own
 * banks, in the way a model reads them. */
#ifndef WASTE_PROBE_H
#define WASTE_PROBE_H

#include "store/manifest.h"

typedef struct waste_probe {
    double rate; /* bytes per second; 0: the container has no banks */
    uint64_t reads;
    int direct; /* past the page cache; otherwise the rate may be that of memory */
} waste_probe;

/* Reads whole records at random places with two threads, as demand and the next
 * layer's guesses do, for at most about 100 ms; a read that has begun is finished.
 * layers: of the model. Takes memory for two records meanwhile. Any thread may
 * call. WASTE_IO, WASTE_NOMEM. */
waste_status waste_probe_banks(waste_probe *out, const waste_manifest *m, int layers, int buffered,
                               waste_error *err);

#endif
