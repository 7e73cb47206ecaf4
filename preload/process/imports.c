/* See imports.h. */
#include "preload/process/imports.h"

#include <elf.h>
#include <link.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "preload/process/dynamic.h"
#include "preload/process/libc.h"

static bool has_accept(const ElfW(Rela) * r, size_t octets, const ElfW(Sym) * symbols, const char *strings)
{
    for (size_t n = r != NULL ? octets / sizeof(*r) : 0; n > 0; n--, r++) {
        size_t symbol = ELF64_R_SYM(r->r_info);
        const char *name = strings + symbols[symbol].st_name;
        if (symbol != 0 && (strcmp(name, "accept") == 0 || strcmp(name, "accept4") == 0))
            return true;
    }
    return false;
}

static bool refers_to_accept(const struct dl_phdr_info *o)
{
    const ElfW(Dyn) *d = NULL;
    for (unsigned i = 0; i < o->dlpi_phnum; i++)
        if (o->dlpi_phdr[i].p_type == PT_DYNAMIC)
            d = (const ElfW(Dyn) *)(o->dlpi_addr + o->dlpi_phdr[i].p_vaddr);
    const ElfW(Sym) *symbols = d != NULL ? (const ElfW(Sym) *)dynamic_value(d, DT_SYMTAB) : NULL;
    const char *strings = d != NULL ? (const char *)dynamic_value(d, DT_STRTAB) : NULL;
    /* (The addresses of the vDSO are not relocated.) */
    if (symbols == NULL || strings == NULL || (uintptr_t)strings < o->dlpi_addr)
        return false;
    return has_accept((const ElfW(Rela) *)dynamic_value(d, DT_JMPREL), dynamic_value(d, DT_PLTRELSZ), symbols,
                      strings) ||
           has_accept((const ElfW(Rela) *)dynamic_value(d, DT_RELA), dynamic_value(d, DT_RELASZ), symbols, strings);
}

static bool holds(const struct dl_phdr_info *o, const void *code)
{
    uintptr_t at = (uintptr_t)code - o->dlpi_addr;
    for (unsigned i = 0; i < o->dlpi_phnum; i++)
        if (o->dlpi_phdr[i].p_type == PT_LOAD && at - o->dlpi_phdr[i].p_vaddr < o->dlpi_phdr[i].p_memsz)
            return true;
    return false;
}

struct search {
    const void *code;
    bool found;
};

static int look(struct dl_phdr_info *o, size_t size, void *arg)
{
    struct search *s = arg;
    (void)size;
    if (s->code != NULL) {
        bool here = holds(o, s->code);
        s->found = here && refers_to_accept(o);
        return here;
    }
    s->found = !holds(o, (const void *)imports_accept) &&
               !(libc_map() != NULL && holds(o, (const void *)libc_map()->l_ld)) && refers_to_accept(o);
    return s->found;
}

bool imports_accept(const void *code)
{
    struct search s = { .code = code };
    dl_iterate_phdr(look, &s);
    return s.found;
}
