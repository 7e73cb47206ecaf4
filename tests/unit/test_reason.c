/* Reason codes: the numbers travel in HelloNak, so their meaning is pinned here. */
#include <criterion/criterion.h>
#include <string.h>

#include "core/base/must.h"
#include "core/base/reason.h"

static const struct {
    unsigned num;
    const char *name;
} pinned[] = {
    { 0, "none" },           { 1, "upgraded" },        { 2, "policy-off" },
    { 3, "no-local-shim" },  { 4, "cached-plain" },    { 5, "self" },
    { 6, "hello-timeout" },  { 7, "hello-garbage" },   { 8, "hello-closed" },
    { 9, "hello-nak" },      { 10, "peer-plain" },     { 11, "spoke-first" },
    { 12, "mpa-failed" },    { 13, "mpa-rejected" },   { 14, "std-fd" },
    { 15, "shared-fd" },     { 16, "fastopen" },       { 17, "zerocopy" },
    { 18, "tcp-ulp" },       { 19, "mptcp" },          { 20, "own-io-uring" },
    { 21, "epoll-kind" },    { 22, "urgent" },         { 23, "no-memory" },
    { 24, "no-transport" },  { 25, "not-connected" },  { 26, "stdio" },
    { 27, "exec" },          { 28, "peer-limit" },     { 29, "off" },
    { 30, "closed" },        { 31, "withdrawn" },      { 32, "sandbox" },
    { 33, "device-none" },   { 34, "device-address" }, { 35, "device-peer" },
    { 36, "device-failed" }, { 37, "device-timeout" }, { 38, "device-forked" },
    { 39, "device-memory" }, { 40, "device-kind" },    { 41, "timestamps" },
    { 42, "version" },       { 43, "unmarked" },       { 44, "defer-accept" },
    { 45, "delayed-ack" },   { 46, "backlog-full" },   { 47, "socket-filter" },
};

Test(reason, numbers_on_the_wire_never_change_meaning)
{
    for (size_t i = 0; i < SW_ARRAY_LEN(pinned); i++)
        cr_expect_str_eq(reason_name(pinned[i].num), pinned[i].name, "%u", pinned[i].num);
}

Test(reason, names_are_unique_words_and_texts_are_given)
{
    static const char *const names[] = {
#define X(sym, num, name, text) name,
        REASON_LIST(X)
#undef X
    };
    static const unsigned nums[] = {
#define X(sym, num, name, text) num,
        REASON_LIST(X)
#undef X
    };

    for (size_t i = 0; i < SW_ARRAY_LEN(names); i++) {
        cr_expect_eq(strspn(names[i], "abcdefghijklmnopqrstuvwxyz-"), strlen(names[i]), "%s", names[i]);
        cr_expect_str_eq(reason_name(nums[i]), names[i]);
        cr_expect_gt(strlen(reason_text(nums[i])), 3u);
        for (size_t j = 0; j < i; j++)
            cr_expect_str_neq(names[i], names[j]);
    }
}

Test(reason, unknown_numbers_from_a_peer_have_a_name)
{
    cr_expect_str_eq(reason_name(31337), "unknown");
    cr_expect_str_eq(reason_name(0xffffffffu), "unknown");
    cr_expect_neq(reason_text(0xffffffffu), NULL);
}
