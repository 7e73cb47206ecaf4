/*
 * dlsym, dlvsym, dlopen, dlmopen: a caller that asks for libc's function of a name that we intercept gets ours.
 *
 * Foreign function interfaces ask libc's handle, and plug-ins that are loaded with RTLD_DEEPBIND find libc before us:
 * they would see the frames of an upgraded connection. A library that intercepts the same calls behind us in the chain
 * asks for the next one, which must not be ours: where there is such a library, the dynamic linker's answer stands.
 *
 * The dynamic linker looks at the address these calls return to, to know which object asks. So the entries are written
 * in assembly, and jump there.
 */
#include <dlfcn.h>
#include <fcntl.h>
#include <link.h>
#include <poll.h>
#include <stdint.h>
#include <string.h>

#include "preload/process/libc.h"
#include "preload/process/proc.h"
#include "preload/process/real.h"

#define SW_CALL(ret, name, params, args) extern ret(name) params; /* (clang's fortified dprintf is a macro) */
#include "preload/process/calls.h"
#undef SW_CALL

#define HIDDEN __attribute__((visibility("hidden"), used))

/* libc's (preload/process/libc.h); the linker renames no calls in the file that defines such a function. */
extern void *libc_dlsym(void *handle, const char *name) __asm__("__wrap_dlsym");
extern void *libc_dlvsym(void *handle, const char *name, const char *version) __asm__("__wrap_dlvsym");

/* The calls behind us; for the assembly below. */
HIDDEN void *dl_next_dlsym, *dl_next_dlvsym, *dl_next_dlopen, *dl_next_dlmopen;

HIDDEN void *dl_answer(void *handle, const char *name, const char *version, const void *caller);
HIDDEN int dl_mode(int mode);

#if defined(__x86_64__)
/* The arguments are kept; what is said of the frame is for unwinders. */
#define ENTRY(name, body)                                                                                \
    __asm__(".pushsection .text\n.globl " #name "\n.type " #name ", %function\n.balign 16\n" #name ":\n" \
            ".cfi_startproc\nendbr64\n" body ".cfi_endproc\n.size " #name ", . - " #name "\n.popsection\n");
#define ASK(version, caller, next)                                            \
    "push %rdi\n.cfi_adjust_cfa_offset 8\n"                                   \
    "push %rsi\n.cfi_adjust_cfa_offset 8\n"                                   \
    "push %rdx\n.cfi_adjust_cfa_offset 8\n" version caller "call dl_answer\n" \
    "pop %rdx\n.cfi_adjust_cfa_offset -8\n"                                   \
    "pop %rsi\n.cfi_adjust_cfa_offset -8\n"                                   \
    "pop %rdi\n.cfi_adjust_cfa_offset -8\n"                                   \
    "test %rax, %rax\njz 1f\nret\n1: jmp *" next "(%rip)\n"
ENTRY(dlsym, ASK("xor %edx, %edx\n", "mov 24(%rsp), %rcx\n", "dl_next_dlsym"))
ENTRY(dlvsym, ASK("", "mov 24(%rsp), %rcx\n", "dl_next_dlvsym"))
#define MODE(reg, next)                                                          \
    "push %rdi\n.cfi_adjust_cfa_offset 8\npush %rsi\n.cfi_adjust_cfa_offset 8\n" \
    "push %rdx\n.cfi_adjust_cfa_offset 8\nmov %" reg ", %edi\ncall dl_mode\n"    \
    "pop %rdx\n.cfi_adjust_cfa_offset -8\npop %rsi\n.cfi_adjust_cfa_offset -8\n" \
    "pop %rdi\n.cfi_adjust_cfa_offset -8\nmov %eax, %" reg "\njmp *" next "(%rip)\n"
ENTRY(dlopen, MODE("esi", "dl_next_dlopen"))
ENTRY(dlmopen, MODE("edx", "dl_next_dlmopen"))
#elif defined(__aarch64__)
#define ENTRY(name, body)                                                                                \
    __asm__(".pushsection .text\n.globl " #name "\n.type " #name ", %function\n.balign 16\n" #name ":\n" \
            ".cfi_startproc\nbti c\n" body ".cfi_endproc\n.size " #name ", . - " #name "\n.popsection\n");
#define KEEP                                                                                        \
    "stp x29, x30, [sp, #-48]!\n.cfi_def_cfa_offset 48\n.cfi_offset 29, -48\n.cfi_offset 30, -40\n" \
    "stp x0, x1, [sp, #16]\nstr x2, [sp, #32]\n"
#define GIVE                                                              \
    "ldr x2, [sp, #32]\nldp x0, x1, [sp, #16]\nldp x29, x30, [sp], #48\n" \
    ".cfi_restore 29\n.cfi_restore 30\n.cfi_def_cfa_offset 0\n"
#define JUMP(next) "adrp x17, " next "\nldr x17, [x17, #:lo12:" next "]\nbr x17\n"
#define ASK(version, next) \
    KEEP version "mov x3, x30\nbl dl_answer\nmov x16, x0\n" GIVE "cbz x16, 1f\nmov x0, x16\nret\n1:\n" JUMP(next)
ENTRY(dlsym, ASK("mov x2, xzr\n", "dl_next_dlsym"))
ENTRY(dlvsym, ASK("", "dl_next_dlvsym"))
#define MODE(reg, next) KEEP "mov w0, " reg "\nbl dl_mode\nmov w16, w0\n" GIVE "mov " reg ", w16\n" JUMP(next)
ENTRY(dlopen, MODE("w1", "dl_next_dlopen"))
ENTRY(dlmopen, MODE("w2", "dl_next_dlmopen"))
#else
#error "preload/calls/dl.c: only x86-64 and aarch64 are supported"
#endif

/* (A thread that is just in there uses the values that libc_init has found.) */
static void know_next(void)
{
    const struct real_calls *r = real_get();
    if (__atomic_load_n(&dl_next_dlsym, __ATOMIC_ACQUIRE) != NULL)
        return;
    *(void **)&dl_next_dlvsym = *(void *const *)&r->dlvsym;
    *(void **)&dl_next_dlopen = *(void *const *)&r->dlopen;
    *(void **)&dl_next_dlmopen = *(void *const *)&r->dlmopen;
    __atomic_store_n(&dl_next_dlsym, *(void *const *)&r->dlsym, __ATOMIC_RELEASE);
}

/* ---- which of ours ---- */

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
static const struct own {
    const char *name;
    void *ours;
    void *const *real;
} owns[] = {
#define SW_CALL(ret, name, params, args) { #name, (void *)(uintptr_t)name, (void *const *)&real_calls.name },
#include "preload/process/calls.h"
#undef SW_CALL
};
#pragma GCC diagnostic pop

static const struct own *own_of(const char *name)
{
    for (size_t i = 0; i < sizeof(owns) / sizeof(owns[0]); i++)
        if (strcmp(owns[i].name, name) == 0)
            return &owns[i];
    return NULL;
}

static const struct link_map *map_of(const void *p)
{
    Dl_info info;
    struct link_map *m = NULL;
    return dladdr1(p, &info, (void **)&m, RTLD_DL_LINKMAP) != 0 ? m : NULL;
}

/*
 * Does it stand behind us in the order of look-up, so that the next one from there is libc's? (Those before us were
 * there at the program's start, and stay. Another namespace has a libc of its own.)
 */
static bool is_behind_us(const void *caller)
{
    const struct link_map *m = map_of(caller), *before = map_of((const void *)(uintptr_t)dl_mode);
    Lmid_t space;
    if (m == NULL || before == NULL || dlinfo((void *)(uintptr_t)m, RTLD_DI_LMID, &space) != 0 || space != LM_ID_BASE)
        return false;
    for (; before != NULL; before = before->l_prev)
        if (before == m)
            return false;
    return true;
}

/* Our function, or NULL: the dynamic linker's answer stands. */
void *dl_answer(void *handle, const char *name, const char *version, const void *caller)
{
    know_next();
    const struct own *o = own_of(name);
    if (o == NULL || handle == RTLD_DEFAULT || !libc_has(*o->real))
        return NULL;
    if (handle == RTLD_NEXT)
        return is_behind_us(caller) ? o->ours : NULL;
    void *p = version != NULL ? libc_dlvsym(handle, name, version) : libc_dlsym(handle, name);
    return p != NULL && libc_has(p) ? o->ours : NULL;
}

/* A plug-in that finds its own libraries first finds libc before us. */
int dl_mode(int mode)
{
    know_next();
    return proc_ready == 2 && !proc.on ? mode : mode & ~RTLD_DEEPBIND;
}
