/*
 * A program without the library; its environment says what it does. Linked statically and dynamically by handed.test.
 *
 *   WORKER_ACCEPT=FD   accepts on it for ever: a client that sends "question" gets "answer", any other what it sent, in hexadecimal
 *   WORKER_GREETS=1    and says "hello" before that
 *   WORKER_READ=FD     reads it to its end, and says what came and what of the library's it has
 */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static void answer(int conn)
{
    unsigned char got[256];
    char text[2 * sizeof(got) + 8] = "got ";
    ssize_t n, len = 0;
    if (getenv("WORKER_GREETS") != NULL && send(conn, "hello", 5, MSG_NOSIGNAL) < 0)
        perror("send");
    while (len < (ssize_t)sizeof(got) && (n = read(conn, got + len, sizeof(got) - (size_t)len)) > 0)
        len += n;
    for (ssize_t i = 0; i < len; i++)
        snprintf(text + 4 + 2 * i, 3, "%02x", got[i]);
    if (len == 8 && memcmp(got, "question", 8) == 0)
        strcpy(text, "answer");
    if (send(conn, text, strlen(text), MSG_NOSIGNAL) < 0)
        perror("send");
    close(conn);
}

/* Is any of its memory here? */
static int memory(void)
{
    char name[300], file[300];
    DIR *dir = opendir("/proc/self/fd");
    int found = 0;
    for (struct dirent *e; dir != NULL && (e = readdir(dir)) != NULL;) {
        snprintf(name, sizeof(name), "/proc/self/fd/%s", e->d_name);
        ssize_t n = readlink(name, file, sizeof(file) - 1);
        found += n > 0 && (file[n] = '\0', strstr(file, "memfd:sockwarp") != NULL);
    }
    return found;
}

int main(void)
{
    const char *accepts = getenv("WORKER_ACCEPT"), *reads = getenv("WORKER_READ");
    if (reads != NULL) {
        char buf[4096];
        ssize_t n, len = 0;
        while ((n = read(atoi(reads), buf, sizeof(buf))) > 0)
            len += n;
        printf("%zd octets, %d pieces of memory, %s\n", len, memory(),
               getenv("SOCKWARP_INHERIT") ? "told" : "not told");
        return 0;
    }
    if (accepts == NULL)
        return 2;
    puts("ready");
    fflush(stdout);
    for (int conn; (conn = accept(atoi(accepts), NULL, NULL)) >= 0;)
        answer(conn);
    perror("accept");
    return 1;
}
