/*
 * Steering tags: RFC 5041 section 7.1, tagged items 1 to 5, exact to the octet.
 */
#include "core/ddp/stag.h"

#include <criterion/criterion.h>
#include <errno.h>

static uint8_t memory[4096];
static const struct ddp_stream me = { 0 };

/* Gives the values of an array, one after the other. */
static uint32_t next_of(void *arg)
{
    const uint32_t **p = arg;

    return *(*p)++;
}

static uint32_t add(struct ddp_stags *t, uint32_t stag, uint64_t to, uint64_t len, uint8_t access)
{
    const uint32_t values[] = { stag, 0 }, *p = values;
    struct ddp_region r = { .access = access, .to = to, .len = len, .base = memory };

    cr_assert_eq(ddp_stags_add(t, &r, next_of, &p), 0);
    return r.stag;
}

/* RFC 5040 8.1.1 items 3 and 4, RFC 5041 8.3 item 1, RFC 5041 8.3.1 item 4, RFC 5042 6.2.1/1: the range the ULP gave */
/* RFC 5041 7.1 tagged 3 and 4: the TO, and TO plus length, fall in the range */
/* RFC 5041 7.1 tagged 5: the sum does not wrap */
Test(ddp_stag, bounds_are_exact_to_the_octet)
{
    static const struct {
        uint64_t to, len;
        int want;
    } rows[] = {
        { 1000, 1, DDP_TAGGED_OK },
        { 1000, 100, DDP_TAGGED_OK },
        { 1099, 1, DDP_TAGGED_OK },
        { 1000, 101, DDP_TAGGED_BOUNDS },
        { 1099, 2, DDP_TAGGED_BOUNDS },
        { 1100, 1, DDP_TAGGED_BOUNDS },
        { 1101, 1, DDP_TAGGED_BOUNDS },
        { 1102, 3, DDP_TAGGED_BOUNDS },
        { 999, 1, DDP_TAGGED_BOUNDS },
        { 999, 100, DDP_TAGGED_BOUNDS },
        { 0, 1, DDP_TAGGED_BOUNDS },
        { UINT64_MAX, 1, DDP_TAGGED_TO_WRAP },
        { UINT64_MAX - 9, 10, DDP_TAGGED_TO_WRAP },
        { UINT64_MAX - 10, 10, DDP_TAGGED_BOUNDS },
        { UINT64_MAX - 500, 1600, DDP_TAGGED_TO_WRAP },
        { 1000, UINT64_MAX, DDP_TAGGED_TO_WRAP },
        { 1000, UINT64_MAX - 1000, DDP_TAGGED_BOUNDS },
    };
    struct ddp_stags t;
    struct ddp_region *r;
    bool rights;

    ddp_stags_init(&t);
    add(&t, 7, 1000, 100, DDP_ACCESS_REMOTE_WRITE);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        int got = ddp_stags_check(&t, &me, 7, rows[i].to, rows[i].len, DDP_ACCESS_REMOTE_WRITE, &r, &rights);

        cr_expect_eq(got, rows[i].want, "row %zu: got %d", i, got);
        cr_expect(!rights, "row %zu", i);
        cr_expect_eq(r != NULL, got == DDP_TAGGED_OK, "row %zu", i);
    }
}

Test(ddp_stag, region_may_end_at_the_highest_offset_but_not_wrap)
{
    struct ddp_region r = { .access = DDP_ACCESS_REMOTE_WRITE, .len = 16, .base = memory };
    const uint32_t values[] = { 1, 2, 3 }, *p = values;
    struct ddp_stags t;
    struct ddp_region *out;
    bool rights;

    ddp_stags_init(&t);
    r.to = UINT64_MAX - 15;
    cr_expect_eq(ddp_stags_add(&t, &r, next_of, &p), -EINVAL);
    r.to = UINT64_MAX - 16;
    cr_assert_eq(ddp_stags_add(&t, &r, next_of, &p), 0);
    cr_expect_eq(ddp_stags_check(&t, &me, r.stag, UINT64_MAX - 1, 1, DDP_ACCESS_REMOTE_WRITE, &out, &rights),
                 DDP_TAGGED_OK);
    r.len = 0;
    cr_expect_eq(ddp_stags_add(&t, &r, next_of, &p), -EINVAL);
    r.len = 1;
    r.to = 0;
    r.base = NULL;
    cr_expect_eq(ddp_stags_add(&t, &r, next_of, &p), -EINVAL);
}

/* RFC 5041 7.1 tagged 1: the STag is valid */
/* RFC 5041 4.2/6, RFC 5041 8.3 items 1 and 2, RFC 5041 8.3.1 items 4 and 6: what was revoked is not valid */
Test(ddp_stag, unknown_zero_and_revoked_tags_are_invalid)
{
    struct ddp_stags t;
    struct ddp_region *r;
    bool rights;

    ddp_stags_init(&t);
    cr_expect_eq(ddp_stags_check(&t, &me, 0, 0, 1, 0, &r, &rights), DDP_TAGGED_INVALID_STAG);
    add(&t, 7, 0, 100, DDP_ACCESS_REMOTE_WRITE);
    cr_expect_eq(ddp_stags_check(&t, &me, 0, 0, 1, DDP_ACCESS_REMOTE_WRITE, &r, &rights), DDP_TAGGED_INVALID_STAG);
    cr_expect_eq(ddp_stags_check(&t, &me, 8, 0, 1, DDP_ACCESS_REMOTE_WRITE, &r, &rights), DDP_TAGGED_INVALID_STAG);
    cr_expect_eq(ddp_stags_revoke(&t, 8), -ENOENT);
    cr_expect_eq(ddp_stags_revoke(&t, 0), -ENOENT);
    cr_expect_eq(ddp_stags_revoke(&t, 7), 0);
    cr_expect_eq(ddp_stags_revoke(&t, 7), -ENOENT);
    cr_expect_eq(ddp_stags_check(&t, &me, 7, 0, 1, DDP_ACCESS_REMOTE_WRITE, &r, &rights), DDP_TAGGED_INVALID_STAG);
    cr_expect(!rights);
}

/* RFC 5040 8.1.1 item 5, RFC 5041 8.3.1 item 5: rights to read, write, or both */
/* RFC 5041 7.1 tagged 2: the buffer allows the placement */
Test(ddp_stag, rights_are_told_apart_only_when_all_else_is_well)
{
    struct ddp_stags t;
    struct ddp_region *r;
    bool rights;

    ddp_stags_init(&t);
    add(&t, 7, 0, 100, DDP_ACCESS_REMOTE_READ);
    cr_expect_eq(ddp_stags_check(&t, &me, 7, 0, 100, DDP_ACCESS_REMOTE_READ, &r, &rights), DDP_TAGGED_OK);
    cr_expect_neq(ddp_stags_check(&t, &me, 7, 0, 100, DDP_ACCESS_REMOTE_WRITE, &r, &rights), DDP_TAGGED_OK);
    cr_expect(rights);
    cr_expect_eq(ddp_stags_check(&t, &me, 7, 0, 101, DDP_ACCESS_REMOTE_WRITE, &r, &rights), DDP_TAGGED_BOUNDS);
    cr_expect(!rights);
}

Test(ddp_stag, tags_are_never_zero_nor_given_out_twice_and_the_table_is_bounded)
{
    const uint32_t values[] = { 0, 5, 5, 0, 6, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14 }, *p = values;
    struct ddp_region r = { .access = DDP_ACCESS_REMOTE_WRITE, .len = 1, .base = memory };
    struct ddp_stags t;

    ddp_stags_init(&t);
    for (unsigned i = 0; i < DDP_STAG_MAX; i++) {
        cr_assert_eq(ddp_stags_add(&t, &r, next_of, &p), 0);
        cr_expect_eq(r.stag, 5 + i);
    }
    cr_expect_eq(ddp_stags_add(&t, &r, next_of, &p), -ENOSPC);
    cr_assert_eq(ddp_stags_revoke(&t, 6), 0);
    cr_expect_eq(ddp_stags_add(&t, &r, next_of, &p), 0);
    cr_expect_eq(r.stag, 13);
}

/*
 * RFC 5041 4.2/6, RFC 5041 8.2/1-4, RFC 5041 8.3.1 items 1 and 2, RFC 5042 6.1.1/1-3: Protection Domain association
 * and DDP Stream association
 */
Test(ddp_stag, a_region_is_reached_by_the_streams_it_belongs_to_and_no_other)
{
    static const struct {
        struct ddp_stream of, who;
        int want;
    } rows[] = {
        { { 1, 0 }, { 1, 10 }, DDP_TAGGED_OK }, /* the domain's: all its streams */
        { { 1, 0 }, { 1, 11 }, DDP_TAGGED_OK },
        { { 1, 0 }, { 2, 10 }, DDP_TAGGED_NOT_ASSOCIATED },
        { { 1, 10 }, { 1, 10 }, DDP_TAGGED_OK }, /* one stream's */
        { { 1, 10 }, { 1, 11 }, DDP_TAGGED_NOT_ASSOCIATED },
        { { 1, 10 }, { 2, 10 }, DDP_TAGGED_NOT_ASSOCIATED },
        { { 0, 10 }, { 0, 0 }, DDP_TAGGED_NOT_ASSOCIATED },
    };

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const uint32_t values[] = { 7 }, *p = values;
        struct ddp_region r = { .of = rows[i].of, .access = DDP_ACCESS_REMOTE_WRITE, .len = 10, .base = memory };
        struct ddp_region *out;
        struct ddp_stags t;
        bool rights;
        int got;

        ddp_stags_init(&t);
        cr_assert_eq(ddp_stags_add(&t, &r, next_of, &p), 0);
        got = ddp_stags_check(&t, &rows[i].who, 7, 0, 10, DDP_ACCESS_REMOTE_WRITE, &out, &rights);
        cr_expect_eq(got, rows[i].want, "row %zu: got %d", i, got);
        /* What is not its own, a stream learns nothing about: neither bounds nor rights. */
        if (got == DDP_TAGGED_NOT_ASSOCIATED) {
            cr_expect_eq(ddp_stags_check(&t, &rows[i].who, 7, 100, 10, DDP_ACCESS_REMOTE_WRITE, &out, &rights),
                         DDP_TAGGED_NOT_ASSOCIATED, "row %zu", i);
            cr_expect_eq(ddp_stags_check(&t, &rows[i].who, 7, 0, 10, DDP_ACCESS_REMOTE_READ, &out, &rights),
                         DDP_TAGGED_NOT_ASSOCIATED, "row %zu", i);
            cr_expect(!rights, "row %zu", i);
        }
    }
}

/* RFC 5040 8.1.1 item 8/1,2: hard to predict, over the full range */
Test(ddp_stag, tags_are_what_the_source_of_chance_gives_all_32_bits_of_it)
{
    static const uint32_t given[] = { 0xffffffff, 0x80000000, 1, 0x7fffff00 };
    const uint32_t *p = given;
    struct ddp_region r = { .access = DDP_ACCESS_REMOTE_WRITE, .len = 1, .base = memory };
    struct ddp_stags t;

    ddp_stags_init(&t);
    for (size_t i = 0; i < sizeof(given) / sizeof(given[0]); i++) {
        cr_assert_eq(ddp_stags_add(&t, &r, next_of, &p), 0);
        cr_expect_eq(r.stag, given[i]);
    }
}
