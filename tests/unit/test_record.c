/* store/record: geometry against the published figures, header checks. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "store/record.h"

static const waste_quant vq3r = {3, 8, 256, 64, 8, 3};
static const waste_quant vq2r = {2, 8, 256, 64, 8, 2};
static const waste_quant vq4p = {4, 8, 64, 64, 6, 3};

static void layout_is_that_of_the_real_models(void **state)
{
    static const struct {
        const waste_quant *q;
        int64_t width, input;
        waste_record_layout want;
    } rows[] = {
        {&vq3r, 3072, 3584, {48, 4128816, 8257584, 12386352, 12405808, 12406784}},
        {&vq4p, 3072, 3584, {48, 4128816, 8257584, 12386352, 12405808, 12406784}},
        {&vq3r, 1024, 2304, {48, 884784, 1769520, 2654256, 2662960, 2666496}},
        {&vq3r, 2048, 7168, {48, 5505072, 11010096, 16515120, 16537648, 16539648}},
        {&vq2r, 1024, 2304, {48, 589872, 1179696, 1769520, 1778224, 1781760}},
    };
    size_t i;
    (void)state;
    for (i = 0; i < sizeof rows / sizeof *rows; i++) {
        waste_record_layout l;
        waste_record_layout_of(&l, rows[i].q, rows[i].width, rows[i].input);
        assert_memory_equal(&l, &rows[i].want, sizeof l);
    }
}

static void partial_blocks_are_whole_and_unblocked_ones_are_not(void **state)
{
    waste_quant plain = vq3r;
    waste_record_layout l;
    (void)state;
    plain.index_block = 0;
    waste_record_layout_of(&l, &vq3r, 72, 88);
    assert_int_equal(l.up_off, 48 + 128 * 11 * 3);
    assert_int_equal(l.scale_off, 48 + 2 * 128 * 11 * 3 + 128 * 9 * 3);
    waste_record_layout_of(&l, &plain, 72, 88);
    assert_int_equal(l.up_off, 48 + 72 * 11 * 3);
    assert_int_equal(l.scale_off, 48 + 2 * 72 * 11 * 3 + 88 * 9 * 3);
    assert_int_equal(l.scale_end, l.scale_off + 2 * (2 * 72 + 88));
}

static void index_position_follows_the_blocks(void **state)
{
    waste_quant plain = vq3r;
    (void)state;
    plain.index_block = 0;
    assert_int_equal(waste_record_index_pos(&vq3r, 448, 70, 5) + 1, 86995);
    assert_int_equal(waste_record_index_pos(&vq4p, 448, 63, 0), 63 * 3);
    assert_int_equal(waste_record_index_pos(&plain, 448, 70, 5), (70 * 448 + 5) * 3);
}

/* docs/format.md 5.1: K3, layer 5, expert 412, codebook base 36. */
static const unsigned char example[48] = {
    0x57, 0x45, 0x58, 0x50, 0x05, 0x00, 0x9c, 0x01, 0x04, 0x00, 0x24, 0x00, 0x00, 0x00, 0x00, 0x00,
    0xd5, 0x0b, 0x00, 0x00, 0x30, 0x00, 0x00, 0x00, 0x30, 0x00, 0x3f, 0x00, 0x30, 0x00, 0x7e, 0x00,
    0x30, 0x00, 0xbd, 0x00, 0xef, 0xbe, 0xad, 0xde, 0,    0,    0,    0,    0,    0,    0,    0};

static waste_status check(const waste_record_header *h, const waste_quant *q, waste_error *e)
{
    waste_record_layout l;

    memset(e, 0, sizeof *e);
    waste_record_layout_of(&l, q, 3072, 3584);
    return waste_record_check(h, &l, q, 5, 412, 36, l.bytes, "some.bin", e);
}

static void sound_header_passes(void **state)
{
    waste_record_header h;
    waste_error e;
    (void)state;
    memcpy(&h, example, sizeof h);
    assert_int_equal(h.crc32, 0xDEADBEEF);
    assert_int_equal(check(&h, &vq3r, &e), WASTE_OK);
    h.fmt = WASTE_FMT_VQ2R;
    h.flags = 7;
    assert_int_equal(check(&h, &vq3r, &e), WASTE_OK);
    h.fmt = WASTE_FMT_VQ4P;
    assert_int_equal(check(&h, &vq4p, &e), WASTE_OK);
}

static void every_field_is_compared_exactly(void **state)
{
    static const struct {
        int at;
        const char *name;
    } fields[] = {{0, "magic"},        {4, "layer"},       {6, "expert_id"},      {8, "fmt"},
                  {10, "codebook_id"}, {12, "lowrank_id"}, {16, "rec_4k_blocks"}, {20, "gate_off"},
                  {24, "up_off"},      {28, "down_off"},   {32, "scale_off"}};
    size_t i;
    (void)state;
    for (i = 0; i < sizeof fields / sizeof *fields; i++) {
        waste_record_header h;
        waste_error e;
        unsigned char b[48];
        memcpy(b, example, sizeof b);
        b[fields[i].at] ^= 2;
        memcpy(&h, b, sizeof h);
        assert_int_equal(check(&h, &vq3r, &e), WASTE_IO);
        assert_non_null(strstr(e.text, fields[i].name));
        assert_non_null(strstr(e.text, "some.bin: layer 5, expert 412"));
    }
}

/* Both have the same size: only fmt tells them apart. */
static void packing_of_the_other_kind_is_refused(void **state)
{
    waste_record_header h;
    waste_error e;
    (void)state;
    memcpy(&h, example, sizeof h);
    assert_int_equal(check(&h, &vq4p, &e), WASTE_IO);
    assert_non_null(strstr(e.text, "fmt 4"));
    h.fmt = WASTE_FMT_VQ4P;
    assert_int_equal(check(&h, &vq3r, &e), WASTE_IO);
    assert_non_null(strstr(e.text, "fmt 8"));
}

/* crc32("123456789") as the payload of a record without anything else. */
static void crc_covers_payload_and_scales(void **state)
{
    char record[64] = {0};
    waste_record_layout l = {48, 50, 52, 54, 57, 4096};
    (void)state;
    memcpy(record + 48, "123456789", 9);
    assert_int_equal(waste_record_crc(record, &l), 0xCBF43926);
    record[57] = 1;
    record[0] = 1;
    assert_int_equal(waste_record_crc(record, &l), 0xCBF43926);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(layout_is_that_of_the_real_models),
        cmocka_unit_test(partial_blocks_are_whole_and_unblocked_ones_are_not),
        cmocka_unit_test(index_position_follows_the_blocks),
        cmocka_unit_test(sound_header_passes),
        cmocka_unit_test(every_field_is_compared_exactly),
        cmocka_unit_test(packing_of_the_other_kind_is_refused),
        cmocka_unit_test(crc_covers_payload_and_scales),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
