/* Memory that connections live in: pieces of one file, which fork shares and another program maps again. */
#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "preload/conn/shmem.h"
#include "preload/process/hidden.h"
#include "tests/unit/preload_world.h"

#define PIECES 40u
#define PAGE 65536u

static void begin(void)
{
    world_init();
}

TestSuite(shmem, .init = begin);

static bool all_are(const uint8_t *p, size_t len, uint8_t octet)
{
    for (size_t i = 0; i < len; i++)
        if (p[i] != octet)
            return false;
    return true;
}

Test(shmem, pieces_are_zero_apart_and_of_one_file)
{
    uint8_t *a = shmem_map(1), *b = shmem_map(PAGE + 1), *c = shmem_map(5);
    cr_assert(a != NULL && b != NULL && c != NULL);
    cr_assert(all_are(b, 2 * PAGE, 0));
    memset(b, 7, 2 * PAGE);
    cr_assert(all_are(a, PAGE, 0));
    cr_assert(all_are(c, PAGE, 0));
    cr_assert(shmem_is_own(a) && shmem_is_own(b));
    cr_assert(!shmem_is_own(begin));
    cr_assert_eq(shmem_fd(a), shmem_fd(c));
    cr_assert(hidden_is(shmem_fd(a)));
}

Test(shmem, what_everybody_is_done_with_is_given_back)
{
    uint8_t *p = shmem_map(PAGE);
    int fd = shmem_fd(p);
    struct stat before, after;
    memset(p, 1, PAGE);
    cr_assert_eq(fstat(fd, &before), 0);
    shmem_unmap(p, PAGE, true);
    cr_assert_eq(fstat(fd, &after), 0);
    cr_assert_lt(after.st_blocks, before.st_blocks);
    uint8_t *q = shmem_map(PAGE);
    cr_assert_neq(q, p, "a place is never used again");
    cr_assert(all_are(q, PAGE, 0));
}

/* Runs fn in a child, which says how it went. */
static int in_child(int (*fn)(void *arg), void *arg)
{
    shmem_before_fork();
    pid_t pid = fork();
    shmem_after_fork(pid == 0);
    if (pid == 0) {
        world_init();
        _exit(fn(arg));
    }
    int status;
    cr_assert_eq(waitpid(pid, &status, 0), pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static int writes(void *arg)
{
    uint8_t *p = shmem_map(PAGE); /* one that the parent does not have */
    if (p == NULL || !all_are(p, PAGE, 0))
        return 1;
    memset(p, 3, PAGE);
    memset(arg, 9, PAGE);
    shmem_unmap(p, PAGE, false);
    return 0;
}

Test(shmem, a_child_has_the_same_and_its_own_lie_elsewhere)
{
    uint8_t *p = shmem_map(PAGE);
    cr_assert_eq(in_child(writes, p), 0);
    cr_assert(all_are(p, PAGE, 9));
    uint8_t *q = shmem_map(PAGE);
    cr_assert(all_are(q, PAGE, 0), "not where the child's lay");
}

/* As another program that was handed the descriptor. */
static int attaches(void *arg)
{
    uint8_t *p = arg;
    int fd = shmem_fd(p);
    munmap(p, PAGE);
    if (shmem_attach(fd, p, PAGE) != 0 || !all_are(p, PAGE, 5))
        return 1;
    if (shmem_attach(fd, p, PAGE) != -EEXIST)
        return 2;
    if (shmem_attach(STDERR_FILENO, p, PAGE) != -EINVAL || shmem_attach(fd, (void *)attaches, PAGE) != -EINVAL)
        return 3;
    memset(p, 6, PAGE);
    return 0;
}

Test(shmem, another_program_maps_it_at_the_same_place)
{
    uint8_t *p = shmem_map(PAGE);
    memset(p, 5, PAGE);
    cr_assert_eq(in_child(attaches, p), 0);
    cr_assert(all_are(p, PAGE, 6));
}

static int holds(void *arg)
{
    uint8_t **made = arg;
    *made = shmem_map(PAGE);
    memset(*made, 4, PAGE);
    return 0;
}

Test(shmem, what_a_killed_process_held_is_given_back)
{
    uint8_t **made = world_shared(sizeof(*made)), *p = shmem_map(1);
    int fd = shmem_fd(p);
    struct stat before, after;
    cr_assert_eq(in_child(holds, made), 0);
    cr_assert_eq(fstat(fd, &before), 0);
    shmem_discard(*made, PAGE);
    cr_assert_eq(fstat(fd, &after), 0);
    cr_assert_lt(after.st_blocks, before.st_blocks);
}

Test(shmem, without_the_descriptor_it_is_shared_by_fork_only)
{
    uint8_t *p = shmem_map(PAGE);
    close(shmem_fd(p)); /* by the program */
    cr_assert_eq(shmem_fd(p), -1);
    uint8_t *q = shmem_map(PAGE);
    cr_assert(q != NULL && shmem_fd(q) < 0 ? !shmem_is_own(q) : shmem_is_own(q));
    memset(p, 1, PAGE); /* what is mapped stays */
}

/* It keeps the second piece, half of it, and nothing else of its parent's. */
static int parts(void *arg)
{
    uint8_t **p = arg;
    int old = shmem_fd(p[0]);
    struct stat before, after;
    if (!shmem_is_shared() || fstat(old, &before) < 0 || shmem_part_begin() < 0)
        return 1;
    uint8_t *to = shmem_part_anew(p[1], 2 * PAGE);
    if (to == NULL)
        return 2;
    shmem_part_copy(to + PAGE / 2, p[1] + PAGE / 2, PAGE);
    shmem_part_end();
    unsigned char there;
    if (shmem_is_shared() || mincore(p[0], 1, &there) == 0 || mincore(p[2], 1, &there) == 0)
        return 3;
    if (!all_are(p[1], PAGE / 2, 0) || !all_are(p[1] + PAGE / 2, PAGE, 2) || !all_are(p[1] + 3 * PAGE / 2, PAGE / 2, 0))
        return 4;
    memset(p[1], 9, 2 * PAGE);
    if (fstat(shmem_fd(p[1]), &after) < 0 || after.st_ino == before.st_ino || !hidden_is(shmem_fd(p[1])))
        return 5;
    uint8_t *q = shmem_map(PAGE);
    if (q == NULL || !shmem_is_own(q) || !all_are(q, PAGE, 0) || shmem_fd(q) != shmem_fd(p[1]))
        return 6;
    memset(q, 9, PAGE);
    return 0;
}

Test(shmem, who_parts_keeps_what_is_its_own_at_the_same_place)
{
    uint8_t *p[3];
    for (int i = 0; i < 3; i++) {
        p[i] = shmem_map(2 * PAGE);
        memset(p[i], i + 1, 2 * PAGE);
    }
    cr_assert(!shmem_is_shared(), "no fork has seen it");
    cr_assert_eq(in_child(parts, p), 0);
    for (int i = 0; i < 3; i++)
        cr_assert(all_are(p[i], 2 * PAGE, (uint8_t)(i + 1)), "the others have what they had: %d", i);
    cr_assert(all_are(shmem_map(PAGE), PAGE, 0));
}

/* It has written here and there, and the kernel has taken the memory away for a while, where it can (with swap). */
static int parts_when_swapped_out(void *arg)
{
    uint8_t *p = arg;
    memset(p + 100, 7, 10);
    memset(p + 2 * PAGE - 1, 8, 2);
    (void)madvise(p, 4 * PAGE, MADV_PAGEOUT);
    if (shmem_part_begin() < 0)
        return 1;
    uint8_t *to = shmem_part_anew(p, 4 * PAGE);
    if (to == NULL)
        return 2;
    shmem_part_copy(to + 105, p + 105, 4 * PAGE - 105);
    shmem_part_end();
    struct stat st;
    if (fstat(shmem_fd(p), &st) < 0 || st.st_blocks * 512 >= 3 * (off_t)PAGE)
        return 3; /* what was never touched takes room */
    return all_are(p, 105, 0) && all_are(p + 105, 5, 7) && all_are(p + 110, 2 * PAGE - 111, 0) &&
                   all_are(p + 2 * PAGE - 1, 2, 8) && all_are(p + 2 * PAGE + 1, 2 * PAGE - 1, 0)
               ? 0
               : 4;
}

Test(shmem, who_parts_keeps_what_was_touched_wherever_it_is)
{
    cr_assert_eq(in_child(parts_when_swapped_out, shmem_map(4 * PAGE)), 0);
}

static int undoes(void *arg)
{
    uint8_t *p = arg;
    int fd = shmem_fd(p);
    if (shmem_part_begin() < 0 || shmem_part_anew(p, PAGE) == NULL)
        return 1;
    shmem_part_undo();
    if (!shmem_is_shared() || shmem_fd(p) != fd || !all_are(p, PAGE, 5))
        return 2;
    memset(p, 6, PAGE);
    return 0;
}

Test(shmem, who_does_not_part_after_all_has_what_it_had)
{
    uint8_t *p = shmem_map(PAGE);
    memset(p, 5, PAGE);
    cr_assert_eq(in_child(undoes, p), 0);
    cr_assert(all_are(p, PAGE, 6));
}

Test(shmem, nobody_makes_the_file_longer_or_shorter)
{
    int fd = shmem_fd(shmem_map(1));
    cr_assert(ftruncate(fd, 0) < 0 && errno == EPERM);
    cr_assert(ftruncate(fd, (off_t)1 << 50) < 0 && errno == EPERM);
}

/* What the model knows of a piece. */
struct piece {
    uint8_t *at;
    size_t len;
    uint8_t octet;
};

Test(shmem, as_the_model_says, .timeout = 120)
{
    struct piece pieces[PIECES] = { 0 };
    uint64_t seed = 13;
    for (unsigned step = 0; step < 3000; step++) {
        struct piece *p = &pieces[world_random(&seed, PIECES)];
        if (p->at == NULL) {
            *p = (struct piece){ .len = 1 + world_random(&seed, 3 * PAGE), .octet = (uint8_t)step };
            p->at = shmem_map(p->len);
            cr_assert(p->at != NULL && all_are(p->at, p->len, 0), "step %u", step);
            memset(p->at, p->octet, p->len);
        } else {
            cr_assert(all_are(p->at, p->len, p->octet), "step %u", step);
            shmem_unmap(p->at, p->len, world_random(&seed, 2));
            p->at = NULL;
        }
    }
}
