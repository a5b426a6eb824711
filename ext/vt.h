/* The table-valued functions, for the table in ext.c. */
#ifndef VT_H
#define VT_H

#include "ext_table.h"

extern const waste_table_kind waste_vt_tokens;      /* vt_tokens.c */
extern const waste_table_kind waste_vt_batch;       /* vt_batch.c */
extern const waste_table_kind waste_vt_next;        /* vt_next.c */
extern const waste_table_kind waste_vt_chat_tokens; /* vt_chat_tokens.c */
extern const waste_table_kind waste_vt_info;        /* vt_container.c */
extern const waste_table_kind waste_vt_tensors;     /* vt_container.c */
extern const waste_table_kind waste_vt_experts;     /* vt_container.c */
extern const waste_table_kind waste_vt_plan;        /* vt_plan.c */
extern const waste_table_kind waste_vt_stats;       /* vt_stats.c */
extern const waste_table_kind waste_vt_convert;     /* vt_convert.c */
extern const waste_table_kind waste_vt_verify;      /* vt_verify.c */

#endif
