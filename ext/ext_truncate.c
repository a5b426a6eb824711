/* What a conversation goes on without: see ext_truncate.h. */
#include "ext_truncate.h"

#include <string.h>

#include "base/mem.h"

SQLITE_EXTENSION_INIT3

/* The first message of the user's before which so much can go that at most `goal` of
 * `tokens` are left, else the last one before which something can; 0: none. */
static int64_t choose(const waste_session *s, int64_t tokens, int64_t goal)
{
    int64_t cut = 0;
    size_t i, gone = 0;

    for (i = 0; i < s->n; i++) {
        const waste_session_message *m = &s->message[i];

        if (m->role == WASTE_SESSION_SYSTEM) continue;
        if (m->role == WASTE_SESSION_USER && gone) {
            cut = m->seq;
            if (tokens <= goal) break;
        }
        tokens -= (int64_t)(m->to - m->from);
        gone++;
    }
    return cut;
}

int waste_truncate(waste_session *s, int64_t tokens, int64_t context, int64_t max_tokens,
                   int64_t closing)
{
    const int64_t reply = max_tokens < context / 4 ? max_tokens : context / 4;
    int64_t cut;

    if (tokens + reply + closing <= context) return 0;
    cut = choose(s, tokens, context / 2);
    if (cut <= s->cut) return 0;
    s->cut = cut;
    return 1;
}

waste_status waste_truncate_open(waste_session *s, waste_talk *talk, const waste_container *c,
                                 waste_error *err)
{
    waste_ids opening = {0};
    int32_t *grown;
    size_t i;
    waste_status st;

    if (!s->headless || !s->known) return WASTE_OK; /* what is unread will be opened anyway */
    st = waste_talk_opening(talk, c, &opening, err);
    if (st || !opening.n) return st;
    grown = waste_mem_resize(opening.id, (opening.n + s->ids.n) * sizeof *grown);
    if (!grown) {
        waste_ids_clear(&opening);
        return waste_fail(err, WASTE_NOMEM, "out of memory for the tokens of a session");
    }
    if (s->ids.n) memcpy(grown + opening.n, s->ids.id, s->ids.n * sizeof *grown);
    for (i = 0; i < s->n; i++) {
        if (i) s->message[i].from += opening.n;
        s->message[i].to += opening.n;
    }
    s->message[0].fresh = 1;
    opening.id = grown;
    opening.n += s->ids.n;
    waste_ids_clear(&s->ids);
    s->ids = opening;
    return WASTE_OK;
}

waste_status waste_truncate_write(const waste_session *s, int64_t seq, waste_error *err)
{
    sqlite3_stmt *q;
    waste_status st;

    if (!s->cut_n) return WASTE_OK;
    st = waste_session_prepare(&q, s->db, s->schema,
                               "UPDATE $waste_messages SET omitted = ?1, span = NULL"
                               " WHERE session = ?2 AND seq < ?3 AND omitted IS NULL"
                               " AND role <> 'system'",
                               err);
    if (st) return st;
    sqlite3_bind_int64(q, 1, seq);
    sqlite3_bind_int64(q, 2, s->id);
    sqlite3_bind_int64(q, 3, s->cut);
    return waste_session_run(q, "writing waste_messages", err);
}
