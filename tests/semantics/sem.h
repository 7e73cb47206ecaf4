/*
 * What the scenarios of sem share: the outcome's text, and the far end of the connection.
 *
 * A scenario gets its connected socket and says what it saw. Nothing that differs from run to run
 * is said (how much a buffer took, how long it was to the millisecond): outcomes with and without
 * sockwarp are compared as text.
 */
#ifndef SW_TESTS_PRELOAD_SEM_H
#define SW_TESTS_PRELOAD_SEM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct scenario {
    const char *name;
    void (*run)(int s);
};

/* Each file's scenarios; an entry without a name ends them. */
extern const struct scenario sem_recv[], sem_send[], sem_end[], sem_ready[], sem_signal[], sem_fd[], sem_backlog[],
    sem_close[], sem_efault[], sem_epoll[], sem_epoll_life[], sem_epoll_sets[], sem_epoll_beside[], sem_epoll_fork[],
    sem_epoll_late[], sem_epoll_park[], sem_flags[], sem_interrupt[], sem_left[], sem_move[], sem_name[], sem_option[],
    sem_poll[], sem_raw[], sem_select[], sem_share[], sem_stdio[], sem_thread[], sem_vector[], sem_waiting[],
    sem_ring[], sem_ring_data[], sem_ring_lib[], sem_urgent[], sem_drain[], sem_peek[], sem_zerocopy[], sem_ends[],
    sem_stack[];

/* ---- the outcome ---- */

const char *error_name(int err);
void say(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* " what=5", or " what=EAGAIN" for -1 with errno. */
void say_result(const char *what, ssize_t r);
#define LATE_MS 10000 /* an upper bound for what no time has to end: it tells a hang only */
/* " what=in_time" if ms lies in lo..hi, else the number. */
void say_time(const char *what, unsigned ms, unsigned lo, unsigned hi);
/* Set up what has nothing to do with the question: prints and exits if it failed. Returns r. */
ssize_t must(const char *what, ssize_t r);

/* Where listeners are: 127.0.0.1, or what SEM_ADDRESS says. In network byte order. */
uint32_t sem_address(void);
/* Where this port is: SEM_PEER says where the other end's are, if elsewhere. */
uint32_t sem_address_of(uint16_t port);

/* ---- octets: the n-th of a direction has a value of its own ---- */

extern uint64_t sem_tx, sem_rx; /* octets that this end sent and received so far */
void fill(uint8_t *buf, size_t len, uint64_t offset);
/* Advances sem_rx; says " WRONG" if they are not the next octets. */
void check(const uint8_t *buf, size_t len);
/* Sends the next len octets, blocking, all of them. */
void send_next(int s, size_t len);
/* Receives len octets and checks them; fewer if the stream ends. */
size_t recv_next(int s, size_t len);

/* ---- the far end: another process, which does one thing after the other ---- */

enum far_op {
    FAR_ACCEPT,   /* the listener's next connection becomes the far end; a: then is busy until the next command */
    FAR_CONNECT,  /* a: port */
    FAR_SEND,     /* a: octets; returns them */
    FAR_RECV,     /* a: octets; how many came before the end; .bad if not the next ones */
    FAR_SHUTDOWN, /* a: how */
    FAR_CLOSE,
    FAR_RESET,  /* close with SO_LINGER 0 */
    FAR_LINGER, /* a: close with SO_LINGER of so many seconds */
    FAR_ECHO,   /* a: octets to send back as they come */
    FAR_DRAIN,  /* reads to the end, octets of value a; returns how many came from the first other one on */
    FAR_EXIT,   /* _exit without close */
    FAR_KILL,   /* SIGKILL to itself */
    /*
     * A child does what is said from now on, until it ends by one of these, or is killed: the parent has a result then,
     * beside those of the child. Returns its process.
     */
    FAR_CHILD,
    FAR_FILL,   /* sends until it would block */
    FAR_POLL,   /* returns what poll, asked for everything, says without waiting */
    FAR_USE,    /* a: which of its connections, in the order they were made, is meant from now on */
    FAR_FRESH,  /* its octets begin anew, those of a connection that was just made */
    FAR_OOB,    /* sends an urgent octet; a: with so many before it, in one call */
    FAR_SIGNAL, /* SIGUSR1 to the thread that gives the command; there is no far_end() */
    FAR_PUT, /* as FAR_SEND, without Nagle's rule; returns the octets that its kernel has sent in all, headers included */
};

struct far_result {
    int64_t r;
    int32_t err; /* errno if r is -1, or how a FAR_RECV ended early */
    bool bad;
};

/*
 * Begins an operation: with a delay when so much time is over, what was begun before is done, and this thread sleeps.
 */
void far_begin(enum far_op op, int64_t a, unsigned delay_ms);
struct far_result far_end(void);
/* Both; says nothing. */
struct far_result far_do(enum far_op op, int64_t a);
/* Says " far=5", or how it failed. */
void far_say(const char *what, struct far_result r);

/* ---- this and that ---- */

int connect_to(uint16_t port); /* -1 with errno */
int sem_pair(void); /* another connection as the scenario's first one was made; the far end knows it as its last */

extern bool sem_accepting; /* did this end accept the connection? */
extern int sem_listener;   /* a listening socket of this end, and its port */
extern uint16_t sem_port, sem_far_port;

uint64_t now_ms(void);
void sleep_ms(unsigned ms);
/* Until that thread sleeps or is gone; false if it does neither within ms. */
bool await_asleep(pid_t pid, int tid, unsigned ms);
/* Until every other thread of this process does: those that were begun wait by then. */
void others_sleep(void);
/* Waits until so many octets can be read (FIONREAD). */
void await_octets(int s, int count);
/* poll for events, revents or 0. */
int poll_one(int s, short events, int timeout_ms);
/* Names of POLLIN and the like, "none" for 0. */
const char *poll_names(int revents);
void set_nonblock(int s, bool on);
/* SIGUSR1 is counted. */
void handle_signal(bool restart);
/*
 * SIGUSR1 to this thread, from the far end, when ms are over and it sleeps: so it is in the next call that waits. What
 * the far end is told afterwards it does later. Handled with or without SA_RESTART.
 */
void signal_after(unsigned ms, bool restart);
/* Until it was handled so often. */
void await_signals(int count);
/*
 * SIGUSR1 to this thread every few milliseconds from now on: one at least comes while it waits. handler NULL: one that
 * counts.
 */
void signals_begin(void (*handler)(int), bool restart);
extern volatile int sem_signals; /* how often it was handled */
/* Sends octets without blocking until it would block. */
size_t fill_up(int s);

#endif
