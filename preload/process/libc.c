/* See libc.h. Compiled without link-time optimisation, which does not see definitions made by assembly. */
#include "preload/process/libc.h"

#include <elf.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/auxv.h>

#include "core/base/must.h"
#include "preload/process/dynamic.h"

#define VERSION_HIDDEN 0x8000u /* an old version of the symbol */

#if defined(__x86_64__)
#define LANDING "endbr64\n"
#define JUMP(name) "jmp *libc_table_" #name "(%rip)\n"
#elif defined(__aarch64__)
#define LANDING "bti c\n"
#define JUMP(name)                                  \
    "adrp x16, libc_table_" #name "\n"              \
    "ldr x16, [x16, #:lo12:libc_table_" #name "]\n" \
    "br x16\n"
#else
#error "preload/process/libc.c: only x86-64 and aarch64 are supported"
#endif

/* __real_NAME is the name the linker gives to NAME. Weak: no libc has all of them. */
#define SW_LIBC(name)                                                                              \
    __asm__(".pushsection .text\n"                                                                 \
            ".globl __wrap_" #name "\n"                                                            \
            ".hidden __wrap_" #name "\n"                                                           \
            ".type __wrap_" #name ", %function\n"                                                  \
            ".balign 16\n"                                                                         \
            "__wrap_" #name ":\n"                                                                  \
            ".cfi_startproc\n" LANDING JUMP(name) ".cfi_endproc\n"                                 \
                                                  ".size __wrap_" #name ", . - __wrap_" #name "\n" \
                                                  ".popsection\n"                                  \
                                                  ".pushsection .data\n"                           \
                                                  ".balign 8\n"                                    \
                                                  ".globl libc_table_" #name "\n"                  \
                                                  ".hidden libc_table_" #name "\n"                 \
                                                  ".weak __real_" #name "\n"                       \
                                                  "libc_table_" #name ":\n"                        \
                                                  ".quad __real_" #name "\n"                       \
                                                  ".popsection\n");
#include "preload/process/libc_calls.h"
#undef SW_LIBC

#define SW_LIBC(name) extern void *libc_table_##name;
#include "preload/process/libc_calls.h"
#undef SW_LIBC

static const struct entry {
    const char *name;
    void **at;
} entries[] = {
#define SW_LIBC(name) { #name, &libc_table_##name },
#include "preload/process/libc_calls.h"
#undef SW_LIBC
};

static const struct link_map *map; /* libc */
static uintptr_t low, high;        /* where it lies */

/*
 * ---- the loader's list, and a look-up by hand ----
 *
 * dlsym is not used: others define that name too, it allocates when it fails, and it wants a handle made by dlopen.
 */

static bool same(const char *a, const char *b)
{
    while (*a != '\0' && *a == *b)
        a++, b++;
    return *a == *b;
}

static const struct link_map *loaded(const char *soname)
{
    for (const struct link_map *m = _r_debug.r_map; m != NULL; m = m->l_next) {
        uintptr_t strings = dynamic_value(m->l_ld, DT_STRTAB), name = dynamic_value(m->l_ld, DT_SONAME);
        if (name != 0 && strings >= m->l_addr && same((const char *)strings + name, soname))
            return m;
    }
    return NULL;
}

static uint32_t gnu_hash(const char *name)
{
    uint32_t h = 5381;
    for (; *name != '\0'; name++)
        h = h * 33 + (uint8_t)*name;
    return h;
}

static void *look_up(const struct link_map *m, const char *name);

/* Calls the resolver of a function whose implementation the processor decides. */
static void *chosen(const struct link_map *m, uintptr_t resolver)
{
    struct {
        unsigned long size, hwcap, hwcap2;
    } arg = { sizeof(arg), 0, 0 };
    unsigned long (*aux)(unsigned long);
    void *(*choose)(unsigned long, const void *);
    *(void **)&aux = look_up(m, "getauxval");
    if (aux != NULL) {
        arg.hwcap = aux(AT_HWCAP);
        arg.hwcap2 = aux(AT_HWCAP2);
    }
    *(void **)&choose = (void *)resolver;
    return choose(arg.hwcap | 1ul << 62, &arg); /* (as on aarch64; x86-64's resolvers take no arguments) */
}

/* The default version of a function. NULL: there is none. */
static const ElfW(Sym) * symbol(const struct link_map *m, const char *name)
{
    const uint32_t *head = (const uint32_t *)dynamic_value(m->l_ld, DT_GNU_HASH);
    const ElfW(Sym) *syms = (const ElfW(Sym) *)dynamic_value(m->l_ld, DT_SYMTAB);
    const ElfW(Versym) *versions = (const ElfW(Versym) *)dynamic_value(m->l_ld, DT_VERSYM);
    const char *strings = (const char *)dynamic_value(m->l_ld, DT_STRTAB);
    if (head == NULL || syms == NULL || strings == NULL ||
        strings < (const char *)m->l_addr) /* (the addresses of the vDSO are not relocated) */
        return NULL;
    const uint32_t buckets_n = head[0], first = head[1], bloom_n = head[2];
    const uint32_t *buckets = head + 4 + bloom_n * (sizeof(ElfW(Addr)) / sizeof(uint32_t)),
                   *chain = buckets + buckets_n;
    uint32_t hash = gnu_hash(name), i = buckets[hash % buckets_n];
    if (i < first)
        return NULL;
    for (;; i++) {
        uint32_t h = chain[i - first];
        if ((h | 1) == (hash | 1) && same(strings + syms[i].st_name, name) && syms[i].st_shndx != SHN_UNDEF &&
            (versions == NULL || !(versions[i] & VERSION_HIDDEN)))
            return &syms[i];
        if (h & 1)
            return NULL;
    }
}

static void *look_up(const struct link_map *m, const char *name)
{
    const ElfW(Sym) *s = symbol(m, name);
    if (s == NULL)
        return NULL;
    return ELF64_ST_TYPE(s->st_info) == STT_GNU_IFUNC ? chosen(m, m->l_addr + s->st_value)
                                                      : (void *)(m->l_addr + s->st_value);
}

/* ---- the table ---- */

static void find_range(const struct link_map *m)
{
    const ElfW(Ehdr) *eh = (const ElfW(Ehdr) *)m->l_addr; /* (libc is linked at 0) */
    const ElfW(Phdr) *ph = (const ElfW(Phdr) *)(m->l_addr + eh->e_phoff);
    for (unsigned i = 0; i < eh->e_phnum; i++)
        if (ph[i].p_type == PT_LOAD && m->l_addr + ph[i].p_vaddr + ph[i].p_memsz > high)
            high = m->l_addr + ph[i].p_vaddr + ph[i].p_memsz;
    low = m->l_addr;
}

void libc_init(void)
{
    if (libc_map() != NULL)
        return;
    static const char *const others[] = { "libpthread.so.0", "libdl.so.2" }; /* before glibc 2.34 */
    const struct link_map *m = loaded("libc.so.6");
    if (m == NULL)
        return;
    find_range(m);
    for (size_t i = 0; i < SW_ARRAY_LEN(entries); i++) {
        void *p = look_up(m, entries[i].name);
        for (size_t j = 0; p == NULL && j < SW_ARRAY_LEN(others); j++) {
            const struct link_map *other = loaded(others[j]);
            p = other != NULL ? look_up(other, entries[i].name) : NULL;
        }
        if (p != NULL)
            __atomic_store_n(entries[i].at, p, __ATOMIC_RELAXED);
    }
    __atomic_store_n(&map, m, __ATOMIC_RELEASE);
}

bool libc_has(const void *p)
{
    return (uintptr_t)p >= low && (uintptr_t)p < high;
}

const struct link_map *libc_map(void)
{
    return __atomic_load_n(&map, __ATOMIC_ACQUIRE);
}

bool libc_is_behind_us(const char *name)
{
    const struct link_map *m = _r_debug.r_map;
    while (m != NULL && m->l_ld != _DYNAMIC)
        m = m->l_next;
    for (m = m != NULL ? m->l_next : NULL; m != NULL; m = m->l_next)
        if (symbol(m, name) != NULL)
            return true;
    return false;
}
