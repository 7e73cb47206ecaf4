/*
 * By what does a program accept connections: by libc's call, which we see, or in a way that we do not (a ring of
 * liburing.a's, a system call of its own)? Its objects' imports tell, before any connection has come.
 */
#ifndef SW_PRELOAD_IMPORTS_H
#define SW_PRELOAD_IMPORTS_H

#include <stdbool.h>

/*
 * Does the object that holds this code import accept or accept4? NULL: does any object but libc and this library? False
 * if the code belongs to no object (a compiler's at run time, libffi's). errno stays. Any thread; takes the dynamic linker's
 * lock.
 */
bool imports_accept(const void *code);

#endif
