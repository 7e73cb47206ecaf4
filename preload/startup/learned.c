/* Which peers the processes of this user have found to be plain; see learned.h. */
#include "preload/startup/learned.h"

#include "core/base/rawsys.h"
#include "core/negotiate/verdict.h"
#include "preload/process/folder.h"
#include "preload/process/proc.h"
#include "preload/startup/fallback.h"
#include "preload/startup/meet.h"

static bool read_at(int file, uint32_t slot, struct verdict_entry *e)
{
    return rawsys4(__NR_pread64, file, (long)e, sizeof(*e), (long)slot * (long)sizeof(*e)) == sizeof(*e);
}

/* False: this kernel does not tell networks apart. */
static bool key_of(struct verdict_entry *key, const struct sockaddr *peer, int fd)
{
    uint64_t netns = meet_netns(fd);
    return netns != 0 && verdict_key(key, peer, netns);
}

bool learned_plain(const struct sockaddr *peer, int fd)
{
    struct verdict_entry key, e;
    int file = fallback_ttl_ns() != 0 && key_of(&key, peer, fd)
                   ? folder_file(LEARNED_FILE, sizeof(struct verdicts), false)
                   : -1;
    if (file < 0)
        return false;
    bool plain = read_at(file, verdict_slot(&key), &e) && verdict_holds(&e, &key, proc_now_ns(), fallback_ttl_ns());
    rawsys_close(file);
    return plain;
}

void learned_tell(const struct sockaddr *peer, int fd)
{
    struct verdict_entry key, e;
    int file = key_of(&key, peer, fd) ? folder_file(LEARNED_FILE, sizeof(struct verdicts), true) : -1;
    if (file < 0)
        return;
    /* (Two processes that write at the same time know the same; what is half of each has a wrong check.) */
    uint32_t slot = verdict_slot(&key);
    if (read_at(file, slot, &e) && verdict_renew(&e, &key, proc_now_ns(), fallback_ttl_ns()))
        (void)rawsys4(__NR_pwrite64, file, (long)&e, sizeof(e), (long)slot * (long)sizeof(e));
    rawsys_close(file);
}
