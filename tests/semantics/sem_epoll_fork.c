/*
 * epoll sets that processes share by fork: what one registers, changes, deletes, consumes and closes there, the others
 * see.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/semantics/sem_wait.h"

static void end_child(pid_t pid)
{
    int status = 0;
    must("waitpid", waitpid(pid, &status, 0));
    say(" child=%d", WIFEXITED(status) ? WEXITSTATUS(status) : -1);
}

/* The child waits; it tells the data of the event by its status. */
static pid_t child_waits(int ep)
{
    pid_t pid = (pid_t)must("fork", fork());
    if (pid == 0) {
        struct epoll_event ev;
        int n = epoll_wait(ep, &ev, 1, 10000);
        _exit(n == 1 ? (int)ev.data.u64 : 99);
    }
    return pid;
}

static void epoll_fork_child_waits(int s)
{
    int ep = ep_new();
    ep_add(ep, s, EPOLLIN, 7);
    pid_t pid = child_waits(ep);
    far_begin(FAR_SEND, 10, 20);
    end_child(pid);
    far_end();
    ep_say("parent", ep, 10000);
    recv_next(s, 4);
    pid = child_waits(ep); /* with octets left over */
    end_child(pid);
    ep_say("left", ep, 10000);
    recv_next(s, 6);
    ep_say("drained", ep, 10);
}

static void epoll_fork_child_reads(int s)
{
    int ep = ep_new();
    ep_add(ep, s, EPOLLIN, 7);
    far_do(FAR_SEND, 10);
    ep_say("parent", ep, 10000);
    pid_t pid = (pid_t)must("fork", fork());
    if (pid == 0) {
        struct epoll_event ev;
        int n = epoll_wait(ep, &ev, 1, 10000);
        _exit(n == 1 && recv(s, (char[4]){ 0 }, 4, 0) == 4 ? 0 : 1);
    }
    end_child(pid);
    ep_say("left", ep, 10000);
    say_result("recv", recv(s, (char[6]){ 0 }, 6, 0));
    ep_say("drained", ep, 10);
    far_do(FAR_SEND, 1);
    ep_say("new", ep, 10000);
}

/* The child's close takes nothing from the parent. */
static void epoll_fork_child_closes(int s)
{
    int ep = ep_new();
    ep_add(ep, s, EPOLLIN | EPOLLRDHUP, 7);
    pid_t pid = (pid_t)must("fork", fork());
    if (pid == 0) {
        close(s);
        close(ep);
        exit(0);
    }
    end_child(pid);
    ep_say("quiet", ep, 10);
    far_do(FAR_SEND, 10);
    ep_say("data", ep, 10000);
    recv_next(s, 10);
    far_do(FAR_CLOSE, 0);
    ep_say("end", ep, 10000);
}

static void epoll_fork_parent_closes(int s)
{
    int ep = ep_new(), p[2];
    must("pipe", pipe(p));
    ep_add(ep, s, EPOLLIN, 7);
    far_do(FAR_SEND, 5);
    ep_say("data", ep, 10000);
    recv_next(s, 5);
    pid_t pid = (pid_t)must("fork", fork());
    if (pid == 0) {
        (void)!read(p[0], (char[1]){ 0 }, 1); /* the parent has closed it */
        struct epoll_event ev;
        int n = epoll_wait(ep, &ev, 1, 10000);
        _exit(n == 1 && recv(s, (char[10]){ 0 }, 10, 0) == 10 ? (int)ev.data.u64 : 99);
    }
    close(s);
    ep_say("quiet", ep, 10);
    must("write", write(p[1], "x", 1));
    far_do(FAR_SEND, 10);
    end_child(pid);
    ep_say("gone", ep, 10);
    far_say("far", far_do(FAR_RECV, 1));
}

/* What the child registers, changes and deletes is registered, changed and deleted. */
static void epoll_fork_child_changes(int s)
{
    int ep = ep_new(), other = more(), p[2];
    must("pipe", pipe(p));
    ep_add(ep, s, EPOLLIN, 1);
    must("write", write(p[1], "x", 1));
    pid_t pid = (pid_t)must("fork", fork());
    if (pid == 0) {
        int bad = ep_ctl(ep, EPOLL_CTL_ADD, p[0], EPOLLIN, 2) || ep_ctl(ep, EPOLL_CTL_ADD, other, EPOLLIN, 3) ||
                  ep_ctl(ep, EPOLL_CTL_MOD, s, EPOLLIN, 4);
        _exit(bad);
    }
    end_child(pid);
    ep_say("added", ep, 10000);
    far_send_on(0, 10);
    far_send_on(1, 10);
    poll_one(s, POLLIN, 10000);
    poll_one(other, POLLIN, 10000);
    ep_say("data", ep, 10000);
    ep_del(ep, p[0]);
    ep_mod(ep, other, EPOLLIN, 5);
    ep_say("changed", ep, 10000);
    pid = (pid_t)must("fork", fork());
    if (pid == 0)
        _exit(ep_ctl(ep, EPOLL_CTL_DEL, other, 0, 0) != 0);
    end_child(pid);
    ep_say("deleted", ep, 10000);
}

/* ---- what the others do with the registrations ---- */

/* How a child comes to its end. */
static void end_of(int bad)
{
    _exit(bad != 0);
}

/* It registers what has octets left over while its parent waits. */
static void epoll_fork_child_adds(int s)
{
    int ep = ep_new();
    far_do(FAR_SEND, 10);
    recv_next(s, 4);
    pid_t pid = (pid_t)must("fork", fork());
    if (pid == 0) {
        process_sleeps(getppid());
        end_of(ep_ctl(ep, EPOLL_CTL_ADD, s, EPOLLIN, 1));
    }
    ep_say("woken", ep, 10000);
    end_child(pid);
    recv_next(s, 6);
    ep_say("drained", ep, 10);
    far_do(FAR_SEND, 10);
    ep_say("data", ep, 10000);
    ep_mod(ep, s, EPOLLIN | EPOLLET, 2);
    ep_say("edge", ep, 10000);
    ep_say("once", ep, 10);
    ep_del(ep, s);
    ep_say("deleted", ep, 10);
    say_result("again", ep_ctl(ep, EPOLL_CTL_DEL, s, 0, 0));
}

static void epoll_fork_child_adds_edge(int s)
{
    int ep = ep_new();
    pid_t pid = (pid_t)must("fork", fork());
    if (pid == 0)
        end_of(ep_ctl(ep, EPOLL_CTL_ADD, s, EPOLLIN | EPOLLET, 1));
    end_child(pid);
    ep_say("empty", ep, 10);
    for (int i = 0; i < 2; i++) {
        far_do(FAR_SEND, 10);
        ep_say("edge", ep, 10000);
        ep_say("once", ep, 10);
        recv_next(s, 4);
        ep_say("left", ep, 10);
    }
    say_result("twice", ep_ctl(ep, EPOLL_CTL_ADD, s, EPOLLIN, 2));
}

/* Events and data, with octets left over, while its parent waits. */
static void epoll_fork_child_mods(int s)
{
    int ep = ep_new();
    ep_add(ep, s, 0, 1);
    far_do(FAR_SEND, 10);
    recv_next(s, 4);
    pid_t pid = (pid_t)must("fork", fork());
    if (pid == 0) {
        process_sleeps(getppid());
        end_of(ep_ctl(ep, EPOLL_CTL_MOD, s, EPOLLIN, 2));
    }
    ep_say("woken", ep, 10000);
    end_child(pid);
    pid = (pid_t)must("fork", fork());
    if (pid == 0)
        end_of(ep_ctl(ep, EPOLL_CTL_MOD, s, EPOLLOUT, 3));
    end_child(pid);
    ep_say("out", ep, 10000);
    pid = (pid_t)must("fork", fork());
    if (pid == 0)
        end_of(ep_ctl(ep, EPOLL_CTL_MOD, s, EPOLLIN | EPOLLOUT | EPOLLET, 4));
    end_child(pid);
    ep_say("edge", ep, 10000);
    ep_say("once", ep, 10);
    ep_mod(ep, s, EPOLLIN, 5);
    ep_say("level", ep, 10000);
    recv_next(s, 6);
    ep_say("drained", ep, 10);
}

static void epoll_fork_child_dels(int s)
{
    int ep = ep_new();
    ep_add(ep, s, EPOLLIN, 1);
    far_do(FAR_SEND, 10);
    ep_say("data", ep, 10000);
    recv_next(s, 4);
    ep_say("left", ep, 10000);
    pid_t pid = (pid_t)must("fork", fork());
    if (pid == 0)
        end_of(ep_ctl(ep, EPOLL_CTL_DEL, s, 0, 0));
    end_child(pid);
    ep_say("deleted", ep, 10);
    say_result("mod", ep_ctl(ep, EPOLL_CTL_MOD, s, EPOLLIN, 2));
    pid = (pid_t)must("fork", fork());
    if (pid == 0)
        end_of(ep_ctl(ep, EPOLL_CTL_ADD, s, EPOLLIN, 3));
    end_child(pid);
    ep_say("anew", ep, 10000);
    pid = (pid_t)must("fork", fork());
    if (pid == 0) {
        process_sleeps(getppid()); /* it has deleted it, and waits for us */
        end_of(ep_ctl(ep, EPOLL_CTL_DEL, s, 0, 0) == 0 || errno != ENOENT);
    }
    ep_del(ep, s);
    end_child(pid);
    ep_say("gone", ep, 10);
}

/* The process that is told of a one-shot registration disarms it for all; one that changes it arms it for all. */
static void epoll_fork_oneshot(int s)
{
    int ep = ep_new();
    ep_add(ep, s, EPOLLIN | EPOLLONESHOT, 1);
    far_do(FAR_SEND, 10);
    pid_t pid = child_waits(ep);
    end_child(pid);
    ep_say("consumed", ep, 10);
    ep_mod(ep, s, EPOLLIN | EPOLLONESHOT, 2);
    ep_say("armed", ep, 10000);
    ep_say("once", ep, 10);
    recv_next(s, 4);
    for (int i = 0; i < 2; i++) {
        pid = (pid_t)must("fork", fork());
        if (pid == 0) {
            process_sleeps(getppid());
            end_of(ep_ctl(ep, EPOLL_CTL_MOD, s, EPOLLIN | EPOLLONESHOT, 3));
        }
        ep_say("by_child", ep, 10000);
        end_child(pid);
        ep_say("once", ep, 10);
    }
    ep_mod(ep, s, EPOLLIN | EPOLLONESHOT, 4);
    pid = child_waits(ep); /* with octets left over */
    end_child(pid);
    ep_say("consumed", ep, 10);
    recv_next(s, 6);
    ep_mod(ep, s, EPOLLIN | EPOLLONESHOT, 5);
    ep_say("drained", ep, 10);
    far_do(FAR_SEND, 10);
    ep_say("data", ep, 10000);
}

/* Of two processes that wait one hears of it, and ends the other one's wait. */
static void epoll_fork_oneshot_one_hears(int s)
{
    int ep = ep_new(), e = eventfd(0, EFD_CLOEXEC);
    uint64_t n = 1;
    ep_add(ep, s, EPOLLIN | EPOLLONESHOT, 1);
    ep_add(ep, e, EPOLLIN, 2);
    for (int round = 0; round < 3; round++) {
        int heard[2] = { 0 };
        struct epoll_event ev = { 0 };
        far_begin(FAR_SEND, 10, 30);
        pid_t pid = (pid_t)must("fork", fork());
        for (int i = epoll_wait(ep, &ev, 1, 10000); i == 1 && ev.data.u64 == 1; i = 0) {
            sleep_ms(20); /* time to hear of it as well */
            must("write", write(e, &n, sizeof(n)));
        }
        if (pid == 0)
            _exit((int)ev.data.u64);
        int status;
        must("waitpid", waitpid(pid, &status, 0));
        heard[0] = (int)ev.data.u64 == 1 || WEXITSTATUS(status) == 1;
        heard[1] = (int)ev.data.u64 == 2 || WEXITSTATUS(status) == 2;
        say(" heard=%d others=%d", heard[0], heard[1]);
        far_end();
        must("read", read(e, &n, sizeof(n)));
        n = 1;
        recv_next(s, 4);
        ep_say("after", ep, 10);
        ep_mod(ep, s, EPOLLIN | EPOLLONESHOT, 1);
        recv_next(s, 6);
        ep_say("drained", ep, 10);
    }
}

static void epoll_fork_grandchild(int s)
{
    int ep = ep_new(), p[2];
    must("pipe", pipe(p));
    must("write", write(p[1], "x", 1));
    ep_add(ep, s, EPOLLIN, 1);
    far_do(FAR_SEND, 10);
    recv_next(s, 4);
    pid_t pid = (pid_t)must("fork", fork());
    if (pid == 0) {
        pid = (pid_t)must("fork", fork());
        if (pid == 0)
            end_of(ep_ctl(ep, EPOLL_CTL_MOD, s, EPOLLIN | EPOLLONESHOT, 2) ||
                   ep_ctl(ep, EPOLL_CTL_ADD, p[0], EPOLLIN, 3));
        int status;
        struct epoll_event ev[3];
        must("waitpid", waitpid(pid, &status, 0));
        end_of(status || epoll_wait(ep, ev, 3, 10000) != 2 || ep_ctl(ep, EPOLL_CTL_MOD, p[0], EPOLLIN, 4));
    }
    end_child(pid);
    ep_say("child_heard", ep, 10000);
    ep_mod(ep, s, EPOLLIN, 5);
    ep_say("armed", ep, 10000);
    ep_del(ep, p[0]);
    ep_say("deleted", ep, 10000);
}

/* A file that only the child has stands in the set under a number which is another file's in the parent. */
static void epoll_fork_number_of_child(int s)
{
    int ep = ep_new(), ready[2], go[2], p[2];
    must("pipe", pipe(ready));
    must("pipe", pipe(go));
    pid_t pid = (pid_t)must("fork", fork());
    must("pipe", pipe(p)); /* the same numbers */
    if (pid == 0) {
        int bad = ep_ctl(ep, EPOLL_CTL_ADD, p[0], EPOLLIN, 1) != 0 || write(p[1], "x", 1) != 1;
        must("write", write(ready[1], "x", 1));
        (void)!read(go[0], (char[1]){ 0 }, 1);
        end_of(bad);
    }
    must("read", read(ready[0], (char[1]){ 0 }, 1));
    ep_say("theirs", ep, 10000);
    say_result("absent", ep_ctl(ep, EPOLL_CTL_MOD, p[0], EPOLLIN, 9));
    ep_add(ep, p[0], EPOLLIN, 2);
    must("write", write(p[1], "x", 1));
    ep_say("both", ep, 10000);
    ep_mod(ep, p[0], EPOLLIN, 3);
    ep_say("changed", ep, 10000);
    ep_del(ep, p[0]);
    ep_say("deleted", ep, 10000);
    must("dup2", dup2(s, p[0]));
    ep_add(ep, p[0], EPOLLOUT, 4);
    ep_say("socket", ep, 10000);
    must("write", write(go[1], "x", 1));
    end_child(pid);
    ep_say("gone", ep, 10000);
}

/* The kernel reports what another process still has open, as epoll(7) says. */
static void epoll_fork_closed_is_told(int s)
{
    int ep = ep_new(), go[2];
    must("pipe", pipe(go));
    one_octet(s); /* (what begins a connection may still be on its way) */
    ep_add(ep, s, EPOLLIN, 7);
    pid_t pid = (pid_t)must("fork", fork());
    if (pid == 0) {
        (void)!read(go[0], (char[1]){ 0 }, 1);
        end_of(recv(s, (char[10]){ 0 }, 10, MSG_WAITALL) != 10);
    }
    close(s);
    ep_say("quiet", ep, 10);
    far_do(FAR_SEND, 10);
    ep_say("told", ep, 10000);
    say_result("mod", ep_ctl(ep, EPOLL_CTL_MOD, s, EPOLLIN, 1));
    must("write", write(go[1], "x", 1));
    end_child(pid);
    ep_say("gone", ep, 10);
}

/* More changes than anybody looks at one by one. */
static void epoll_fork_many_changes(int s)
{
    int ep = ep_new(), p[2];
    must("pipe", pipe(p));
    must("write", write(p[1], "x", 1));
    ep_add(ep, s, EPOLLOUT, 1);
    pid_t pid = (pid_t)must("fork", fork());
    if (pid == 0) {
        int bad = 0;
        for (int i = 2; i < 3000; i++) {
            bad |= ep_ctl(ep, EPOLL_CTL_MOD, s, EPOLLOUT, (uint64_t)i);
            bad |= ep_ctl(ep, EPOLL_CTL_ADD, p[0], EPOLLIN, (uint64_t)i + 10000);
            bad |= i < 2999 && ep_ctl(ep, EPOLL_CTL_DEL, p[0], 0, 0);
        }
        end_of(bad);
    }
    end_child(pid);
    ep_say("last", ep, 10000);
    ep_del(ep, p[0]);
    ep_mod(ep, s, EPOLLIN, 1);
    ep_say("none", ep, 10);
    one_octet(s);
}

/* Threads wait in the parent: one is woken. */
static void epoll_fork_thread_waits(int s)
{
    int ep = ep_new();
    struct waiter w;
    ep_add(ep, s, 0, 1);
    far_do(FAR_SEND, 10);
    recv_next(s, 4);
    wait_in_epoll(&w, ep, 10000);
    pid_t pid = (pid_t)must("fork", fork());
    if (pid == 0)
        end_of(ep_ctl(ep, EPOLL_CTL_MOD, s, EPOLLIN | EPOLLONESHOT, 2));
    end_child(pid);
    wait_end("woken", &w);
    ep_say("once", ep, 10);
}

/* A process is killed in the middle of its changes: the others go on. */
static void epoll_fork_killed(int s)
{
    int ep = ep_new(), p[2], wrong = 0;
    must("pipe", pipe(p));
    must("write", write(p[1], "x", 1));
    ep_add(ep, s, EPOLLOUT, 1);
    for (unsigned round = 0; round < 30; round++) {
        pid_t pid = (pid_t)must("fork", fork());
        for (; pid == 0; pid = 0) {
            ep_ctl(ep, EPOLL_CTL_MOD, s, EPOLLOUT, 1);
            ep_ctl(ep, EPOLL_CTL_MOD, s, EPOLLIN, 2);
            ep_ctl(ep, EPOLL_CTL_ADD, p[0], EPOLLIN, 3);
            ep_ctl(ep, EPOLL_CTL_DEL, p[0], 0, 0);
        }
        sleep_ms(1 + round % 3);
        must("kill", kill(pid, SIGKILL));
        must("waitpid", waitpid(pid, NULL, 0));
        /* As in the kernel's set, whatever that is. */
        struct epoll_event ev[3];
        int n = epoll_wait(ep, ev, 3, 0), there = 0;
        for (int i = 0; i < n; i++) {
            wrong += !(ev[i].data.u64 == 3 && ev[i].events == EPOLLIN) &&
                     !((ev[i].data.u64 == 1 || ev[i].data.u64 == 6) && ev[i].events == EPOLLOUT);
            there |= ev[i].data.u64 == 3;
        }
        wrong += (ep_ctl(ep, EPOLL_CTL_DEL, p[0], 0, 0) == 0) != there;
        ep_mod(ep, s, EPOLLOUT, 6);
        n = epoll_wait(ep, ev, 3, 0);
        wrong += n != 1 || ev[0].data.u64 != 6 || ev[0].events != EPOLLOUT;
    }
    say(" wrong=%d", wrong);
    one_octet(s);
}

const struct scenario sem_epoll_fork[] = {
    { "epoll_fork_child_waits", epoll_fork_child_waits },
    { "epoll_fork_child_reads", epoll_fork_child_reads },
    { "epoll_fork_child_closes", epoll_fork_child_closes },
    { "epoll_fork_parent_closes", epoll_fork_parent_closes },
    { "epoll_fork_child_changes", epoll_fork_child_changes },
    { "epoll_fork_child_adds", epoll_fork_child_adds },
    { "epoll_fork_child_adds_edge", epoll_fork_child_adds_edge },
    { "epoll_fork_child_mods", epoll_fork_child_mods },
    { "epoll_fork_child_dels", epoll_fork_child_dels },
    { "epoll_fork_oneshot", epoll_fork_oneshot },
    { "epoll_fork_oneshot_one_hears", epoll_fork_oneshot_one_hears },
    { "epoll_fork_grandchild", epoll_fork_grandchild },
    { "epoll_fork_number_of_child", epoll_fork_number_of_child },
    { "epoll_fork_closed_is_told", epoll_fork_closed_is_told },
    { "epoll_fork_many_changes", epoll_fork_many_changes },
    { "epoll_fork_thread_waits", epoll_fork_thread_waits },
    { "epoll_fork_killed", epoll_fork_killed },
    { NULL, NULL },
};
