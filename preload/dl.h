/*
 * dlsym and its kin (dl.c).
 */
#ifndef SW_PRELOAD_DL_H
#define SW_PRELOAD_DL_H

struct real_calls;

/* Where these calls go on to. */
void dl_init(const struct real_calls *r);

#endif
