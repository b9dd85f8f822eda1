/* Bytes: sockets, output buffers and bodies, for the engine and the protocols. */

#include "load.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

void die(const char *what, const char *detail) {
    fprintf(stderr, "load: %s%s%s\n", what, detail ? ": " : "", detail ? detail : "");
    exit(1);
}

void *need(size_t bytes) {
    void *found = calloc(1, bytes ? bytes : 1);
    if (!found) die("out of memory", NULL);
    return found;
}

int dial(char *address) {
    bool tls = strncmp(address, "tls:", 4) == 0;
    if (tls) address += 4;
    char *colon = strrchr(address, ':');
    if (!colon) die("an address is HOST:PORT", address);
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *found;
    *colon = 0;
    int failed = getaddrinfo(address, colon + 1, &hints, &found);
    *colon = ':';
    if (failed) die(address, gai_strerror(failed));
    int fd = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0) die("socket", strerror(errno));
    if (connect(fd, found->ai_addr, found->ai_addrlen) < 0) die(address, strerror(errno));
    freeaddrinfo(found);
    int on = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    if (tls) link_encrypt(fd);
    return fd;
}

void append(struct connection *one, const void *bytes, size_t count) {
    if (one->output_at) {
        memmove(one->output, one->output + one->output_at, one->output_bytes - one->output_at);
        one->output_bytes -= one->output_at;
        one->output_at = 0;
    }
    if (one->output_bytes + count > one->output_max) {
        one->output_max = 2 * (one->output_bytes + count);
        one->output = realloc(one->output, one->output_max);
        if (!one->output) die("out of memory", NULL);
    }
    memcpy(one->output + one->output_bytes, bytes, count);
    one->output_bytes += count;
}

void append_text(struct connection *one, const char *format, ...) {
    char text[LINE_BYTES_MAX];
    va_list values;
    va_start(values, format);
    int bytes = vsnprintf(text, sizeof text, format, values);
    va_end(values);
    if (bytes < 0 || (size_t)bytes >= sizeof text) die("a command too long", NULL);
    append(one, text, (size_t)bytes);
}

void append_body_of(struct connection *one, const char id[ID_BYTES]) {
    size_t known = settings.body_bytes < ID_BYTES ? settings.body_bytes : ID_BYTES;
    static char *rest;
    if (!rest) rest = memset(need(settings.body_bytes), 'x', settings.body_bytes);
    append(one, id, known);
    append(one, rest, settings.body_bytes - known);
}

void append_body(struct connection *one) {
    static const char digits[] = "0123456789abcdef";
    uint64_t value = (uint64_t)one->number << 40 | one->bodies++;
    char id[ID_BYTES];
    for (int at = ID_BYTES - 1; at >= 0; at--, value >>= 4) id[at] = digits[value & 15];
    append_body_of(one, id);
}

void send_all(int fd, const void *bytes, size_t count) {
    if (link_send(fd, bytes, count) != (ssize_t)count) die("send", strerror(errno));
}

void receive_all(int fd, void *into, size_t count) {
    while (count) {
        ssize_t got = link_receive(fd, into, count);
        if (got <= 0) die("no answer to the greeting", got ? strerror(errno) : NULL);
        into = (char *)into + got;
        count -= (size_t)got;
    }
}

void receive_line(int fd, char into[LINE_BYTES_MAX]) {
    size_t bytes = 0;
    for (char byte = 0; byte != '\n';) {
        receive_all(fd, &byte, 1);
        if (bytes == LINE_BYTES_MAX - 1) die("a line too long", NULL);
        if (byte != '\r' && byte != '\n') into[bytes++] = byte;
    }
    into[bytes] = 0;
}
