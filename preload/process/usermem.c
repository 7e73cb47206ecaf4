/*
 * Looking at the program's memory.
 */
#include "preload/process/usermem.h"

#include <stdint.h>

#include "preload/process/signals.h"

#define PAGE_MIN 4096u /* larger pages are touched more than once */

/*
 * Both return 0, or 1 if the access has faulted. touch_write writes back what is there: it is called before bytes are
 * written there anyway.
 */
int usermem_touch_read(const void *p);
int usermem_touch_write(void *p);
extern const char usermem_touch_end[], usermem_touch_bad[];

#if defined(__x86_64__)
__asm__(".pushsection .text\n"
        ".hidden usermem_touch_read, usermem_touch_write, usermem_touch_end, usermem_touch_bad\n"
        ".globl usermem_touch_read, usermem_touch_write, usermem_touch_end, usermem_touch_bad\n"
        ".type usermem_touch_read, @function\n"
        ".type usermem_touch_write, @function\n"
        "usermem_touch_read:\n"
        "    .cfi_startproc\n"
        "    movzbl (%rdi), %eax\n"
        "    xorl %eax, %eax\n"
        "    ret\n"
        "    .cfi_endproc\n"
        "usermem_touch_write:\n"
        "    .cfi_startproc\n"
        "    orb $0, (%rdi)\n"
        "    xorl %eax, %eax\n"
        "    ret\n"
        "usermem_touch_end:\n"
        "usermem_touch_bad:\n"
        "    movl $1, %eax\n"
        "    ret\n"
        "    .cfi_endproc\n"
        ".popsection\n");
#elif defined(__aarch64__)
__asm__(".pushsection .text\n"
        ".hidden usermem_touch_read, usermem_touch_write, usermem_touch_end, usermem_touch_bad\n"
        ".globl usermem_touch_read, usermem_touch_write, usermem_touch_end, usermem_touch_bad\n"
        ".type usermem_touch_read, %function\n"
        ".type usermem_touch_write, %function\n"
        ".balign 4\n"
        "usermem_touch_read:\n"
        "    .cfi_startproc\n"
        "    ldrb w1, [x0]\n"
        "    mov w0, #0\n"
        "    ret\n"
        "    .cfi_endproc\n"
        "usermem_touch_write:\n"
        "    .cfi_startproc\n"
        "    ldrb w1, [x0]\n"
        "    strb w1, [x0]\n"
        "    mov w0, #0\n"
        "    ret\n"
        "usermem_touch_end:\n"
        "usermem_touch_bad:\n"
        "    mov w0, #1\n"
        "    ret\n"
        "    .cfi_endproc\n"
        ".popsection\n");
#else
#error "preload/process/usermem.c: only x86-64 and aarch64 are supported"
#endif

uintptr_t usermem_fault(uintptr_t pc)
{
    return pc >= (uintptr_t)usermem_touch_read && pc < (uintptr_t)usermem_touch_end ? (uintptr_t)usermem_touch_bad : 0;
}

struct piece {
    size_t touch, len;
};

/*
 * The bytes at `at` that are in one page, and which of them to touch. It is a different place in each page, because
 * equal offsets share few cache lines.
 */
static inline struct piece piece_of(uintptr_t at, size_t len)
{
    struct piece p = { .touch = 0, .len = PAGE_MIN - at % PAGE_MIN };
    if (p.len > len)
        p.len = len;
    if (p.len == PAGE_MIN)
        p.touch = at / PAGE_MIN * 64 % PAGE_MIN;
    return p;
}

size_t usermem_read(const void *p, size_t len)
{
    signals_guard();
    for (size_t done = 0; done < len;) {
        struct piece next = piece_of((uintptr_t)p + done, len - done);
        if (SW_UNLIKELY(usermem_touch_read((const uint8_t *)p + done + next.touch)))
            return done;
        done += next.len;
    }
    return len;
}

size_t usermem_write(void *p, size_t len)
{
    signals_guard();
    for (size_t done = 0; done < len;) {
        struct piece next = piece_of((uintptr_t)p + done, len - done);
        if (SW_UNLIKELY(usermem_touch_write((uint8_t *)p + done + next.touch)))
            return done;
        done += next.len;
    }
    return len;
}

static size_t usermem_iter(const struct iov_iter *from, size_t len, bool write)
{
    struct iov_iter it = *from;
    size_t done = 0;
    void *p;
    for (size_t n; done < len && (n = iov_iter_next(&it, len - done, &p)) > 0;) {
        size_t good = write ? usermem_write(p, n) : usermem_read(p, n);
        done += good;
        if (good < n)
            break;
    }
    return done;
}

size_t usermem_iter_read(const struct iov_iter *it, size_t len)
{
    return usermem_iter(it, len, false);
}

size_t usermem_iter_write(const struct iov_iter *it, size_t len)
{
    return usermem_iter(it, len, true);
}
