/*
 * The stream in software on the program's own TCP connection: what conn_soft.c's table consists of. Each does what
 * conn_ops.h says of the operation of that name.
 */
#ifndef SW_PRELOAD_CONN_SOFT_H
#define SW_PRELOAD_CONN_SOFT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct conn;
struct iov_iter;
struct signals_mark;
struct sock;

/* ---- conn_soft_rx.c ---- */

void conn_soft_decode(struct conn *c, int fd);
ssize_t conn_soft_fill(struct conn *c, int fd, int flags, size_t most);
ssize_t conn_soft_fill_directly(struct conn *c, int fd, struct iov_iter *it, size_t len, size_t *ahead, size_t *placed,
                                bool *may);
bool conn_soft_drained(const struct conn *c);
void conn_soft_lowat(struct conn *c, int fd);
ssize_t conn_soft_wait_more(struct sock *s, struct conn *c, int fd, size_t most, bool *waits);
bool conn_soft_rx_mend(struct conn *c, int fd);

/* ---- conn_soft_tx.c ---- */

ssize_t conn_soft_send(struct sock *s, struct conn *c, int fd, struct iov_iter *it, size_t len, int flags,
                       const struct signals_mark *ran);
int conn_soft_flush(struct conn *c, int fd);
bool conn_soft_tx_mend(struct conn *c, int fd, bool other_process);

/* ---- conn_soft_end.c ---- */

void conn_soft_close(struct sock *s, struct conn *c, int fd, bool exits);

/* ---- conn_soft_ready.c ---- */

short conn_soft_ready(struct sock *s, int fd, short want, short kernel, short *ask);
uint32_t conn_soft_kernel_events(const struct conn *c, uint32_t events);

#endif
