/* Makes the look-up of one name slow and vain in the process that preloads it, as if no name server
   answered: getaddrinfo of "slow.test" takes 2.5 s and fails. A byte is written to $SLOW_NAMES_FILE
   when a look-up begins ('b') and when it ends ('e'). */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <netdb.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static void note(const char *what) {
    const char *path = getenv("SLOW_NAMES_FILE");
    int file = path ? open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600) : -1;
    if (file >= 0 && write(file, what, 1) == 1)
        close(file);
}

int getaddrinfo(const char *name, const char *service, const struct addrinfo *hints,
                struct addrinfo **found) {
    static int (*real)(const char *, const char *, const struct addrinfo *, struct addrinfo **);
    const struct timespec slow = {2, 500000000};
    if (!real)
        real = (int (*)(const char *, const char *, const struct addrinfo *,
                        struct addrinfo **))dlsym(RTLD_NEXT, "getaddrinfo");
    if (!name || strcmp(name, "slow.test"))
        return real(name, service, hints, found);
    note("b");
    nanosleep(&slow, NULL);
    note("e");
    return EAI_AGAIN;
}
