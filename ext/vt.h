/* The table-valued functions, for the table in ext.c. The client data of each
 * module is the connection (waste_conn). */
#ifndef VT_H
#define VT_H

#include "sqlite3ext.h"

extern const sqlite3_module waste_vt_tokens;      /* vt_tokens.c */
extern const sqlite3_module waste_vt_batch;       /* vt_batch.c */
extern const sqlite3_module waste_vt_next;        /* vt_next.c */
extern const sqlite3_module waste_vt_chat_tokens; /* vt_chat_tokens.c */
extern const sqlite3_module waste_vt_info;        /* vt_container.c */
extern const sqlite3_module waste_vt_tensors;     /* vt_container.c */
extern const sqlite3_module waste_vt_experts;     /* vt_container.c */
extern const sqlite3_module waste_vt_plan;        /* vt_plan.c */
extern const sqlite3_module waste_vt_stats;       /* vt_stats.c */
extern const sqlite3_module waste_vt_convert;     /* vt_convert.c */
extern const sqlite3_module waste_vt_verify;      /* vt_verify.c */

#endif
