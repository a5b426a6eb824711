/* WASTE: mixture-of-experts language models, their experts streamed from disk.
 *
 * The whole public interface of the engine. It knows nothing of SQLite; the
 * extension in ext/ is one host of it, any C program can be another.
 *
 * Rules that hold for every function here
 *  - Nothing is printed, nothing exits, the environment is not read.
 *  - A function that can fail returns a waste_status; the sentence that goes
 *    with it is in the waste_error, which must have been cleared before
 *    ({0}). The first cause wins: a filled error is never overwritten.
 *  - "Borrowed" pointers belong to the object they were asked of and live
 *    until it is closed. Everything else is released by the _close, _free or
 *    _clear function named beside it; these accept NULL and half-built objects.
 *  - Text is UTF-8 with an explicit length; it may hold NUL bytes.
 *  - A container or a model may be used by any number of threads at once.
 *    A sequence, a generation or a conversion belongs to one thread at a time.
 */
#ifndef WASTE_H
#define WASTE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define WASTE_VERSION        "0.1.0"
#define WASTE_VERSION_NUMBER 100 /* major * 10000 + minor * 100 + patch */

/* ---- status ---------------------------------------------------------- */

typedef enum waste_status {
    WASTE_DONE = 1, /* an iterator has no more to give */
    WASTE_OK = 0,
    WASTE_IO = -1,         /* file missing, short read, record failed a check */
    WASTE_FORMAT = -2,     /* malformed or unsupported container or checkpoint */
    WASTE_RAM_BUDGET = -3, /* the budget is below what the model needs */
    WASTE_NOMEM = -4,
    WASTE_ARG = -5,         /* an argument out of range; the text names it */
    WASTE_UNSUPPORTED = -6, /* the container lacks what was asked (tokenizer, ...) */
    WASTE_CANCELLED = -7,   /* the cancel callback said so */
    WASTE_BUSY = -8,        /* somebody else holds it */
    WASTE_TIMEOUT = -9      /* timeout_ms passed */
} waste_status;

typedef struct waste_error {
    waste_status status;
    char text[512]; /* one sentence, no newline, NUL-terminated */
} waste_error;

const char *waste_version(void); /* "0.1.0" */

/* A stretch of text that somebody else owns. */
typedef struct waste_str {
    const char *text;
    size_t bytes;
} waste_str;

/* Text that was made for the caller: a NUL follows it. {0} is none. */
typedef struct waste_text {
    char *text;
    size_t bytes;
} waste_text;

void waste_text_clear(waste_text *t);

/* Asked at least once per layer of a pass; nonzero ends the call with
 * WASTE_CANCELLED. Called on the thread that made the call, while it computes in the
 * default floating-point environment. */
typedef struct waste_cancel {
    int (*asked)(void *ctx); /* NULL: never */
    void *ctx;
} waste_cancel;

/* ---- container: everything but the weights --------------------------- */

/* A .waste directory whose manifest, configuration, tokenizer and chat format
 * have been read and checked. Cheap to open: no weight is read. */
typedef struct waste_container waste_container;

typedef enum waste_chat_format {
    WASTE_CHAT_NONE, /* prompts are continued as plain text */
    WASTE_CHAT_XTML, /* K3's markup: its four control tokens are single tokens */
    WASTE_CHAT_PLAIN /* chat.json */
} waste_chat_format;

typedef struct waste_info {
    const char *path;          /* as given */
    const char *arch;          /* "kimi-k3", "kimi-linear", the source's name, "unknown" */
    const char *expert_format; /* "VQ3R", "VQ2R", "VQ4P", "VQ", "none" */
    double expert_bits;        /* per weight, row scales not counted */
    int layers, kda_layers, mla_layers, moe_layers;
    int hidden, vocab, experts, top_k;
    int64_t params, active_params; /* weights in all, and used per token */
    int64_t trunk_bytes;           /* tensors of the text model, as stored */
    int64_t resident_bytes;        /* of these, kept in memory */
    int64_t expert_bytes;          /* all banks */
    int64_t record_bytes;          /* largest expert record */
    int32_t eos_token;             /* ends a reply; -1 when unknown */
    int has_tokenizer, has_vision;
    waste_chat_format chat;
} waste_info;

typedef struct waste_tensor_info {
    const char *name;
    const char *format; /* "F32", "Q8G", "Q4G", "Q3G" */
    int dims;
    int64_t shape[4];
    int group;             /* 0 for F32 */
    int64_t offset, bytes; /* in trunk.bin; payload plus scales */
    int resident;          /* loaded when the model is */
} waste_tensor_info;

typedef struct waste_bank_info {
    const char *file; /* name inside the container; NULL: a dense layer */
    int experts;
    int64_t record_bytes;
    int codebook_base;
} waste_bank_info;

/* cancel may be NULL, in waste_model_options too. A call that it ends while a read hangs
 * returns at once, and what was being opened is taken apart when that read ends: see
 * waste_settle. */
waste_status waste_container_open(waste_container **out, const char *path,
                                  const waste_cancel *cancel, waste_error *err);
void waste_container_close(waste_container *c);
const waste_info *waste_container_info(const waste_container *c); /* borrowed */
size_t waste_container_tensors(const waste_container *c);
void waste_container_tensor(const waste_container *c, size_t i, waste_tensor_info *out);
void waste_container_bank(const waste_container *c, int layer, waste_bank_info *out);

/* WASTE_OK when the chat format is usable or there is none; otherwise the
 * error names the file and the marker that is not a single token. */
waste_status waste_container_check_chat(const waste_container *c, waste_error *err);

/* WASTE_OK unless the container names an architecture outside the families this
 * engine was made for; the error then says which it names and which those are.
 * A hint for whoever registers a model: the name decides nothing else, and a
 * container that names none passes. */
waste_status waste_container_check_arch(const waste_container *c, waste_error *err);

/* Device and inode of the manifest's directory: equal for one container
 * whatever path leads to it. */
waste_status waste_container_identity(const char *path, uint64_t id[2], waste_error *err);

/* ---- tokens ----------------------------------------------------------- */

typedef struct waste_ids {
    int32_t *id;
    size_t n;
} waste_ids;

void waste_ids_clear(waste_ids *ids);

/* markup 0: every byte is ordinary text (content). markup 1: the spellings of
 * control tokens become those tokens. Ids are appended to `out`. Invalid UTF-8
 * keeps its bytes. WASTE_UNSUPPORTED without a tokenizer. */
waste_status waste_tokenize(const waste_container *c, const char *text, size_t bytes, int markup,
                            waste_ids *out, waste_error *err);

/* Bytes of one token (a control token's spelling); NULL and 0 for an id that
 * stands for nothing. Borrowed. */
const char *waste_token_bytes(const waste_container *c, int32_t id, size_t *bytes);

/* Turns bytes that arrive token by token into UTF-8: a code point is released
 * as soon as it is complete, bytes that can never complete become U+FFFD. */
typedef struct waste_utf8 {
    unsigned char held[4];
    unsigned char n;
} waste_utf8;

/* Appends what can be released to out, which must have room for
 * 3 * (bytes + 4). Returns the bytes written. */
size_t waste_utf8_push(waste_utf8 *u, const char *in, size_t bytes, char *out);
size_t waste_utf8_end(waste_utf8 *u, char *out); /* flushes; at most 3 * 4 bytes */

/* ---- model: weights in memory, experts on disk ------------------------ */

typedef struct waste_model waste_model;

typedef enum waste_precision {
    WASTE_PRECISION_FAST, /* the default; may round where the error is stated */
    WASTE_PRECISION_EXACT /* f32 arithmetic throughout */
} waste_precision;

/* How the latents of MLA layers are kept, whatever the precision. */
typedef enum waste_kv {
    WASTE_KV_F32, /* the default */
    WASTE_KV_F16  /* IEEE binary16: half the bytes; docs/measured.md has the error */
} waste_kv;

typedef struct waste_model_options {
    uint64_t budget;   /* bytes in all; 0: chosen by the engine */
    int64_t context;   /* positions per sequence; 0: 4096 */
    int64_t sequences; /* with a full context and generating, that the budget has room for
                        * at the same time whatever the cache takes; 0: 1 */
    waste_precision precision;
    waste_kv kv;
    int verify;          /* check every record's crc32 when it is read */
    int buffered;        /* read experts through the page cache, not past it */
    int io_threads;      /* that read experts, 1..16; 0: the default (5) */
    int lookahead;       /* experts guessed per row and layer, four times as many for all rows
                          * of a prompt; 0: the default (6); -1: none */
    int exclusive;       /* refuse a container that another process owns */
    const char *usage;   /* hotlist file to warm the cache from; NULL: none. Read at
                        * open, in the background; a file that is absent is fine */
    const char *kernels; /* "plain", "avx2", "avx512bw", "avx512", "neon", "neon-dotprod";
                          * NULL: the fastest that the CPU has, or "plain" with precision
                          * exact */
    int threads;         /* that compute, of the process's one pool, which the first model
                          * opened makes so large; 0: one for each CPU listed, else one
                          * for each physical core; at most 64 */
    const char *cpus;    /* CPUs that they are bound to, like "0-5,8"; NULL: none. The
                          * calling thread is bound while a step runs */
    waste_cancel cancel; /* of the call that is given these options */
} waste_model_options;

typedef struct waste_model_stats {
    uint64_t tokens;                /* rows computed since open */
    uint64_t reused;                /* positions of prompts that were taken over instead */
    uint64_t prefixes;              /* beginnings of prompts that are kept */
    uint64_t hits, misses;          /* demand accesses: in memory (or on its way), and not */
    uint64_t guesses, guesses_used; /* speculative reads, and those a demand then met */
    uint64_t evictions;
    uint64_t bytes_read; /* of expert records, guesses included */
    uint64_t io_ns;      /* steps waiting for reads of records */
    /* Of io_ns, what was waited for reads known before they were needed: a wait ends with
     * a record, and this one's read had been asked for before the router of its layer
     * ran - by a guess, by warming, or by a step that was cancelled. The rest is demand
     * that nobody could have known. */
    uint64_t known_ns;
    uint64_t disk_ns; /* a read of a record was asked for and had not ended */
    uint64_t step_ns; /* in steps altogether */
    uint64_t idle_ns; /* open and in no step */
    uint64_t warmed;  /* records read at open from a hotlist */
    uint64_t trunk_bytes, scratch_bytes, sequence_bytes, cache_bytes; /* resident */
    uint64_t memory_bytes; /* allocated by the process now */
    uint64_t budget_bytes; /* in force */
    uint64_t cache_slots, cache_used;
    uint64_t page_faults; /* of the process that needed the disk, since open */
    int banks_direct, banks_buffered;
    int io_threads, lookahead; /* in force */
    const char *policy;        /* of the cache; static */
    char notice[200];          /* what did not go as planned, or empty */
    const char *kernels;       /* table of kernels in force; static */
    int threads;               /* that compute, at most */
} waste_model_stats;

waste_status waste_model_open(waste_model **out, const char *path, const waste_model_options *opt,
                              waste_error *err);
/* Waits for reads that have begun, and for no more. */
void waste_model_close(waste_model *m);
/* Calls that were cancelled while a read hung have left threads behind, which end when
 * their reads do. Waits for all of them: before the library is unloaded, and where
 * nothing may be left running. */
void waste_settle(void);
const waste_container *waste_model_container(const waste_model *m); /* borrowed */
int64_t waste_model_context(const waste_model *m);
void waste_model_stats_get(waste_model *m, waste_model_stats *out);

/* ---- plan: where the memory would go ----------------------------------- */

typedef struct waste_plan_row {
    const char *part; /* "trunk", "state", "floor", ...; static */
    double value;     /* bytes, or what `unit` says */
    const char *unit; /* "bytes", "slots", "bytes/s", "tokens/s"; static */
    char why[160];    /* one sentence */
} waste_plan_row;

typedef struct waste_plan_report {
    waste_plan_row *row;
    size_t n;
} waste_plan_report;

/* What opening `path` with these options would reserve, without loading or
 * reserving it. A budget below the floor is reported, not an error. probe: time
 * a few direct reads of the container's own banks. */
waste_status waste_plan_make(waste_plan_report *out, const char *path,
                             const waste_model_options *opt, int probe, waste_error *err);
void waste_plan_clear(waste_plan_report *r);

/* ---- usage: which experts were wanted ---------------------------------- */

/* Learned demand of one record, decayed; comparable within one container only. */
typedef struct waste_usage_row {
    int layer, expert;
    uint32_t hits;
} waste_usage_row;

/* Most wanted first, at most `max`. `out` has room for them; *n gets the count. */
waste_status waste_usage_get(waste_model *m, waste_usage_row *out, size_t max, size_t *n,
                             waste_error *err);
/* Reads these records into the cache in the background, most wanted first, as
 * far as empty slots go. Rows that name no record are skipped. */
waste_status waste_usage_warm(waste_model *m, const waste_usage_row *rows, size_t n,
                              waste_error *err);
/* usage.waste (docs/format.md): replaced as a whole. */
waste_status waste_usage_save(waste_model *m, const char *path, waste_error *err);

/* One sequence: the state that its tokens have left behind. */
typedef struct waste_seq waste_seq;

waste_status waste_seq_new(waste_seq **out, waste_model *m, waste_error *err);
void waste_seq_free(waste_seq *s);
int64_t waste_seq_length(const waste_seq *s); /* positions computed */

/* One position of one sequence. Rows of one sequence are its next positions,
 * in the order given; rows of different sequences may be mixed at will, and
 * no grouping changes a bit of any result. */
typedef struct waste_row {
    waste_seq *seq;
    int32_t token;
    float *logits; /* vocab floats to fill, or NULL */
} waste_row;

typedef struct waste_step_stats {
    uint64_t hits, misses, bytes_read;
    uint64_t io_ns, known_ns, disk_ns; /* as in waste_model_stats */
} waste_step_stats;

/* Computes all rows. Everything is checked before any state changes: an id
 * outside the vocabulary or a full context leaves every sequence as it was.
 * When the pass itself fails (a record cannot be read, cancel), the sequences
 * of the batch are broken: any further step with them fails with WASTE_ARG.
 * Steps that other threads ask for meanwhile are computed together with it; a cancel
 * concerns only whose it is, a read that fails all that share the pass. stats may be
 * NULL; it counts what was read for the passes that the rows were in. */
waste_status waste_step(waste_model *m, const waste_row *rows, size_t n, const waste_cancel *cancel,
                        waste_step_stats *stats, waste_error *err);

/* ---- sequences: forked, kept, taken up again ---------------------------- */

/* A second sequence in the same state. Latents that are complete are shared, so it
 * costs what the KDA layers hold and one block of latents a layer. */
waste_status waste_seq_fork(waste_seq **out, const waste_seq *s, waste_error *err);

/* What a model computes, as a number: sequences may be exchanged between models
 * that agree in `weights` (container, precision and kv), token ids between those that
 * agree in `text` (tokenizer and chat format). Reads samples of every tensor and
 * bank the first time, and remembers. Finds other weights, not forged ones. */
typedef struct waste_identity {
    uint64_t weights, text;
} waste_identity;

waste_status waste_model_identity(waste_model *m, waste_identity *out, waste_error *err);

/* A sequence consists of parts, each at most WASTE_PART_BYTES: latents of positions
 * [from, to), which never change again, and what KDA layers hold at a length
 * (from == to), which every step changes. */
#define WASTE_PART_BYTES ((size_t)16 << 20)

typedef enum waste_part_kind {
    WASTE_PART_STATE,
    WASTE_PART_RING,
    WASTE_PART_LATENTS
} waste_part_kind;

typedef struct waste_seq_part {
    int layer;
    waste_part_kind kind;
    int64_t block; /* pieces of one layer and kind are numbered from 0 */
    int64_t from, to;
    size_t bytes;
} waste_seq_part;

/* All parts of one kind of layer: `latents` 0, what KDA layers hold at `to`; 1, the
 * latents of [from, to). *out is NULL when there are none; free it with
 * waste_seq_parts_free. */
waste_status waste_seq_parts(waste_seq_part **out, size_t *n, const waste_model *m, int latents,
                             int64_t from, int64_t to, waste_error *err);
void waste_seq_parts_free(waste_seq_part *parts);

/* Copies a part of a sequence to `to`. What KDA layers hold can be had at the
 * sequence's length only. *check binds the bytes to the part, the model's identity
 * and `tokens`, the hash of the tokens up to p->to or of more. */
waste_status waste_seq_save(const waste_seq *s, const waste_seq_part *p, uint64_t tokens, void *to,
                            uint64_t *check, waste_error *err);
uint64_t waste_tokens_hash(uint64_t h, const int32_t *ids, size_t n); /* start with 0 */

/* A sequence of `length` positions, to be filled: every part of [0, length) is put
 * in once, then waste_seq_loaded makes it usable or says what is missing. put gives
 * WASTE_FORMAT, changing nothing, when the check does not fit. */
waste_status waste_seq_load(waste_seq **out, waste_model *m, int64_t length, waste_error *err);
waste_status waste_seq_put(waste_seq *s, const waste_seq_part *p, uint64_t tokens, const void *from,
                           size_t bytes, uint64_t check, waste_error *err);
waste_status waste_seq_loaded(waste_seq *s, waste_error *err);

/* Leaves a sequence with its model, which keeps it as long as nobody needs the
 * memory, and takes ownership in any case. ids: the tokens that made it, as many as
 * its length. owner: whose it is, a number of the host's; what the same owner left
 * before is dropped. */
void waste_seq_rest(waste_seq *s, const int32_t *ids, uint64_t owner);
/* The longest resting sequence whose tokens begin ids[0..n): the owner's is taken,
 * another's is forked. NULL when there is none. Since the tokens decide, what comes
 * back is what computing them would give. */
waste_seq *waste_seq_wake(waste_model *m, const int32_t *ids, size_t n, uint64_t owner);

/* ---- prompts and generation ------------------------------------------- */

/* A conversation in the OpenAI chat schema, both texts JSON. Usage:
 *
 *     waste_chat_request chat = {messages, options, 0};
 *     waste_prompt prompt = {0};
 *     prompt.chat = &chat;
 *     waste_prompt_render(container, &prompt, &text, &err);  to see the prompt
 *     waste_gen_open(&gen, model, &prompt, &params, &err);   to have it answered,
 *     while (!(st = waste_gen_next(gen, &token, &err))) ...  to its end, then
 *     waste_gen_message(gen, &text, &err);                   the assistant's message
 *
 * messages: an array of {role, content, name, reasoning_content, tool_calls,
 * tool_call_id, tools}; roles are system, developer, user, assistant and tool.
 * options: an object, of which these fields shape the prompt, all others being the
 * caller's to check and to use: tools, tool_choice, response_format, thinking
 * (default: on, and off with a chat.json), reasoning_effort (or thinking_effort, or
 * reasoning.effort: none, low, high, max), add_generation_prompt (default true),
 * image_prompts (media segments of images attached). docs/chat.md 3.
 *
 * skip: the first messages are in the sequence already. They name and order tool
 * results as ever, but neither they nor what opens a conversation is rendered:
 * the prompt is what comes after. It continues a sequence whose last message was
 * completed (waste_gen_closing).
 *
 * WASTE_ARG for what is no such request, WASTE_UNSUPPORTED for what the container's
 * format has no place for; both name the field: "messages[2].content[0].text". */
typedef struct waste_chat_request {
    waste_str messages;
    waste_str options; /* text NULL: none */
    size_t skip;
} waste_chat_request;

typedef struct waste_prompt {
    const waste_chat_request *chat; /* not NULL: it is the prompt, and all else is unset */
    waste_str text;                 /* text.text NULL: `tokens` is the prompt */
    const int32_t *tokens;          /* taken as they are, no template */
    size_t n_tokens;
    waste_str system;       /* text NULL: no system turn */
    const waste_str *parts; /* further content of the user turn: data, never markup */
    size_t n_parts;
    int raw;      /* continue the text: no template */
    int markup;   /* with raw: control spellings count */
    int thinking; /* open the reasoning channel (XTML only) */
    /* For generations, to go on with: tokens that precede the prompt, and a sequence
     * that has computed the first of them, or NULL. It is borrowed; the rest of
     * `before`, the prompt and the reply go into it. After the last token it lacks
     * that one, and those before it that were put in (max_thinking_tokens); after an error
     * or a timeout it may be broken. */
    const int32_t *before;
    size_t n_before;
    waste_seq *seq;
} waste_prompt;

/* Appends the prompt's ids: rendered in the container's chat format when it
 * has one and raw is 0. */
waste_status waste_prompt_ids(const waste_container *c, const waste_prompt *p, waste_ids *out,
                              waste_error *err);
/* The segments that the ids are made of, each tokenized by itself: a JSON array of
 * {"text", "markup"}. Bytes that are no UTF-8 are shown as U+FFFD. A prompt of
 * token ids has none: WASTE_ARG. */
waste_status waste_prompt_render(const waste_container *c, const waste_prompt *p, waste_text *out,
                                 waste_error *err);

typedef struct waste_bias {
    int32_t token;
    float bias; /* added to the logit; -INFINITY bans the token */
} waste_bias;

typedef struct waste_gen_params {
    int64_t max_tokens; /* >= 1 */
    /* Tokens of the reasoning channel, -1: as many as there are. When it has so many and
     * is open, its end and the answer's beginning are put in as if the model had written
     * them. WASTE_UNSUPPORTED in a format without that channel; no matter where the prompt
     * has not opened it. */
    int64_t max_thinking_tokens;
    double temperature;        /* 0: greedy */
    int64_t top_k;             /* 0: off */
    double top_p;              /* 1: off */
    double min_p;              /* 0: off */
    double repetition_penalty; /* 1: off; prompt and reply (Keskar et al. 2019) */
    double presence_penalty;   /* 0: off; reply only */
    double frequency_penalty;  /* 0: off; reply only */
    uint64_t seed;
    const waste_bias *logit_bias;
    size_t n_logit_bias;
    const waste_str *stop; /* matched on the answer text, across tokens */
    size_t n_stop;
    int64_t timeout_ms; /* 0: none */
    int top_logprobs;   /* alternatives reported per token, 0..20 */
    int prefix_cache;   /* go on from what an earlier prompt has left where this one begins
                         * like it, and leave the same; not with a borrowed sequence */
    waste_cancel cancel;
} waste_gen_params;

void waste_gen_params_init(waste_gen_params *p); /* greedy, 256 tokens */

typedef enum waste_finish {
    WASTE_FINISH_NONE, /* goes on */
    /* An end token or a stop string; with XTML also the closing of the response
     * element: without declared tools nothing can follow it but the end. */
    WASTE_FINISH_STOP,
    WASTE_FINISH_LENGTH, /* max_tokens, or the context is full */
    WASTE_FINISH_TIMEOUT
} waste_finish;

typedef enum waste_region {
    WASTE_REGION_ANSWER,
    WASTE_REGION_REASONING,
    WASTE_REGION_TOOLS,
    WASTE_REGION_MARKUP /* control tokens and element headers */
} waste_region;

typedef struct waste_logprob {
    int32_t token;
    float logit;
    double logprob; /* natural, of the distribution before any option changed it */
} waste_logprob;

/* One generated token. Pointers are borrowed until the next call. */
typedef struct waste_gen_token {
    int64_t index;       /* from 0 */
    int32_t token;       /* -1: a last report that carries no token (timeout) */
    double logprob;      /* NaN: it was put in (max_thinking_tokens); `top` is empty */
    waste_str piece;     /* answer text this token released; may be empty; valid UTF-8 */
    waste_str reasoning; /* likewise of the reasoning channel */
    waste_str tools;     /* likewise of the arguments of the last tool call, as written */
    waste_region region;
    waste_finish finish; /* set on the last token */
    const waste_logprob *top;
    int n_top;
    waste_step_stats stats; /* of the step that made it; the first step's include the prompt */
    double ms;
} waste_gen_token;

typedef struct waste_usage {
    int64_t prompt_tokens, completion_tokens;
    int64_t reused_tokens;    /* of the prompt's, which had been computed before */
    int64_t reasoning_tokens; /* of the reply's: text of the reasoning channel */
    int64_t forced_tokens;    /* of the reply's: put in (max_thinking_tokens) */
    double prompt_ms, total_ms;
} waste_usage;

typedef struct waste_gen waste_gen;

/* Checks everything (prompt fits, ids, options) and computes nothing yet. */
waste_status waste_gen_open(waste_gen **out, waste_model *m, const waste_prompt *prompt,
                            const waste_gen_params *params, waste_error *err);
/* WASTE_OK and a token; WASTE_DONE after the one that carried `finish`.
 * WASTE_CANCELLED when asked to stop. A timeout is not an error here. */
waste_status waste_gen_next(waste_gen *g, waste_gen_token *out, waste_error *err);
void waste_gen_usage(const waste_gen *g, waste_usage *out);
/* Prompt tokens computed so far. The prompt goes in pieces; the cancel callback,
 * which is asked meanwhile, may ask this in turn. */
int64_t waste_gen_prompt_done(const waste_gen *g);
/* Tool calls whose name is known; it and the id do not change any more. Texts are
 * borrowed until the next call on g. */
size_t waste_gen_calls(const waste_gen *g);
void waste_gen_call(const waste_gen *g, size_t i, waste_str *id, waste_str *name);
/* Once the last token was given, the reply in OpenAI's form: {"role", "content",
 * "reasoning_content", "tool_calls"}, content null when empty, the last two only
 * when there are any. WASTE_ARG before that. */
waste_status waste_gen_message(const waste_gen *g, waste_text *out, waste_error *err);
/* OpenAI's finish_reason: "tool_calls" when there are calls, else "stop" or
 * "length"; and "timeout". NULL while it goes on. Static. */
const char *waste_gen_finish_reason(const waste_gen *g);
/* For conversations that go on in the same sequence: appends the ids that complete
 * the assistant's message after the tokens that were given out, so that the next
 * message can follow. The reply must have ended; its last token, at least, is not in
 * the sequence yet: waste_seq_length says how many are. */
waste_status waste_gen_closing(const waste_gen *g, waste_ids *out, waste_error *err);
/* The answer so far: the pieces given out. Borrowed until the next call on g. */
waste_str waste_gen_text(const waste_gen *g);
void waste_gen_close(waste_gen *g);

/* ---- many generations at once ------------------------------------------ */

/* Generations of one model that are stepped together, so that weights and experts are
 * read once for all of them. What each gives is what it would give alone. A batch
 * belongs to one thread at a time. */
typedef struct waste_batch waste_batch;

#define WASTE_BATCH_MOST 256

/* parallel: generations at a time, 1..WASTE_BATCH_MOST; fewer where the budget has no
 * room for them. cancel may be NULL; it is copied. */
waste_status waste_batch_open(waste_batch **out, waste_model *m, int parallel,
                              const waste_cancel *cancel, waste_error *err);
/* Adds a generation of its own sequence; params->cancel is not asked. WASTE_BUSY when
 * there is no room before another one has ended: add it again then. Other errors are
 * the generation's. */
waste_status waste_batch_add(waste_batch *b, const waste_prompt *prompt,
                             const waste_gen_params *params, void *tag, waste_error *err);
size_t waste_batch_size(const waste_batch *b); /* generations in it */

/* A generation that has ended: status WASTE_OK, or its own error. It is the caller's
 * to close. */
typedef struct waste_batch_end {
    void *tag;
    waste_gen *gen;
    waste_error error;
} waste_batch_end;

/* Works until a generation ends. WASTE_DONE when the batch is empty; WASTE_CANCELLED,
 * and nothing else, concerns the batch as a whole: it is of no more use. */
waste_status waste_batch_next(waste_batch *b, waste_batch_end *out, waste_error *err);
void waste_batch_close(waste_batch *b); /* and what is in it */

/* The k largest logits, largest first, lowest id first among equals, with
 * log-probabilities over all n. `out` has room for k <= n. */
waste_status waste_top(const float *logits, size_t n, size_t k, waste_logprob *out,
                       waste_error *err);

/* ---- conversion -------------------------------------------------------- */

typedef struct waste_convert waste_convert;

typedef struct waste_convert_options {
    int trunk_bits;      /* 4 (0 means 4), 8 or 3 */
    const char *experts; /* "vq3r" (NULL means it), "vq2r", "vq4p" */
    int overwrite;       /* replace a container that is already there */
    waste_cancel cancel;
    /* How the experts are encoded. The result depends on effort and importance, never
     * on threads or the CPU. */
    const char *effort;     /* "default" (NULL means it), "fast": the greedy encoding of
                             * other converters, "best": slower and a little better */
    const char *importance; /* importance file (see calibration below), or NULL; not with
                             * effort "fast" */
    int threads;            /* 0: all processors; 1..256 */
    const char *layers;     /* a trial: trunk and these layers ("1,2" or "3-5"), and no
                             * publication; a whole conversion later goes on from there.
                             * NULL: everything */
    const char *reclaim;    /* "off" (NULL means it); "on": delete every shard of the source
                             * once all in it is converted and on disk; "dry": only say so */
    int plan;               /* say what would happen and write nothing */
} waste_convert_options;

/* Phases: "trunk", "codebooks", "experts"; "layer", three rows that say what the kinds
 * of matrices of a finished layer have lost; "reclaim"; "files"; "proof", which reads
 * the whole container back and generates a token; "manifest", the publication, or
 * "trial" where there is none. With `plan`: "plan", "warning" and "problem", each with
 * a note, and bytes or seconds where it speaks of them. */
typedef struct waste_convert_row {
    const char *phase;    /* static */
    int layer;            /* -1 where none */
    const char *kind;     /* "gate", "up", "down", in a plan what it is about; or NULL */
    uint64_t done, total; /* units of the whole conversion */
    uint64_t bytes;       /* written so far; in a plan and when reclaiming what the note says */
    double seconds;       /* since the start, or what the note says */
    double eta;           /* seconds to go; NaN while unknown */
    double error;         /* ||W - W'|| / ||W|| so far of the trunk, the layer or the kind this
                           * row is about; NaN if none */
    char note[200];       /* a sentence, or empty */
} waste_convert_row;

/* Reads and checks the checkpoint's index; writes nothing yet. */
waste_status waste_convert_open(waste_convert **out, const char *source, const char *target,
                                const waste_convert_options *opt, waste_error *err);
/* Does the next piece of work. WASTE_DONE when the container is published. After an
 * error or a cancel all that was finished stays in the target's directory .convert, and
 * a conversion with the same source and options goes on from there, to the same bytes.
 * WASTE_BUSY when another one is at work in the target. */
waste_status waste_convert_next(waste_convert *c, waste_convert_row *row, waste_error *err);
void waste_convert_close(waste_convert *c);

/* ---- calibration: what the inputs of the experts are like --------------- */

/* The mean square of every input channel of the experts, over texts that a model reads:
 * the importance file that waste_convert_options takes. Usage:
 *
 *     waste_calibration_open(&c, model, &err);
 *     waste_calibration_load(c, "importance.json", &err);     to add to a file
 *     waste_calibration_add(c, ids, n, 0, NULL, &err);        for each text
 *     waste_calibration_text(c, &text, &err);
 *     waste_importance_publish("importance.json", (waste_str){text.text, text.bytes}, NULL, &err);
 *
 * The model may be of the same checkpoint in any format, and others may use it
 * meanwhile. A calibration belongs to one thread at a time and ends before its model. */
typedef struct waste_calibration waste_calibration;

#define WASTE_CALIBRATION_WINDOW 512

/* WASTE_UNSUPPORTED for a model without experts. Its sums count against the budget. */
waste_status waste_calibration_open(waste_calibration **out, waste_model *m, waste_error *err);
/* Adds what the file's means are of. WASTE_ARG names file and list where it does not fit
 * the model, or lacks a layer or the number of tokens. */
waste_status waste_calibration_load(waste_calibration *c, const char *path, waste_error *err);
/* Reads n tokens in windows of at most `window` positions, each a sequence of its own,
 * so that any length of text goes; 0: WASTE_CALIBRATION_WINDOW, or the context if that
 * is less. Ids are checked first. When the work itself fails or is cancelled, the
 * calibration is of no more use: its layers have seen different texts. */
waste_status waste_calibration_add(waste_calibration *c, const int32_t *ids, size_t n,
                                   int64_t window, const waste_cancel *cancel, waste_error *err);
/* Positions that the means are of; while adding, also for the cancel callback. */
uint64_t waste_calibration_tokens(const waste_calibration *c);
/* The file's text; WASTE_ARG before the first token. */
waste_status waste_calibration_text(const waste_calibration *c, waste_text *out, waste_error *err);
void waste_calibration_close(waste_calibration *c);

/* Makes such a text a file, replaced as a whole. A text that is no importance, and a file
 * that is there and holds none, are WASTE_ARG. *tokens gets how many it is of; it may be
 * NULL. */
waste_status waste_importance_publish(const char *path, waste_str text, uint64_t *tokens,
                                      waste_error *err);

/* ---- verification ------------------------------------------------------ */

typedef struct waste_verify waste_verify;

typedef struct waste_verify_row {
    const char *part;  /* "census", "tensor", "codebooks", "record"; static */
    int layer, expert; /* -1 where none */
    const char *name;  /* of a tensor; borrowed */
    int ok;
    /* ||W - W'|| / ||W|| against the source; NaN without one */
    double error, gate, up, down;
    char note[256]; /* what is wrong; for the census what there is */
} waste_verify_row;

/* Reads a container back, everything in it: whether it has what its configuration
 * needs, every tensor, every codebook, header and checksum of every record; and with
 * `source`, the checkpoint it was made of, how far each weight matrix is from it.
 * source may be NULL. What is wrong with the container comes as rows. */
waste_status waste_verify_open(waste_verify **out, const char *path, const char *source,
                               const waste_cancel *cancel, waste_error *err);
/* WASTE_OK and a row; WASTE_DONE after the last. */
waste_status waste_verify_next(waste_verify *v, waste_verify_row *row, waste_error *err);
void waste_verify_close(waste_verify *v);

#ifdef __cplusplus
}
#endif
#endif
