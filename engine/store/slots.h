/* Slots of the expert cache: fixed places of one record each, in one region inside
 * the budget, and which record is where.
 *
 * What always holds
 *  - A record has at most one slot, so no record is read twice at once.
 *  - A slot is empty, reading (its bytes are being written) or ready.
 *  - A ready slot that nobody asked for, holds or keeps is offered to the policy, and
 *    only those are: nothing else is evicted, and the bytes of the others do not move.
 * Why a slot stays is the cache's business (cache.c): it sets the marks, and says
 * withhold and offer when they change. No lock of its own, nothing waits. */
#ifndef WASTE_SLOTS_H
#define WASTE_SLOTS_H

#include "store/policy.h"
#include "store/reader.h"

typedef enum waste_slot_state {
    WASTE_SLOT_EMPTY,
    WASTE_SLOT_READING,
    WASTE_SLOT_READY
} waste_slot_state;

typedef struct waste_slot {
    waste_read read; /* whose record it is; first, since reads come back as this */
    waste_slot_state state;
    /* why it stays: by the open batch, by the caller, as a guess for the next batch */
    unsigned char asked, held, kept;
    /* why it is or was read: asked for while it was being read for something else; its
     * read was asked for before the batch was; read on a guess and not asked for since;
     * being read to warm the cache */
    unsigned char joined, known, guessed, warming;
    int32_t next_free;
} waste_slot;

typedef struct waste_slots {
    int first_layer, layers, experts; /* layers: that have experts */
    uint64_t n, slot_bytes;
    char *memory;
    waste_slot *slot;   /* [n] */
    int32_t *where;     /* [layers][experts]: the slot of a record, or -1 */
    int32_t first_free; /* list of empty slots, or -1 */
    uint64_t used, evictions;
    waste_policy *policy;
} waste_slots;

/* Reserves memory for n >= 1 slots and the tables beside it, all counted. After a
 * failure, too, s is to be closed; closing zeroes is fine. */
waste_status waste_slots_open(waste_slots *s, const waste_banks *banks, uint64_t n,
                              waste_error *err);
void waste_slots_close(waste_slots *s);
/* Allocated by open beside the slots' memory. */
uint64_t waste_slots_table_bytes(const waste_banks *banks, uint64_t n);

int waste_slots_exists(const waste_slots *s, int layer, int expert);
/* Of a record that exists: its number for the policy; its slot, or NULL. */
int32_t waste_slots_record(const waste_slots *s, int layer, int expert);
waste_slot *waste_slots_find(const waste_slots *s, int layer, int expert);
int32_t waste_slots_number(const waste_slots *s, const waste_slot *x);
char *waste_slots_bytes(const waste_slots *s, const waste_slot *x);

/* An empty slot, made so if a record of an index below `than` (policy.h) can go, now
 * that of a record that has none, in state reading and without marks; or NULL. */
waste_slot *waste_slots_take(waste_slots *s, int layer, int expert, float than);
int waste_slots_any_empty(const waste_slots *s);
/* Whether all records of a layer are there, read, and never have to go. */
int waste_slots_keep(const waste_slots *s, int layer);
/* The record goes, and with it all marks. */
void waste_slots_empty(waste_slots *s, waste_slot *x);
/* Lets the record go if nothing speaks against it. */
void waste_slots_offer(waste_slots *s, const waste_slot *x);
/* Not any more. */
void waste_slots_withhold(waste_slots *s, const waste_slot *x);

#endif
