/* Brings weights into the order that the kernels in force want: trunk matrices as they
 * are loaded, codebooks once, expert records as each is read. With the plain table
 * nothing happens. On the thread that opens the model. */
#ifndef WASTE_PACK_H
#define WASTE_PACK_H

#include "model/weights.h"
#include "store/bank.h"

/* Loads what the weights ask for, on twice as many threads as compute, each rearranging
 * what it has read: some wait for the disk meanwhile. buffered: through the page cache. */
waste_status waste_pack_trunk(waste_weights *w, waste_tensors *t, const waste_kernels *k,
                              const waste_config *c, int threads, int buffered,
                              const waste_cancel *cancel, waste_error *err);

/* After waste_banks_open, before the first record is read. `w` and `k` must outlive
 * `b`'s last read. */
waste_status waste_pack_experts(waste_weights *w, waste_banks *b, const waste_kernels *k,
                                const waste_config *c, const waste_quant *q, waste_error *err);

/* At most what waste_pack_experts allocates, per MoE layer. */
uint64_t waste_pack_layer_bytes(const waste_quant *q);

#endif
